"""Clients that do not know of any proxy, and how origins see them."""

from __future__ import annotations

import json
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from ipaddress import ip_address

import pytest

from tests.e2e.conftest import NEAR, StartPair
from tests.testbed import addresses, ports
from tests.testbed.client.transfer import Transfer, download, request, upload
from tests.testbed.node import HUB_NODE, TCPCL_PORT, Options, Pair, terminal_node, transparent
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


def test_connections_reach_the_origin_in_the_order_in_which_the_client_opened_them(
    start_pair: StartPair,
) -> None:
    pair = start_pair(options=Options(terminal=_TRANSPARENT))
    with pair.testbed.origin.socket(socket.AF_INET, socket.SOCK_STREAM) as listening:
        listening.bind(("0.0.0.0", 0))  # noqa: S104 - its own namespace
        listening.listen(16)
        listening.settimeout(20)
        origin = (addresses.ORIGIN, listening.getsockname()[1])
        for _ in range(10):
            with ExitStack() as ends:
                for number in range(4):
                    client = pair.client.socket(socket.AF_INET, socket.SOCK_STREAM)
                    ends.enter_context(client).connect(origin)
                    client.sendall(bytes([number]))
                accepted = [ends.enter_context(listening.accept()[0]) for _ in range(4)]
                for connection in accepted:
                    connection.settimeout(20)
                assert [connection.recv(1)[0] for connection in accepted] == [0, 1, 2, 3]


def test_switching_interception_leaves_open_streams_and_turns_new_ones(
    start_pair: StartPair,
) -> None:
    pair = start_pair(options=Options(terminal=_TRANSPARENT))
    with ThreadPoolExecutor(1) as pool:
        # At the origin's own pace the download lasts three seconds, however fast the hop is.
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
        # Remains of a crash do not prevent the next start.
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


def _with_networks(index: int) -> dict[str, object]:
    return {
        "node": terminal_node(index),
        "send_rate_bps": NEAR.forward.rate_bps,
        "receive_rate_bps": NEAR.return_.rate_bps,
        "networks": [addresses.client_network(index), addresses.client_network6(index)],
    }


def _subtracted(pair: Pair[Testbed]) -> list[int]:
    paths = {path["name"]: path for path in pair.hub.status()["paths"]}
    return [
        paths[f"terminal-{terminal_node(index)}"]["subtracted_bps"]
        for index in range(len(pair.terminals))
    ]


def _wait_until_subtracted(pair: Pair[Testbed], index: int, least: int, most: int) -> None:
    pair.hub.process.wait_until(lambda: least <= _subtracted(pair)[index] < most)


@pytest.mark.parametrize("origin", _ORIGINS)
def test_a_hub_takes_plain_ip_from_the_rate_of_the_terminal_it_goes_to(
    start_pair: StartPair, origin: str
) -> None:
    hub = {
        "terminal": [_with_networks(0), _with_networks(1)],
        "edge": {"interception": {}},
    }
    # The terminals intercept nothing: the downloads are plain IP.
    pair = start_pair(options=Options(hub=hub), terminals=2)
    clients = [terminal.client for terminal in pair.testbed.terminals]
    with ThreadPoolExecutor(1) as pool:
        for plain, other in ((0, 1), (1, 0)):
            running = pool.submit(
                download, clients[plain], origin, 5_000_000, query="&rate_bps=8000000"
            )
            _wait_until_subtracted(pair, plain, 6_000_000, 12_000_000)
            assert _subtracted(pair)[other] < 500_000
            transfer = running.result(30)
            assert transfer.complete
            assert not _taken_in(transfer)
            _wait_until_subtracted(pair, plain, 0, 500_000)


@pytest.mark.parametrize("networks", [[], ["0.0.0.0/0", "::/0"]], ids=["none", "everywhere"])
def test_a_terminal_takes_the_plain_ip_that_its_clients_send_from_its_path(
    start_pair: StartPair, networks: list[str]
) -> None:
    path = {
        "name": "satellite",
        "neighbour": HUB_NODE,
        "remote": f"{addresses.HUB_SAT}:{TCPCL_PORT}",
        "send_rate_bps": NEAR.return_.rate_bps,
        "receive_rate_bps": NEAR.forward.rate_bps,
        "networks": networks,
    }
    pair = start_pair(options=Options(terminal={**_TRANSPARENT, "path": [path]}))
    pair.terminal.api.intercept(enabled=False)

    def subtracted() -> int:
        bps: int = pair.terminal.status()["paths"][0]["subtracted_bps"]
        return bps

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(upload, pair.client, addresses.ORIGIN, 30_000_000)
        pair.terminal.process.wait_until(lambda: subtracted() > 8_000_000)
        assert not _taken_in(running.result(30))
    pair.terminal.process.wait_until(lambda: subtracted() < 500_000)
    # In a download the terminal sends only ACKs, after a stall in bursts.
    query = "&rate_bps=20000000"
    assert download(pair.client, addresses.ORIGIN, 7_500_000, query=query).complete
    assert subtracted() < 8_000_000
