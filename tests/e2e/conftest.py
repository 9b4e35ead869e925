"""Fixtures of the end-to-end tests: a ready terminal and hub on the test bed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from tests.testbed.node import Options, Pair
from tests.testbed.profile import Link, Profile, symmetric
from tests.testbed.topology import Testbed

# Near enough for quick tests, far enough that an unneeded round trip shows.
NEAR = symmetric("near", Link(rate_bps=50_000_000, delay_ms=50.0, queue_ms=500.0))

StartPair = Callable[..., Pair[Testbed]]


@pytest.fixture(scope="module")
def underpass_pair() -> Iterator[Pair[Testbed]]:
    """A terminal and a hub, 100 ms apart, TLS on; shared by the tests of a module."""
    with Testbed(NEAR) as testbed:
        yield Pair(testbed)


@pytest.fixture
def start_pair() -> Iterator[StartPair]:
    """A function that starts a pair of one's own: on a profile, with options, terminals."""
    with ExitStack() as stack:

        def start(
            profile: Profile = NEAR,
            options: Options | None = None,
            *,
            terminals: int = 1,
            terrestrial: Profile | None = None,
        ) -> Pair[Testbed]:
            testbed = Testbed(profile, terminals=terminals, terrestrial=terrestrial)
            return Pair(stack.enter_context(testbed), options)

        yield start
