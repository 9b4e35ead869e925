"""Names are resolved at the hub, and its resolver's answers reach the client."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.conftest import NEAR
from tests.testbed import addresses, ports
from tests.testbed.client.route import ProxyError, Route
from tests.testbed.client.transfer import download, request
from tests.testbed.node import HTTP_PORT, SOCKS_PORT, Options, Pair
from tests.testbed.origin.dns import SILENT
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_LAN = addresses.terminal_lan(0)
_AFTER_DIAL = {"socks5": 1081, "connect": 3129}
_RESOLVE_S = 2.0
_UNKNOWN = "nowhere.test"


def _listener(name: str, protocol: str, port: int, **keys: object) -> dict[str, object]:
    return {"name": name, "protocol": protocol, "address": f"{_LAN}:{port}", **keys}


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair[Testbed]]:
    listeners = [
        _listener("socks", "socks5", SOCKS_PORT),
        _listener("http", "http", HTTP_PORT),
        _listener("socks-after", "socks5", _AFTER_DIAL["socks5"], answer="after-dial"),
        _listener("http-after", "http", _AFTER_DIAL["connect"], answer="after-dial"),
    ]
    options = Options(
        terminal={"edge": {"listener": listeners}},
        hub={"edge": {"dial": {"connect_timeout_s": _RESOLVE_S}}},
    )
    with Testbed(NEAR) as testbed:
        yield Pair(testbed, options)


def _at_once(pair: Pair[Testbed]) -> list[Route]:
    return [pair.socks5(), pair.http_connect()]


@pytest.mark.parametrize("name", ["origin.test", "ipv4.origin.test", "ipv6.origin.test"])
def test_names_are_resolved_at_the_hub(pair: Pair[Testbed], name: str) -> None:
    for route in [*_at_once(pair), pair.http_forward()]:
        assert download(pair.client, name, 10_000, route=route).complete


@pytest.mark.parametrize(
    ("name", "expected", "reason"),
    [(_UNKNOWN, 502, b"does not resolve"), (f"a.{SILENT}", 504, b"no name server answered")],
)
def test_a_forwarded_request_is_answered_with_the_resolvers_word(
    pair: Pair[Testbed], name: str, expected: int, reason: bytes
) -> None:
    status, body = request(pair.client, name, "/", route=pair.http_forward())
    assert status == expected
    assert reason in body


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [
        ("socks5", _UNKNOWN, 0x04),
        ("socks5", f"b.{SILENT}", 0x06),
        ("connect", _UNKNOWN, 502),
        ("connect", f"b.{SILENT}", 504),
    ],
)
def test_after_the_dial_the_reply_is_the_true_one(
    pair: Pair[Testbed], kind: str, name: str, code: int
) -> None:
    route = Route("socks5" if kind == "socks5" else "connect", (_LAN, _AFTER_DIAL[kind]))
    with pytest.raises(ProxyError) as refusal:
        route.connect(pair.client, name, ports.HTTP, timeout_s=15)
    assert refusal.value.code == code


@pytest.mark.parametrize("name", [_UNKNOWN, f"c.{SILENT}"])
def test_answered_at_once_an_unknown_host_is_a_reset(pair: Pair[Testbed], name: str) -> None:
    for route in _at_once(pair):
        with (
            route.connect(pair.client, name, ports.HTTP, timeout_s=15) as sock,
            pytest.raises(ConnectionResetError),
        ):
            assert sock.recv(1) == b"never"
