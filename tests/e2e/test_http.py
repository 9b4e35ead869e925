"""By every listener, an HTTP client gets the same as from the origin itself.

The origin is go-httpbin, an independent server that echoes requests.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import pytest

from tests.e2e.http_kinds import KINDS, Line
from tests.testbed import addresses, ports
from tests.testbed.client.http_message import Response
from tests.testbed.client.route import DIRECT, Route
from tests.testbed.namespace import Namespace
from tests.testbed.node import HTTP_PORT, SOCKS_PORT, Options, Pair, transparent
from tests.testbed.profile import Link, symmetric
from tests.testbed.programs import installed
from tests.testbed.topology import Testbed, listens

pytestmark = pytest.mark.node

_PROFILE = symmetric("short", Link(rate_bps=100_000_000, delay_ms=5.0, queue_ms=500.0))
_HOST = f"{addresses.ORIGIN}:{ports.HTTPBIN}"

# Fields of a single connection (RFC 9110, section 7.6.1), of each proxy (7.6.3), or of the time.
_OF_THE_HOP = {
    "connection",
    "date",
    "keep-alive",
    "last-modified",
    "max-forwards",
    "proxy-connection",
    "te",
    "transfer-encoding",
    "upgrade",
    "via",
}
# Values that go-httpbin makes anew for each request.
_NEW_EACH_TIME = re.compile(
    r'dur=[0-9.]+|Expires=[^;]+|(?:(?:nonce|opaque)=|"timestamp":)\s?"?[0-9a-f]+"?'
)


# The exchanges that differ by some way, and why.
_DIFFERENT = {
    ("http_forward", "options-of-all"): "hyper tells no URI without a path from one of the path /"
}


@dataclass
class _Bed:
    pair: Pair[Testbed]
    plain: dict[str, list[Response]]


def _have(namespace: Namespace, kind: str, route: Route) -> list[Response]:
    with route.connect(namespace, addresses.ORIGIN, ports.HTTPBIN, timeout_s=10) as sock:

        def target(path: str) -> str:
            # RFC 9112, section 3.2.4: a proxy is asked for all of an origin without a path.
            path = "" if path == "*" and route.kind == "forward" else path
            return route.target(addresses.ORIGIN, ports.HTTPBIN, path)

        return list(KINDS[kind](Line(sock, target, _HOST)))


@pytest.fixture(scope="module")
def bed() -> Iterator[_Bed]:
    httpbin = installed("go-httpbin")
    if httpbin is None:
        pytest.skip("go-httpbin is not in .tools/bin: .ci/setup installs it where there is Go")
    lan = addresses.terminal_lan(0)
    edge = transparent("lan")
    proxies = [
        {"name": "socks", "protocol": "socks5", "address": f"{lan}:{SOCKS_PORT}"},
        {"name": "http", "protocol": "http", "address": f"{lan}:{HTTP_PORT}"},
    ]
    listeners = edge["listener"]
    assert isinstance(listeners, list)
    edge["listener"] = [*listeners, *proxies]
    with Testbed(_PROFILE) as testbed:
        argv = [str(httpbin), "-port", str(ports.HTTPBIN), "-log-level", "ERROR"]
        origin = testbed.start("httpbin", argv, testbed.origin)
        origin.wait_until(lambda: listens(testbed.origin, ports.HTTPBIN))
        pair = Pair(testbed, Options(terminal={"edge": edge}))
        pair.terminal.api.intercept(enabled=False)
        with ThreadPoolExecutor(8) as pool:
            had = pool.map(lambda kind: _have(pair.client, kind, DIRECT), KINDS)
            plain = dict(zip(KINDS, had, strict=True))
        pair.terminal.api.intercept(enabled=True)
        yield _Bed(pair, plain)


def _fields(fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
    left = [(name, _same(value)) for name, value in fields if name not in _OF_THE_HOP]
    return sorted(left)


def _same(text: str) -> str:
    return _NEW_EACH_TIME.sub("new", text)


def _echoed(document: object) -> object:
    """Return a document without the hop's fields and the client's address."""
    if not isinstance(document, dict):
        return document
    document = {name: value for name, value in document.items() if name != "origin"}
    if isinstance(headers := document.get("headers"), dict):
        kept = {name: headers[name] for name in headers if name.lower() not in _OF_THE_HOP}
        document["headers"] = kept
    return document


def _body(response: Response) -> object:
    body = response.body
    if coded := response.values("content-encoding"):
        body = zlib.decompress(body, 31 if coded == ["gzip"] else 15)
    try:
        text = body.decode()
    except UnicodeDecodeError:
        return body
    for documents in ([text], text.splitlines()):
        try:
            return [_echoed(json.loads(document)) for document in documents]
        except ValueError:
            continue
    return _same(text)


def _comparable(kind: str, responses: list[Response]) -> list[object]:
    compared: list[object] = []
    for response in responses:
        fields = _fields(response.fields)
        body = _body(response)
        if kind.startswith("cache"):
            # A hash of the time.
            fields = [field for field in fields if field[0] != "etag"]
        if not isinstance(body, (bytes, str)):
            # It echoes fields of the hop, or the client's address.
            fields = [field for field in fields if field[0] != "content-length"]
        trailers = _fields(response.trailers)
        compared.append(
            (response.status, response.reason, response.interim, fields, trailers, body)
        )
    return compared


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("way", ["socks5", "http_connect", "http_forward", "transparent"])
def test_every_kind_of_exchange_is_what_it_is_without_a_proxy(
    bed: _Bed, way: str, kind: str
) -> None:
    route = DIRECT if way == "transparent" else getattr(bed.pair, way)()
    through = _have(bed.pair.client, kind, route)
    got, plain = _comparable(kind, through), _comparable(kind, bed.plain[kind])
    if reason := _DIFFERENT.get((way, kind)):
        assert got != plain, f"no longer different: {reason}"
    else:
        assert got == plain


def test_all_ways_but_the_plain_one_lead_by_the_hub(bed: _Bed) -> None:
    def seen(response: Response) -> str:
        return str(json.loads(response.body)["origin"]).split(":")[0]

    assert seen(bed.plain["get"][0]) == addresses.client(0)
    for route in (bed.pair.socks5(), bed.pair.http_connect(), bed.pair.http_forward(), DIRECT):
        assert seen(_have(bed.pair.client, "get", route)[0]) == addresses.HUB_WAN


def test_the_exchanges_are_what_they_are_meant_to_be(bed: _Bed) -> None:
    def statuses(kind: str) -> list[int]:
        return [response.status for response in bed.plain[kind]]

    assert statuses("digest-auth") == [401, 200]
    assert statuses("websocket") == [101]
    assert statuses("range") == [206]
    assert statuses("kept") == [200, 200, 200, 200, 304, 200, 200]
    assert bed.plain["trailers"][0].trailers == [("x-sum", "9")]
    assert b"in chunks" in bed.plain["get-chunked"][0].body
    assert len(KINDS) >= 43
