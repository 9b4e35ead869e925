"""`python -m tests.testbed.origin.http2 PORT`: content by HTTP/2 over TLS 1.3 (RFC 9113).

A request is `GET /bytes/SIZE?seed=SEED`, for any name. The certificate is self-signed, made at the
start.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import ssl
import sys
import tempfile
import urllib.parse
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import ConnectionTerminated, RequestReceived, StreamReset, WindowUpdated
from h2.exceptions import ProtocolError

from tests.testbed.content import pieces

_READ_BYTES = 64 << 10
_VALID = datetime.timedelta(days=1)


class _Connection:
    """One client's connection; it sends answers concurrently."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._http = H2Connection(H2Configuration(client_side=False, header_encoding=None))
        # Set and replaced whenever a client's window has grown.
        self._window = asyncio.Event()
        self._answers: dict[int, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Answer until the client ends."""
        self._http.initiate_connection()
        self._flush()
        try:
            while data := await self._reader.read(_READ_BYTES):
                for event in self._http.receive_data(data):
                    if isinstance(event, RequestReceived):
                        answer = asyncio.create_task(self._answer(event))
                        self._answers[event.stream_id] = answer
                    elif isinstance(event, StreamReset):
                        self._end(event.stream_id)
                    elif isinstance(event, WindowUpdated):
                        self._window.set()
                        self._window = asyncio.Event()
                    elif isinstance(event, ConnectionTerminated):
                        return
                self._flush()
        finally:
            for stream in list(self._answers):
                self._end(stream)

    async def _answer(self, request: RequestReceived) -> None:
        headers = dict(request.headers)
        target = urllib.parse.urlsplit(headers[b":path"].decode())
        query = dict(urllib.parse.parse_qsl(target.query))
        kind, _, size = target.path.strip("/").partition("/")
        if kind != "bytes" or not size.isascii() or not size.isdigit():
            self._http.send_headers(request.stream_id, [(":status", "404")], end_stream=True)
            return self._flush()
        head = [(":status", "200"), ("content-length", size)]
        self._http.send_headers(request.stream_id, head)
        for piece in pieces(int(query.get("seed", 1)), int(size)):
            await self._send(request.stream_id, memoryview(piece))
        self._http.end_stream(request.stream_id)
        self._flush()
        del self._answers[request.stream_id]
        return None

    async def _send(self, stream: int, view: memoryview) -> None:
        while view:
            window = self._window
            room = min(
                self._http.local_flow_control_window(stream), self._http.max_outbound_frame_size
            )
            if room <= 0:
                await window.wait()
                continue
            self._http.send_data(stream, bytes(view[:room]))
            view = view[room:]
            self._flush()
            await self._writer.drain()

    def _end(self, stream: int) -> None:
        answer = self._answers.pop(stream, None)
        if answer:
            answer.cancel()

    def _flush(self) -> None:
        self._writer.write(self._http.data_to_send())


async def serve(port: int) -> asyncio.Server:
    """Listen on a port of every local IPv4 address."""

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, ProtocolError):
            await _Connection(reader, writer).run()
        writer.close()

    return await asyncio.start_server(
        connected,
        "0.0.0.0",  # noqa: S104 - its own namespace
        port,
        ssl=_context(),
        backlog=4096,
    )


def _context() -> ssl.SSLContext:
    """Return the TLS context of an origin with any name."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "origin.test")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - _VALID)
        .not_valid_after(now + _VALID)
        .sign(key, hashes.SHA256())
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.set_alpn_protocols(["h2"])
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "origin.pem"
        file.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
            + made.public_bytes(serialization.Encoding.PEM)
        )
        context.load_cert_chain(file)
    return context


async def _main(port: int) -> None:
    server = await serve(port)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_main(int(sys.argv[1])))
