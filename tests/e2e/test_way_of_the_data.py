from __future__ import annotations

import json
import re

import pytest

from tests.e2e.conftest import NEAR, StartPair
from tests.testbed import addresses, ports
from tests.testbed.client.echo import echo_times
from tests.testbed.client.route import Route, receive_exactly
from tests.testbed.client.transfer import download, request, upload
from tests.testbed.loopback import Loopback
from tests.testbed.node import Node, Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node


@pytest.fixture(params=["socks5", "http_connect", "http_forward"])
def route(request: pytest.FixtureRequest, underpass_pair: Pair[Testbed]) -> Route:
    way: Route = getattr(underpass_pair, request.param)()
    return way


@pytest.mark.parametrize("origin", [addresses.ORIGIN, addresses.ORIGIN6])
def test_a_download_arrives_whole_by_every_proxy(
    underpass_pair: Pair[Testbed], route: Route, origin: str
) -> None:
    transfer = download(underpass_pair.client, origin, 3_000_000, route=route)
    assert transfer.error is None


def test_an_upload_arrives_whole_by_every_proxy(
    underpass_pair: Pair[Testbed], route: Route
) -> None:
    transfer = upload(underpass_pair.client, addresses.ORIGIN, 3_000_000, route=route)
    assert transfer.error is None


def test_the_first_byte_takes_one_round_trip_of_the_hop(
    underpass_pair: Pair[Testbed], route: Route
) -> None:
    times = [
        download(underpass_pair.client, addresses.ORIGIN, 1000, route=route).first_byte_s
        for _ in range(5)
    ]
    # A second round trip would show, however busy the machine is.
    assert min(time for time in times if time) < 2 * NEAR.rtt_s


def test_a_forwarded_request_says_via_whom_it_came(underpass_pair: Pair[Testbed]) -> None:
    status, body = request(
        underpass_pair.client,
        addresses.ORIGIN,
        "/request",
        route=underpass_pair.http_forward(),
    )
    assert status == 200
    assert any(name.lower() == "via" for name, _ in json.loads(body)["headers"])


def test_the_log_tells_of_connections_that_succeed(
    underpass_pair: Pair[Testbed], route: Route
) -> None:
    size = {"socks5": 54_321, "connect": 65_432, "forward": 76_543}[route.kind]

    def told(node: Node, what: str, moved: str) -> bool:
        lines = node.process.log_path.read_text().splitlines()
        ends = [line for line in lines if " INFO " in line and what in line and "seconds=" in line]
        counts = [int(found[1]) for line in ends if (found := re.search(rf"{moved}=(\d+)", line))]
        # The body, and also its head if the node does not tell them apart.
        return any(size <= count < size + 1000 for count in counts)

    assert download(underpass_pair.client, addresses.ORIGIN, size, route=route).complete
    terminal, hub = underpass_pair.terminal, underpass_pair.hub
    what = "request answered" if route.kind == "forward" else "connection closed"
    terminal.process.wait_until(lambda: told(terminal, what, "from_peer_bytes"))
    hub.process.wait_until(lambda: told(hub, "stream closed", "to_peer_bytes"))


def test_an_origin_that_resets_in_mid_body_resets_the_client(underpass_pair: Pair[Testbed]) -> None:
    route = underpass_pair.socks5()
    with route.connect(underpass_pair.client, addresses.ORIGIN, ports.HTTP, timeout_s=10) as sock:
        sock.sendall(b"GET /reset/1000000?after=5000 HTTP/1.1\r\nHost: o\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            while sock.recv(65536):
                pass
    assert download(underpass_pair.client, addresses.ORIGIN, 1000, route=route).complete


def test_every_one_of_thousands_of_small_exchanges_is_answered() -> None:
    # Without a hop, an answer may come just when its reader finds nothing.
    with Loopback() as bed:
        route = Pair(bed).socks5()
        for _ in range(3000):
            with route.connect(bed.hub, addresses.ORIGIN, ports.ECHO, timeout_s=10) as sock:
                sock.sendall(b"still here")
                assert receive_exactly(sock, 10) == b"still here"


def test_traffic_holds_through_a_blockage_and_loses_nothing(start_pair: StartPair) -> None:
    pair = start_pair()
    satlink, terminal = pair.testbed.satlink, pair.testbed.terminal
    with pair.socks5().connect(pair.client, addresses.ORIGIN, ports.ECHO, timeout_s=30) as sock:
        assert echo_times(sock, count=1, interval_s=0.01)
        satlink.block(terminal.name, for_s=3.0)
        held = echo_times(sock, count=5, interval_s=0.01)
        assert min(held) > 2.0
    blocked_download = download(pair.client, addresses.ORIGIN, 1_000_000, route=pair.http_forward())
    assert blocked_download.error is None
