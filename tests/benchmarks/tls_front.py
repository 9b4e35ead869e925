"""`python -m tests.benchmarks.tls_front CERTIFICATE KEY PORT TO`: TLS 1.3 before a service.

Stands in for the control service's reverse proxy, without cache and compression.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import sys


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while part := await reader.read(1 << 16):
            writer.write(part)
            await writer.drain()
    writer.close()


async def serve(certificate: str, key: str, port: int, to: int) -> None:
    """Pass connections on until the process ends."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.load_cert_chain(certificate, key)

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(_pass_on(reader, far_writer), _pass_on(far_reader, writer))

    server = await asyncio.start_server(connected, "0.0.0.0", port, ssl=context)  # noqa: S104
    await server.serve_forever()


if __name__ == "__main__":
    _certificate, _key, _port, _to = sys.argv[1:]
    asyncio.run(serve(_certificate, _key, int(_port), int(_to)))
