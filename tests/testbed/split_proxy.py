"""A split proxy: relays each TCP connection by a new one of its own, in plain TCP or MPTCP.

`python -m tests.testbed.split_proxy LISTEN_PORT HOST PORT [--mptcp-in] [--mptcp-out]`
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import errno
import os
import socket

_CHUNK_BYTES = 64 << 10
_MPTCP = getattr(socket, "IPPROTO_MPTCP", 262)
_BACKLOG = 1024


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await reader.read(_CHUNK_BYTES):
            writer.write(data)
            await writer.drain()
        if writer.can_write_eof():
            writer.write_eof()


async def _connect(sock: socket.socket, far: tuple[str, int]) -> None:
    """Connect; asyncio's own `sock_connect` cannot resolve an address for MPTCP."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    error = sock.connect_ex(far)
    if error == errno.EINPROGRESS:
        loop.add_writer(sock, done.set)
        try:
            await done.wait()
        finally:
            loop.remove_writer(sock)
        error = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    if error:
        raise OSError(error, os.strerror(error))


async def _serve(listen_port: int, far: tuple[str, int], *, mptcp: tuple[bool, bool]) -> None:
    """Relay every connection at a port to `far`; `mptcp` is for incoming and outgoing ones."""

    async def connected(near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM, _MPTCP if mptcp[1] else 0)
        sock.setblocking(False)
        try:
            await _connect(sock, far)
            far_in, far_out = await asyncio.open_connection(sock=sock)
        except OSError:
            sock.close()
            near_out.transport.abort()
            return
        try:
            await asyncio.gather(_copy(near_in, far_out), _copy(far_in, near_out))
        finally:
            far_out.close()
            near_out.close()

    listening = socket.socket(socket.AF_INET, socket.SOCK_STREAM, _MPTCP if mptcp[0] else 0)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listening.bind(("0.0.0.0", listen_port))  # noqa: S104 - in a namespace of the test bed
    listening.listen(_BACKLOG)
    server = await asyncio.start_server(connected, sock=listening, backlog=_BACKLOG)
    await server.serve_forever()


def main() -> None:
    """Serve until the end of the process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("listen_port", type=int)
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--mptcp-in", action="store_true")
    parser.add_argument("--mptcp-out", action="store_true")
    given = parser.parse_args()
    mptcp = (given.mptcp_in, given.mptcp_out)
    asyncio.run(_serve(given.listen_port, (given.host, given.port), mptcp=mptcp))


if __name__ == "__main__":
    main()
