"""What every test of this folder shares: skipping what this machine cannot run."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.testbed import namespace
from tests.testbed.programs import missing

# The programs that a marker's tests start.
_PROGRAMS = {"testbed": ("satlink",), "node": ("satlink", "underpass")}


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip a test, with the reason, where the machine or the build does not allow it."""
    for marker, programs in _PROGRAMS.items():
        if item.get_closest_marker(marker):
            reason = namespace.unprivileged_reason() or missing(*programs)
            if reason:
                pytest.skip(reason)


@pytest.fixture(scope="session", autouse=True)
def no_leftovers() -> Iterator[None]:
    """Remove what earlier, killed runs left behind."""
    if namespace.unprivileged_reason() is None:
        namespace.sweep()
    yield
