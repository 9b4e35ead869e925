"""A hub's reachable networks follow its routes."""

from __future__ import annotations

import functools

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import download
from tests.testbed.node import Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node


def test_a_hub_that_was_up_before_its_way_out_dials_once_it_is_there(
    start_pair: StartPair,
) -> None:
    pair: Pair[Testbed] = start_pair()
    hub, host = pair.hub, pair.testbed.hub
    hub.process.kill()
    # Of its IPv4 routes the hub keeps those to the terminals.
    host.ip("link", "set", "wan", "down")
    hub.start()
    pair.wait_until_ready()

    def works(origin: str) -> bool:
        return download(pair.client, origin, 10_000, route=pair.socks5()).complete

    def fails(origin: str) -> bool:
        return not works(origin)

    for origin in (addresses.ORIGIN, addresses.ORIGIN6):
        hub.process.wait_until(functools.partial(fails, origin))
    host.ip("link", "set", "wan", "up")
    # The addresses of IPv6 went with the link; origins of the hub's own networks
    # need no default route.
    host.ip("-6", "address", "replace", f"{addresses.HUB_WAN6}/64", "dev", "wan", "nodad")
    # The terminal hears of it without a restart of either.
    for origin in (addresses.ORIGIN, addresses.ORIGIN6):
        hub.process.wait_until(functools.partial(works, origin))
    # And the other way round.
    host.ip("-6", "address", "flush", "dev", "wan", "scope", "global")
    hub.process.wait_until(functools.partial(fails, addresses.ORIGIN6))
    assert works(addresses.ORIGIN)
