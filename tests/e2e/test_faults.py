"""Broken and hostile clients, peers and origins: those affected get an error, others go on."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator

import pytest

from tests.e2e.conftest import NEAR
from tests.testbed import addresses, ports
from tests.testbed.client.route import ProxyError, Route, receive_head
from tests.testbed.client.transfer import download, request
from tests.testbed.node import HTTP_PORT, SOCKS_PORT, TCPCL_PORT, Options, Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_AFTER_DIAL_PORT = 1081
_FOREIGN_PORT = 1082
_LAN = addresses.terminal_lan(0)
# For a process that fills the windows of a 50 Mbit/s hop; a leak of everything that is requested
# would be many times more.
_MEMORY_BYTES = 96_000_000


def _listener(name: str, protocol: str, port: int, **keys: object) -> dict[str, object]:
    return {
        "name": name,
        "protocol": protocol,
        "address": f"{_LAN}:{port}",
        "handshake_timeout_s": 1.0,
        **keys,
    }


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair[Testbed]]:
    listeners = [
        _listener("socks", "socks5", SOCKS_PORT),
        _listener("http", "http", HTTP_PORT),
        _listener("after-dial", "socks5", _AFTER_DIAL_PORT, answer="after-dial"),
        _listener("foreign", "socks5", _FOREIGN_PORT, client_networks=["192.0.2.0/24"]),
    ]
    with Testbed(NEAR) as testbed:
        yield Pair(testbed, Options(terminal={"edge": {"listener": listeners}}))


def _connected(pair: Pair[Testbed], port: int) -> socket.socket:
    return Route().connect(pair.client, _LAN, port, timeout_s=10)


def _ends(sock: socket.socket) -> bool:
    try:
        while sock.recv(65536):
            pass
    except ConnectionError:
        pass
    return True


def _works(pair: Pair[Testbed]) -> bool:
    return download(pair.client, addresses.ORIGIN, 100_000, route=pair.socks5()).complete


@pytest.mark.parametrize("port", [SOCKS_PORT, HTTP_PORT])
def test_a_client_that_says_nothing_is_sent_away(pair: Pair[Testbed], port: int) -> None:
    with _connected(pair, port) as sock:
        assert _works(pair)
        assert _ends(sock)


@pytest.mark.parametrize("port", [SOCKS_PORT, HTTP_PORT])
@pytest.mark.parametrize("garbage", [b"\x00" * 5000, b"\xff\x05\r\n\r\n", b"A" * 200_000])
def test_a_client_of_another_language_is_sent_away(
    pair: Pair[Testbed], port: int, garbage: bytes
) -> None:
    with _connected(pair, port) as sock:
        with contextlib.suppress(ConnectionError):
            sock.sendall(garbage)
        assert _ends(sock)
    assert _works(pair)


def test_an_http_request_that_makes_no_sense_is_answered_400(pair: Pair[Testbed]) -> None:
    with _connected(pair, HTTP_PORT) as sock:
        sock.sendall(b"this is no request\r\n\r\n")
        assert receive_head(sock).startswith(b"HTTP/1.1 400 ")


def test_a_client_of_a_network_that_is_not_allowed_gets_nothing(pair: Pair[Testbed]) -> None:
    route = Route("socks5", (_LAN, _FOREIGN_PORT))
    with pytest.raises((ConnectionError, ProxyError)):
        route.connect(pair.client, addresses.ORIGIN, ports.HTTP, timeout_s=10)
    assert _works(pair)


@pytest.mark.parametrize(
    ("host", "port", "status"),
    [
        (addresses.ORIGIN, ports.CLOSED, 502),
        (addresses.HUB_SAT, ports.HTTP, 403),
        ("127.0.0.1", ports.HTTP, 403),
    ],
)
def test_the_forward_proxy_says_why_it_cannot(
    pair: Pair[Testbed], host: str, port: int, status: int
) -> None:
    got, body = request(pair.client, host, "/", port=port, route=pair.http_forward())
    assert got == status
    assert body


@pytest.mark.parametrize(
    ("host", "port", "reply"),
    [
        (addresses.ORIGIN, ports.CLOSED, 5),
        (addresses.HUB_SAT, ports.HTTP, 2),
    ],
)
def test_an_answer_after_the_dial_is_the_true_one(
    pair: Pair[Testbed], host: str, port: int, reply: int
) -> None:
    route = Route("socks5", (_LAN, _AFTER_DIAL_PORT))
    with pytest.raises(ProxyError) as refused:
        route.connect(pair.client, host, port, timeout_s=20)
    assert refused.value.code == reply


def test_an_answer_after_the_dial_opens_what_can_be_opened(pair: Pair[Testbed]) -> None:
    route = Route("socks5", (_LAN, _AFTER_DIAL_PORT))
    assert download(pair.client, addresses.ORIGIN, 100_000, route=route).complete


def test_clients_that_stop_reading_neither_hurt_others_nor_fill_the_memory(
    pair: Pair[Testbed],
) -> None:
    idle = []
    try:
        for _ in range(5):
            sock = pair.socks5().connect(pair.client, addresses.ORIGIN, ports.HTTP, timeout_s=10)
            idle.append(sock)
            sock.sendall(b"GET /bytes/500000000 HTTP/1.1\r\nHost: o\r\n\r\n")
        for _ in range(3):
            other = download(
                pair.client, addresses.ORIGIN, 2_000_000, route=pair.socks5(), deadline_s=20
            )
            assert other.error is None
        for node in (pair.terminal, pair.hub):
            assert node.process.resident_bytes() < _MEMORY_BYTES
    finally:
        for sock in idle:
            sock.close()


@pytest.mark.parametrize("kind", ["socks5", "http_connect", "http_forward"])
def test_an_answer_that_breaks_off_never_looks_whole(pair: Pair[Testbed], kind: str) -> None:
    route: Route = getattr(pair, kind)()
    with route.connect(pair.client, addresses.ORIGIN, ports.HTTP, timeout_s=10) as sock:
        target = route.target(addresses.ORIGIN, ports.HTTP, "/reset/1000000?after=200000")
        sock.sendall(f"GET {target} HTTP/1.1\r\nHost: {addresses.ORIGIN}\r\n\r\n".encode())
        received = 0
        with pytest.raises(ConnectionResetError):
            while data := sock.recv(65536):
                received += len(data)
        assert received < 1_000_000
    assert _works(pair)


@pytest.mark.parametrize(
    "garbage", [b"GET / HTTP/1.1\r\n\r\n", b"dtn!\x04\x01\x07", b"dtn!\x03\x00"]
)
def test_a_peer_of_another_protocol_leaves_the_sessions_alone(
    pair: Pair[Testbed], garbage: bytes
) -> None:
    remote = (addresses.HUB_SAT, TCPCL_PORT)
    for _ in range(3):
        with pair.testbed.terminal.node.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
            sock.settimeout(20)
            sock.connect(remote)
            with contextlib.suppress(ConnectionError):
                sock.sendall(garbage + os.urandom(4096))
            assert _ends(sock)
    assert pair.hub.carries(1)
    assert _works(pair)
