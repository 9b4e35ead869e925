"""The HTTP/1.1 origin: content by path, uploads counted and hashed, faults on request."""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import socket
import time
import urllib.parse
from dataclasses import dataclass
from typing import BinaryIO

from tests.testbed.client.route import reset_when_closed
from tests.testbed.content import BLOCK_BYTES, block_body, block_header
from tests.testbed.origin.proxy_protocol import read_source
from tests.testbed.origin.receipts import Receipts, Receiving

_HEAD_LIMIT = 64 << 10
_TIMED_BYTES = 64 << 10
_PACED_BYTES = 16 << 10


@dataclass(frozen=True)
class Request:
    """The head of a request, and the source address, real or by the PROXY header."""

    method: str
    path: str
    query: dict[str, str]
    headers: list[tuple[str, str]]
    peer: str

    def header(self, name: str) -> str | None:
        """Return the first value of a header, by its lower-case name."""
        return next((value for key, value in self.headers if key.lower() == name), None)

    def number(self, name: str, default: int) -> int:
        """Return an integer from the query."""
        return int(self.query.get(name, default))


class _Reader(asyncio.StreamReader):
    """Delivers all bytes that came before a reset, as the kernel does; asyncio's own drops them."""

    broken: Exception | None = None

    def set_exception(self, exc: Exception) -> None:
        """Treat the error as an end, and report its reason after the bytes."""
        self.broken = exc
        self.feed_eof()


