"""What a hub reaches follows its routes."""

from __future__ import annotations

import functools

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import download
from tests.testbed.node import Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node


def test_a_hub_that_was_up_before_its_default_route_dials_once_it_is_there(
    start_pair: StartPair,
) -> None:
    pair: Pair[Testbed] = start_pair()
    hub, host = pair.hub, pair.testbed.hub
    families = (("-4", addresses.ORIGIN), ("-6", addresses.ORIGIN6))
    hub.process.kill()
    for family, _ in families:
        host.ip(family, "route", "del", "default")
    hub.start()
    pair.wait_until_ready()

    def works(origin: str) -> bool:
        return download(pair.client, origin, 10_000, route=pair.socks5()).complete

    def fails(origin: str) -> bool:
        return not works(origin)

    # The terminal refuses at once what it has heard that the hub does not reach.
    for _, origin in families:
        hub.process.wait_until(functools.partial(fails, origin))
    for family, origin in families:
        host.ip(family, "route", "add", "default", "via", origin)
        # The terminal hears of it without a restart of either.
        hub.process.wait_until(functools.partial(works, origin))
    # And the other way round.
    host.ip("-6", "route", "del", "default")
    hub.process.wait_until(functools.partial(fails, addresses.ORIGIN6))
    assert works(addresses.ORIGIN)
