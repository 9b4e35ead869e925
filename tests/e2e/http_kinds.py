"""Kinds of HTTP exchanges with go-httpbin, from the usual to the odd, each on one connection."""

from __future__ import annotations

import base64
import hashlib
import re
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tests.testbed.client.http_message import Reader, Request, Response

# The client's view of the way: the request target of a path, and the origin's authority.
Target = Callable[[str], str]
Talk = Callable[["Line"], Iterator[Response]]


@dataclass
class Line:
    """A connection for one kind of exchange."""

    sock: socket.socket
    target: Target
    host: str

    def __post_init__(self) -> None:
        self.reader = Reader(self.sock)

    def send(self, request: Request) -> None:
        """Send a request."""
        head = request.head(self.target(request.path), self.host)
        self.sock.sendall(head + request.body)

    def ask(self, request: Request) -> Response:
        """Send a request and read its response."""
        self.send(request)
        return self.reader.response(request.method)


def get(path: str, *fields: tuple[str, str]) -> Request:
    """Return a GET."""
    return Request("GET", path, fields)


def with_body(method: str, path: str, body: bytes, *fields: tuple[str, str]) -> Request:
    """Return a request with a body of known length."""
    return Request(method, path, [*fields, ("Content-Length", str(len(body)))], body)


def chunked(method: str, path: str, *chunks: bytes, trailers: str = "") -> Request:
    """Return a request with a body in chunks, and a trailer if there is one."""
    fields = [("Transfer-Encoding", "chunked"), ("Content-Type", "text/plain")]
    if trailers:
        fields.append(("Trailer", trailers.partition(":")[0]))
    data = b"".join(b"%x;ext=1\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return Request(method, path, fields, data + f"0\r\n{trailers}\r\n".encode())


def one(request: Request) -> Talk:
    """Return one exchange."""

    def talk(line: Line) -> Iterator[Response]:
        yield line.ask(request)

    return talk


def last(request: Request) -> Talk:
    """Return the exchange after which the origin ends the connection."""

    def talk(line: Line) -> Iterator[Response]:
        yield line.ask(request)
        assert line.reader.rest() == b""

    return talk


def kept(*requests: Request) -> Talk:
    """Return exchanges one after the other."""

    def talk(line: Line) -> Iterator[Response]:
        for request in requests:
            yield line.ask(request)

    return talk


def pipelined(*requests: Request) -> Talk:
    """Return requests that do not wait for the responses to those before them."""

    def talk(line: Line) -> Iterator[Response]:
        for request in requests:
            line.send(request)
        for request in requests:
            yield line.reader.response(request.method)

    return talk


def _expecting(line: Line) -> Iterator[Response]:
    body = b"only if it is wanted"
    expect = ("Expect", "100-continue")
    request = with_body("PUT", "/put", body, expect, ("Content-Type", "text/plain"))
    line.send(Request(request.method, request.path, request.fields))
    interim = line.reader.head()
    assert interim.status == 100
    line.sock.sendall(body)
    yield line.reader.response("PUT")


def _digest(line: Line) -> Iterator[Response]:
    path = "/digest-auth/auth/alice/secret/SHA-256"
    challenge = line.ask(get(path))
    yield challenge
    said = dict(re.findall(r'(\w+)="?([^",]+)"?', challenge.values("www-authenticate")[0]))

    def digest(*parts: str) -> str:
        return hashlib.sha256(":".join(parts).encode()).hexdigest()

    # RFC 7616, section 3.4.1. The URI is the origin's own, even by a proxy.
    secret, action = digest("alice", said["realm"], "secret"), digest("GET", path)
    response = digest(secret, said["nonce"], "00000001", "0a4f113b", "auth", action)
    credentials = (
        f'Digest username="alice", realm="{said["realm"]}", nonce="{said["nonce"]}", uri="{path}", '
        f'algorithm=SHA-256, qop=auth, nc=00000001, cnonce="0a4f113b", response="{response}", '
        f'opaque="{said["opaque"]}"'
    )
    yield line.ask(get(path, ("Authorization", credentials), ("Cookie", "fake=fake_value")))


def _websocket(line: Line) -> Iterator[Response]:
    key = base64.b64encode(bytes(range(16))).decode()
    response = line.ask(
        get(
            "/websocket/echo",
            ("Connection", "keep-alive, Upgrade"),
            ("Upgrade", "websocket"),
            ("Sec-WebSocket-Version", "13"),
            ("Sec-WebSocket-Key", key),
        )
    )
    # RFC 6455, section 5.2: a client's frames are masked, a server's are not.
    for message in (b"hello", b"x" * 70_000):
        length = len(message)
        size = struct.pack(">B", 0x80 | length) if length < 126 else struct.pack(">BQ", 255, length)
        mask = b"\x01\x02\x03\x04"
        masked = bytes(octet ^ mask[at % 4] for at, octet in enumerate(message))
        line.sock.sendall(b"\x81" + size + mask + masked)
        echoed = line.reader.exactly(2 if length < 126 else 10)
        assert echoed == b"\x81" + (
            bytes([length]) if length < 126 else struct.pack(">BQ", 127, length)
        )
        response.body += line.reader.exactly(length)
    # A close frame of status 1000, masked by zeros.
    line.sock.sendall(b"\x88\x82\0\0\0\0\x03\xe8")
    response.body += line.reader.rest()
    yield response


_FORM = ("Content-Type", "application/x-www-form-urlencoded")
_JSON = ("Content-Type", "application/json")
_TEXT = ("Content-Type", "text/plain")
# Any proxy may drop trailers for a client that does not accept them (RFC 9110, section 6.5.1).
_TE = (("TE", "trailers"), ("Connection", "TE"))
_MULTIPART = (
    b'--frontier\r\nContent-Disposition: form-data; name="a"\r\n\r\n1\r\n'
    b'--frontier\r\nContent-Disposition: form-data; name="f"; filename="f.bin"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\n\x00\x01\xff\r\n--frontier--\r\n"
)
_BASIC = base64.b64encode(b"alice:secret").decode()
_DATE = "Thu, 01 Jan 2026 00:00:00 GMT"

KINDS: dict[str, Talk] = {
    # Methods and bodies.
    "get": one(get("/get?a=1&b=2&a=3")),
    "get-head-fields": one(
        get("/headers", ("X-Two", "1"), ("x-two", "2"), ("X-Empty", ""), ("X-Latin", "caf\u00e9"))
    ),
    "get-with-body": one(with_body("GET", "/anything", b"a body", _TEXT)),
    "get-chunked": one(chunked("GET", "/anything", b"a body ", b"in chunks")),
    "head": one(Request("HEAD", "/head")),
    "head-of-length": one(Request("HEAD", "/bytes/1000?seed=1")),
    "post": one(with_body("POST", "/post", b"some text", _TEXT)),
    "post-nothing": one(with_body("POST", "/post", b"")),
    "post-json": one(with_body("POST", "/post", b'{"a": [1, 2, {"b": null}]}', _JSON)),
    "post-form": one(with_body("POST", "/post", b"a=1&b=%20&a=2", _FORM)),
    "post-multipart": one(
        with_body(
            "POST", "/post", _MULTIPART, ("Content-Type", "multipart/form-data; boundary=frontier")
        )
    ),
    "post-chunked": one(chunked("POST", "/post", b"a body ", b"in chunks")),
    "post-chunked-nothing": one(chunked("POST", "/post")),
    "post-large": one(with_body("POST", "/upload", bytes(1_000_000), _TEXT)),
    "put": one(with_body("PUT", "/put", b"\x00\x80\xff", ("Content-Type", "image/x-none"))),
    "patch": one(with_body("PATCH", "/patch", b"patched", _TEXT)),
    "delete": one(Request("DELETE", "/delete?a=1")),
    "delete-with-body": one(with_body("DELETE", "/delete", b"a=1", _FORM)),
    "options": one(Request("OPTIONS", "/get")),
    "options-of-all": one(Request("OPTIONS", "*")),
    "trace-max-forwards": one(Request("TRACE", "/anything", [("Max-Forwards", "5")])),
    "own-method": one(Request("PURGE", "/anything/own")),
    "method-not-allowed": one(with_body("POST", "/get", b"")),
    "expect-continue": _expecting,
    "request-trailers": one(chunked("POST", "/post", b"body", trailers="X-Sum: 7\r\n")),
    # Status codes.
    "no-content": one(get("/status/204")),
    "reset-content": one(get("/status/205")),
    "not-modified": one(get("/status/304")),
    "payment-required": one(get("/status/402")),
    "teapot": one(get("/status/418")),
    "unknown-status": one(get("/status/599")),
    "server-error": one(get("/unstable?failure_rate=1")),
    "not-found": one(get("/no/such/place")),
    # Redirects.
    "redirect": one(get("/redirect/2")),
    "redirect-absolute": one(get("/absolute-redirect/2")),
    "redirect-relative": one(get("/relative-redirect/2")),
    "redirect-to": one(get("/redirect-to?url=http%3A%2F%2Fexample.org%2F&status_code=307")),
    # Cookies.
    "cookies": one(get("/cookies", ("Cookie", "a=1; b=2"))),
    "cookies-set": one(get("/cookies/set?a=1&b=2")),
    "cookies-delete": one(get("/cookies/delete?a&b", ("Cookie", "a=1; b=2"))),
    # Codings and streams.
    "gzip": one(get("/gzip", ("Accept-Encoding", "gzip, br"))),
    "deflate": one(get("/deflate", ("Accept-Encoding", "deflate"))),
    "brotli": one(get("/brotli", ("Accept-Encoding", "br"))),
    "stream": one(get("/stream/5")),
    "stream-bytes": one(get("/stream-bytes/50000?seed=3&chunk_size=1000")),
    "bytes": one(get("/bytes/100000?seed=5")),
    "bytes-a-million": one(get("/bytes/1000000?seed=6")),
    "drip": one(get("/drip?duration=0.2s&numbytes=10&delay=0.1s")),
    "delay": one(get("/delay/0.2")),
    "sse": one(get("/sse?count=4&duration=0.2s&delay=0s", ("Accept", "text/event-stream"), *_TE)),
    "json-lines": one(get("/jsonl?count=3")),
    "trailers": one(get("/trailers?X-Sum=9", *_TE)),
    "trailers-none": one(get("/trailers", *_TE)),
    # Ranges, caches, conditions.
    "range": one(get("/range/1000", ("Range", "bytes=10-99"))),
    "range-end": one(get("/range/1000", ("Range", "bytes=-10"))),
    "range-impossible": one(get("/range/1000", ("Range", "bytes=5000-"))),
    "range-whole": one(get("/range/1000")),
    "etag": one(get("/etag/abc")),
    "etag-known": one(get("/etag/abc", ("If-None-Match", '"abc"'))),
    "etag-wrong": one(get("/etag/abc", ("If-Match", '"xyz"'))),
    "cache": one(get("/cache")),
    "cache-known": one(get("/cache", ("If-Modified-Since", _DATE))),
    "cache-control": one(get("/cache/60")),
    "response-headers": one(get("/response-headers?X-Two=1&X-Two=2&Content-Language=de")),
    # Information about the client.
    "basic-auth": kept(
        get("/basic-auth/alice/secret"),
        get("/basic-auth/alice/secret", ("Authorization", f"Basic {_BASIC}")),
    ),
    "basic-auth-hidden": one(get("/hidden-basic-auth/alice/secret")),
    "bearer": one(get("/bearer", ("Authorization", "Bearer token"))),
    "digest-auth": _digest,
    "user-agent": one(get("/user-agent", ("User-Agent", "one/1 (two; three)"))),
    # Documents and odd paths.
    "html": one(get("/html")),
    "xml": one(get("/xml")),
    "png": one(get("/image/png")),
    "image-by-accept": one(get("/image", ("Accept", "image/webp"))),
    "utf8": one(get("/encoding/utf8")),
    "base64": one(get("/base64/aGVsbG8")),
    "links": one(get("/links/3/1")),
    "robots": one(get("/robots.txt")),
    "escaped-path": one(get("/anything/%2Fa%20b;c=d/../e//f?x=%00&y=+&z=%E2%82%AC&?")),
    "long-query": one(get("/get?q=" + "x" * 6000)),
    "long-field": one(get("/headers", ("X-Long", "y" * 8000))),
    # Connections.
    "websocket": _websocket,
    "connection-names-host": one(get("/get", ("Connection", "Host"))),
    "connection-close": last(get("/get", ("Connection", "close"))),
    "http-1.0": last(Request("GET", "/stream-bytes/5000?seed=1", version="1.0")),
    "http-1.0-kept": kept(
        Request("GET", "/bytes/10?seed=1", [("Connection", "keep-alive")], version="1.0"),
        Request("GET", "/bytes/20?seed=1", [("Connection", "keep-alive")], version="1.0"),
    ),
    "kept": kept(
        get("/get?1"),
        with_body("POST", "/post", b"2", _TEXT),
        chunked("POST", "/post", b"3"),
        Request("HEAD", "/bytes/10"),
        get("/status/304"),
        get("/stream/2"),
        get("/get?7"),
    ),
    "pipelined": pipelined(
        get("/get?1"), with_body("POST", "/post", b"2", _TEXT), get("/stream/3"), get("/get?4")
    ),
}