class HttpOrigin:
    """Answers on one or more ports; `proxy_protocol` ports expect a PROXY v2 header first."""

    def __init__(self) -> None:
        self._files: dict[int, BinaryIO] = {}
        self._receipts = Receipts()
        # Connections with an incoming request, and the name in its query.
        self._arriving: dict[asyncio.StreamWriter, str | None] = {}

    async def serve(self, port: int, *, proxy_protocol: bool = False) -> asyncio.Server:
        """Listen on a port of every local address, IPv4 and IPv6."""

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert isinstance(reader, _Reader)
            try:
                await self._connection(reader, writer, proxy_protocol=proxy_protocol)
            except (ConnectionError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
                pass
            finally:
                writer.close()

        def protocol() -> asyncio.StreamReaderProtocol:
            return asyncio.StreamReaderProtocol(_Reader(limit=_HEAD_LIMIT), connected)

        return await asyncio.get_running_loop().create_server(
            protocol,
            port=port,
            host=["0.0.0.0", "::"],  # noqa: S104 - its own namespace
            backlog=4096,
        )

    async def _connection(
        self,
        reader: _Reader,
        writer: asyncio.StreamWriter,
        *,
        proxy_protocol: bool,
    ) -> None:
        peer = str(writer.get_extra_info("peername")[0])
        if proxy_protocol:
            peer = await read_source(reader)
        while head := await _read_head(reader):
            request = _parse_head(head, peer)
            await self._answer(request, reader, writer)
            await writer.drain()
            if (request.header("connection") or "").lower() == "close":
                return

    async def _answer(
        self, request: Request, reader: _Reader, writer: asyncio.StreamWriter
    ) -> None:
        parts = request.path.strip("/").split("/")
        kind, argument = parts[0], parts[1] if len(parts) > 1 else ""
        started = time.monotonic()
        if kind == "early":
            # Answer before the request's body has come: some servers refuse uploads like this.
            _send_json(writer, {"early": True}, status=413, close=True)
            return
        if request.header("expect") == "100-continue":
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        self._arriving[writer] = request.query.get("name")
        try:
            size, digest = await _read_body(request, reader, self._receiving(request))
        finally:
            del self._arriving[writer]
        if kind == "bytes":
            await self._send_content(request, int(argument), writer)
        elif kind == "reset":
            await self._send_then_reset(request, int(argument), writer)
        elif kind == "sink":
            _send_json(
                writer, {"bytes": size, "sha256": digest, "seconds": time.monotonic() - started}
            )
        elif kind == "request":
            _send_json(
                writer,
                {
                    "method": request.method,
                    "path": request.path,
                    "headers": request.headers,
                    "peer": request.peer,
                    "bytes": size,
                    "sha256": digest,
                },
            )
        elif kind == "receipts":
            _send_json(writer, self._receipts.document(argument))
        elif kind == "break":
            # The client has given up this upload: its rest is not needed.
            broken = [other for other, name in self._arriving.items() if name == argument]
            for other in broken:
                _reset(other)
            _send_json(writer, {"broken": len(broken)})
        elif kind == "status":
            _send_json(writer, {"status": int(argument)}, status=int(argument))
        elif kind == "":
            _send_text(writer, "Underpass: this page came over the satellite hop.\n")
        else:
            _send_json(writer, {"error": f"no such path: {request.path}"}, status=404)

    def _receiving(self, request: Request) -> Receiving | None:
        """Keep a receipt of a request with a `name`, whose body is the `seed`'s content.

        With `arrivals=1`, the receipt also has the times of the bytes.
        """
        name = request.query.get("name")
        if name is None:
            return None
        announced = int(request.header("content-length") or 0)
        return self._receipts.begin(
            name,
            request.number("seed", 1),
            announced,
            with_arrivals=request.number("arrivals", 0) > 0,
        )

    async def _send_content(
        self, request: Request, size: int, writer: asyncio.StreamWriter
    ) -> None:
        """Send `size` bytes: with their length, or `chunked=1`; at most at `rate_bps`, if given.

        At a rate, it sends ten pieces a second or fewer, or pieces of `piece_bytes`. With
        `send_timeout_s`, a client that takes nothing for so long is disconnected.
        """
        seed, chunked = request.number("seed", 1), request.number("chunked", 0)
        rate_bps = request.number("rate_bps", 0)
        # Ten pieces a second, or fewer: a thousand slow downloads must not keep a core busy.
        paced_step = request.number("piece_bytes", max(rate_bps // 80, _PACED_BYTES))
        send_timeout_s = request.number("send_timeout_s", 0) or None
        how = b"Transfer-Encoding: chunked" if chunked else b"Content-Length: %d" % size
        head = b"HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\n%s\r\n\r\n" % how
        _cork(writer, on=True)
        writer.write(head)
        if request.method == "HEAD":
            _cork(writer, on=False)
            return
        loop, step = asyncio.get_running_loop(), paced_step if rate_bps else BLOCK_BYTES
        started, offset = loop.time(), 0
        while offset < size:
            count = min(size - offset, step, BLOCK_BYTES - offset % BLOCK_BYTES)
            if send_timeout_s:
                # So small that a piece waits for the socket only once, like a server's write.
                count = min(count, _TIMED_BYTES)
            if chunked:
                writer.write(b"%x\r\n" % count)
            try:
                async with asyncio.timeout(send_timeout_s):
                    await self._send_piece(seed, offset, count, writer)
            except TimeoutError as error:
                writer.transport.abort()
                raise ConnectionResetError from error
            if chunked:
                writer.write(b"\r\n")
            offset += count
            if rate_bps:
                _cork(writer, on=False)
                await asyncio.sleep(started + offset * 8 / rate_bps - loop.time())
        if chunked:
            writer.write(b"0\r\n\r\n")
        await writer.drain()
        _cork(writer, on=False)

    async def _send_piece(
        self, seed: int, offset: int, count: int, writer: asyncio.StreamWriter
    ) -> None:
        """Send bytes within one block by `sendfile`, so that this process does not copy them."""
        index, at = divmod(offset, BLOCK_BYTES)
        header = block_header(index)[at : at + count]
        if header:
            writer.write(header)
        rest = count - len(header)
        if rest:
            loop = asyncio.get_running_loop()
            await loop.sendfile(writer.transport, self._file(seed), at + len(header), rest)

    async def _send_then_reset(
        self, request: Request, size: int, writer: asyncio.StreamWriter
    ) -> None:
        """Announce `size` bytes, send `after` of them, and reset the connection."""
        seed, after = request.number("seed", 1), request.number("after", 0)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)
        offset = 0
        while offset < after:
            count = min(after - offset, BLOCK_BYTES - offset % BLOCK_BYTES)
            await self._send_piece(seed, offset, count, writer)
            offset += count
        await writer.drain()
        _reset(writer)
        raise ConnectionResetError

    def _file(self, seed: int) -> BinaryIO:
        if seed not in self._files:
            file = os.fdopen(os.memfd_create(f"content-{seed}"), "w+b")
            file.write(block_body(seed))
            file.flush()
            self._files[seed] = file
        return self._files[seed]


async def _read_head(reader: asyncio.StreamReader) -> bytes | None:
    try:
        return await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None


def _parse_head(head: bytes, peer: str) -> Request:
    first, *rest = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    url = urllib.parse.urlsplit(target)
    headers = [
        (name.strip(), value.strip())
        for name, _, value in (line.partition(":") for line in rest if line)
    ]
    return Request(method, url.path, dict(urllib.parse.parse_qsl(url.query)), headers, peer)


async def _read_body(
    request: Request, reader: _Reader, receiving: Receiving | None
) -> tuple[int, str]:
    """Read the body, return its length and SHA-256; `receiving` gets all bytes."""
    digest, size = hashlib.sha256(), 0

    async def take(count: int) -> None:
        nonlocal size
        while count:
            data = await reader.read(min(count, 1 << 20))
            if not data:
                if receiving:
                    receiving.ends("reset" if reader.broken else "end")
                raise asyncio.IncompleteReadError(b"", count)
            digest.update(data)
            if receiving:
                receiving.feed(data)
            size += len(data)
            count -= len(data)

    if (request.header("transfer-encoding") or "").lower() == "chunked":
        while count := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
            await take(count)
            await reader.readexactly(2)
        while await reader.readuntil(b"\r\n") != b"\r\n":
            pass
    else:
        await take(int(request.header("content-length") or 0))
    if receiving:
        receiving.ends("whole")
    return size, digest.hexdigest()


def _reset(writer: asyncio.StreamWriter) -> None:
    reset_when_closed(writer.get_extra_info("socket"))
    writer.transport.abort()


def _send_json(
    writer: asyncio.StreamWriter, value: object, *, status: int = 200, close: bool = False
) -> None:
    body = json.dumps(value).encode()
    extra = b"Connection: close\r\n" if close else b""
    writer.write(
        b"HTTP/1.1 %d Status\r\nContent-Type: application/json\r\n%sContent-Length: %d\r\n\r\n%s"
        % (status, extra, len(body), body)
    )


def _send_text(writer: asyncio.StreamWriter, text: str) -> None:
    body = text.encode()
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%s"
        % (len(body), body)
    )


def _cork(writer: asyncio.StreamWriter, *, on: bool) -> None:
    sock: socket.socket = writer.get_extra_info("socket")
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CORK, int(on))
