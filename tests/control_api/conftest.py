"""Tests that are coroutines: each is run in the event loop of its fixtures, or in its own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

# The fixtures that have an event loop: one alone, or that of a service.
_LOOPS = ("runner", "api", "unchanged")


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    """The event loop that a test has in common with fixtures."""
    with asyncio.Runner() as running:
        yield running


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    fixtures: dict[str, Any] = pyfuncitem.funcargs
    given = {name: fixtures[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    loop = next((fixtures[name] for name in _LOOPS if name in fixtures), asyncio)
    loop.run(pyfuncitem.obj(**given))
    return True
