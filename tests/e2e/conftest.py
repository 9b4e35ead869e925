"""Fixtures of the end-to-end tests: a ready terminal and hub on the test bed."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer
from tests.testbed.node import Options, Pair
from tests.testbed.profile import Link, Profile, symmetric
from tests.testbed.topology import Testbed

# A short round trip for quick tests, but long enough that an unneeded one shows.
NEAR = symmetric("near", Link(rate_bps=50_000_000, delay_ms=50.0, queue_ms=500.0))
# Two paths beside each other.
SATELLITE = symmetric("satellite", Link(rate_bps=20_000_000, delay_ms=100.0, queue_ms=500.0))
TERRESTRIAL = symmetric("terrestrial", Link(rate_bps=10_000_000, delay_ms=10.0, queue_ms=200.0))

StartPair = Callable[..., Pair[Testbed]]


def whole(done: Transfer) -> float:
    """Make sure that every byte of a transfer arrived; return when the last one did, in s."""
    assert done.error is None
    assert done.last_byte_s is not None
    return done.last_byte_s


def classes_with(policies: Mapping[str, Mapping[str, object]]) -> list[dict[str, object]]:
    """Return the default classes; `policies` are further keys of some, by their names."""
    return [
        {"name": name, "priority": priority, **policies.get(name, {})}
        for name, priority in (("signalling", 0), ("interactive", 1), ("normal", 2), ("bulk", 2))
    ]


@contextmanager
def amid(
    pair: Pair[Testbed],
    transfer: Callable[..., Transfer],
    size: int,
    after_s: float = 1.0,
    **options: Any,
) -> Iterator[Future[Transfer]]:
    """Begin a transfer by SOCKS5, and run the body of the `with` statement during it."""
    with ThreadPoolExecutor(1) as pool:
        options["route"] = pair.socks5()
        running = pool.submit(transfer, pair.client, addresses.ORIGIN, size, **options)
        time.sleep(after_s)
        assert not running.done()
        yield running


@pytest.fixture(scope="module")
def underpass_pair() -> Iterator[Pair[Testbed]]:
    """A terminal and a hub, 100 ms apart, TLS on; shared by the tests of a module."""
    with Testbed(NEAR) as testbed:
        yield Pair(testbed)


@pytest.fixture
def start_pair() -> Iterator[StartPair]:
    """A function that starts a pair for one test alone: on a profile, with options, terminals."""
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
