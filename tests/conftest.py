"""What every test of this folder shares: skipping what this machine cannot run."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
import structlog
from hypothesis import settings

from tests.order import longest_first
from tests.testbed import namespace
from tests.testbed.programs import missing

# Laws are about what comes out: no test asserts how fast a busy machine is.
settings.register_profile("underpass", deadline=None)
settings.load_profile("underpass")

# A service in the tests' own process logs past the output that they read of commands.
structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.__stderr__))

# The programs that a marker's tests start.
_PROGRAMS = {
    "testbed": ("satlink",),
    "node": ("satlink", "underpass"),
    "swarm": ("satlink", "underpass", "swarm"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with what takes longest."""
    longest_first(items)


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
