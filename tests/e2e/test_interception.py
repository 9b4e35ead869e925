"""Clients that know of no proxy, and what origins see of them."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_address

import pytest

from tests.e2e.conftest import NEAR, StartPair
from tests.testbed import addresses, ports
from tests.testbed.client.transfer import Transfer, download, request, upload
from tests.testbed.node import Options, Pair, transparent
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_TRANSPARENT = {"edge": transparent("lan")}
_ORIGINS = (addresses.ORIGIN, addresses.ORIGIN6)


def _taken_in(transfer: Transfer) -> bool:
    """Tell whether the terminal itself accepted: plain IP needs the hop for it."""
    assert transfer.error is None
    assert transfer.connected_s is not None
    return transfer.connected_s < NEAR.rtt_s


def _diverted(pair: Pair[Testbed]) -> bool:
    rules = pair.testbed.terminal.node.run("nft", "list", "tables")
    routing = pair.testbed.terminal.node.ip("rule", "list")
    return "underpass" in rules or "21840" in routing


def test_interception_takes_clients_in_by_both_families(start_pair: StartPair) -> None:
    pair = start_pair(options=Options(terminal=_TRANSPARENT))
    for origin in _ORIGINS:
        assert _taken_in(download(pair.client, origin, 1_000_000))
        assert _taken_in(upload(pair.client, origin, 1_000_000))


def test_switching_interception_leaves_open_streams_and_turns_new_ones(
    start_pair: StartPair,
) -> None:
    pair = start_pair(options=Options(terminal=_TRANSPARENT))
    with ThreadPoolExecutor(1) as pool:
        # The origin's own pace: it lasts for three seconds however fast the hop is.
        running = pool.submit(
            download, pair.client, addresses.ORIGIN, 3_000_000, query="&rate_bps=8000000"
        )
        time.sleep(0.7)
        pair.terminal.api.intercept(enabled=False)
        for origin in _ORIGINS:
            assert not _taken_in(download(pair.client, origin, 100_000))
        pair.terminal.api.intercept(enabled=True)
        for origin in _ORIGINS:
            assert _taken_in(download(pair.client, origin, 100_000))
        assert not running.done()
        assert _taken_in(running.result(30))


@pytest.mark.parametrize("end", ["stop", "kill"])
def test_a_terminal_that_ended_leaves_its_clients_plain_ip(start_pair: StartPair, end: str) -> None:
    pair = start_pair(options=Options(terminal=_TRANSPARENT))
    assert _taken_in(download(pair.client, addresses.ORIGIN, 100_000))
    assert _diverted(pair)
    getattr(pair.terminal.process, end)()
    for origin in _ORIGINS:
        assert not _taken_in(download(pair.client, origin, 100_000))
    if end == "stop":
        assert not _diverted(pair)
    else:
        # What a crash left behind is no obstacle to the next start.
        pair.terminal.start()
        pair.wait_until_ready()
        assert _taken_in(download(pair.client, addresses.ORIGIN, 100_000))


def test_an_origin_is_told_the_client_by_the_proxy_protocol(start_pair: StartPair) -> None:
    dial = {
        "allow_networks": [addresses.WAN_NETWORK, addresses.WAN_NETWORK6],
        "origin_source": "proxy-protocol",
    }
    pair = start_pair(options=Options(terminal=_TRANSPARENT, hub={"edge": {"dial": dial}}))
    for origin, client in zip(_ORIGINS, (addresses.client(0), addresses.client6(0)), strict=True):
        status, body = request(pair.client, origin, "/request", port=ports.HTTP_PROXY_PROTOCOL)
        assert status == 200
        peer = json.loads(body)["peer"].split(" ")[0]
        assert ip_address(peer) == ip_address(client)


def test_an_origin_sees_the_client_itself_where_the_hub_takes_its_address(
    start_pair: StartPair,
) -> None:
    dial = {
        "allow_networks": [addresses.WAN_NETWORK, addresses.WAN_NETWORK6],
        "origin_source": "client",
    }
    # The origin's answers to the client's address are for sockets of the hub.
    edge = {
        "dial": dial,
        **transparent("wan", client_networks=[addresses.WAN_NETWORK, addresses.WAN_NETWORK6]),
    }
    pair = start_pair(options=Options(terminal=_TRANSPARENT, hub={"edge": edge}))
    for origin, client in zip(_ORIGINS, (addresses.client(0), addresses.client6(0)), strict=True):
        status, body = request(pair.client, origin, "/request")
        assert status == 200
        assert ip_address(json.loads(body)["peer"]) == ip_address(client)
        assert _taken_in(download(pair.client, origin, 500_000))
