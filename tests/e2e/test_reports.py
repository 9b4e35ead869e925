"""A terminal's reports at its hub."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed.node import HUB_NODE, Options, Pair, terminal_node
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node


def _latest(pair: Pair[Testbed]) -> dict[str, Any]:
    terminals = pair.hub.api.get("/v1/reports")["terminals"]
    return {} if not terminals else terminals[0]


def test_the_hub_has_the_newest_report_first_when_a_blockage_ends(start_pair: StartPair) -> None:
    reports = {"reports": {"to": HUB_NODE, "interval_ms": 100}}
    pair = start_pair(options=Options(terminal=reports))
    pair.hub.process.wait_until(lambda: _latest(pair) != {})
    report = _latest(pair)
    assert report["node"] == terminal_node(0)
    [link] = report["status"]["links"]
    assert (link["terminal"], link["direction"], link["state"]) == (10, "return", "up")
    assert link["sent_bytes"] > 0

    pair.terminal.api.block()
    waiting = "underpass_reports_waiting"
    pair.terminal.process.wait_until(lambda: pair.terminal.api.metrics()[waiting] >= 5)
    known = _latest(pair)["status"]["uptime_ms"]
    pair.terminal.api.unblock()
    pair.hub.process.wait_until(lambda: _latest(pair)["status"]["uptime_ms"] > known)
    # Those that had waited follow, but none of them replaces the newest one.
    assert _latest(pair)["age_s"] < 2
    pair.terminal.process.wait_until(lambda: pair.terminal.api.metrics()[waiting] == 0)
