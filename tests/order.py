"""The order of the tests: the longest first, so that no worker is left alone with one at the end.

What runs a whole module at a time hands out modules in this order, too.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
# The modules that take more than about half a minute, the longest first. Those of few tests have to
# be here: of the others, the number of tests tells how long they take.
LONGEST = (
    "e2e/test_hostile.py",
    "e2e/test_closed_loop.py",
    "e2e/test_enrolment.py",
    "e2e/test_http.py",
    "e2e/test_soak.py",
    "e2e/test_fades.py",
    "packaging/test_watching.py",
    "testbed/test_demo.py",
    "e2e/test_tcp_semantics.py",
    "e2e/test_swarm.py",
    "e2e/test_certificates.py",
    "e2e/test_control.py",
    "e2e/test_takeover.py",
    "e2e/test_upgrade.py",
    "control_api/service/test_fuzzing.py",
    "control_api/test_sky.py",
    "control_api/service/test_migrations.py",
    "control_api/service/test_terminal_files.py",
    "control_api/service/test_settlement.py",
)
_RANKS = {FOLDER / name: rank for rank, name in enumerate(LONGEST)}


def longest_first(items: list[pytest.Item]) -> None:
    """Sort tests by their modules; those of a module stay together, in their order."""
    tests = Counter(item.path for item in items)

    def place(item: pytest.Item) -> tuple[int, int, Path]:
        return _RANKS.get(item.path, len(_RANKS)), -tests[item.path], item.path

    items.sort(key=place)
