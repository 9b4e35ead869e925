"""Plain TCP origins: echo, a reader that is slow or never reads, and a port that resets."""

from __future__ import annotations

import asyncio
import socket

from tests.testbed.client.route import reset_when_closed


class Echo(asyncio.Protocol):
    """Sends back all bytes; stops reading while its peer does not read."""

    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Send the bytes back at once."""
        self._transport.write(data)

    def eof_received(self) -> bool:
        """Let the transport send its remaining bytes, then the end."""
        return False

    def pause_writing(self) -> None:
        """Stop reading while the peer does not."""
        self._transport.pause_reading()

    def resume_writing(self) -> None:
        """Read again."""
        self._transport.resume_reading()


class Stalled(asyncio.Protocol):
    """Accepts a connection and never reads from it."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Stop reading before the first byte."""
        assert isinstance(transport, asyncio.Transport)
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        transport.pause_reading()


class Resetting(asyncio.Protocol):
    """Resets every connection at its first byte."""

    _transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:  # noqa: ARG002 - the protocol's signature
        """Reset instead of answering."""
        reset_when_closed(self._transport.get_extra_info("socket"))
        self._transport.abort()
