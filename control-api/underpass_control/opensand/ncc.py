"""The connection to an NCC, which is kept open."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Sequence
from contextlib import suppress
from urllib.parse import urlsplit

import structlog

from underpass_control.clock import Clock
from underpass_control.opensand.allocation import Allocation
from underpass_control.opensand.request import LINES_AT_ONCE, Request

DEFAULT_PORT = 4998
_LOG = structlog.get_logger()
_CONNECT_WITHIN_S = 5.0
_AGAIN_S = 1.0
# Between two pieces, so that the NCC reads them one by one.
_PAUSE_S = 0.01


class NccAddressError(ValueError):
    """The text is no `opensand://HOST[:PORT]`."""


def ncc_address(url: str) -> tuple[str, int]:
    """Return host and port of an NCC."""
    try:
        parts = urlsplit(url)
        port = parts.port or DEFAULT_PORT
    except ValueError as error:
        raise NccAddressError(f"{url}: {error}") from error
    if parts.scheme != "opensand" or not parts.hostname or parts.path.strip("/") or parts.query:
        raise NccAddressError(f"{url!r} is not opensand://HOST or opensand://HOST:PORT")
    return parts.hostname, port


class Ncc:
    """Sends an allocation's requests to an NCC when due, and reconnects whenever it is lost.

    An NCC takes one connection at a time: only the holder of the beam's lease may run this.
    """

    def __init__(
        self,
        url: str,
        allocation: Allocation,
        told: Callable[[list[Request]], None],
        clock: Clock,
        may_tell: Callable[[], bool],
        connected: Callable[[bool], None] = lambda _: None,
    ) -> None:
        """Take the functions to call with sent requests and with the state of the connection.

        `clock` is the plans' clock; `may_tell` says whether the lease is still held.
        """
        self._host, self._port = ncc_address(url)
        self._allocation = allocation
        self._told = told
        self._clock = clock
        self._may_tell = may_tell
        self._connected = connected
        self._news = asyncio.Event()

    def changed(self) -> None:
        """Look at the allocation again: it follows another plan."""
        self._news.set()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            try:
                async with asyncio.timeout(_CONNECT_WITHIN_S):
                    reader, writer = await asyncio.open_connection(self._host, self._port)
            except (OSError, TimeoutError) as error:
                _LOG.warning("the NCC is away", host=self._host, port=self._port, error=str(error))
                await asyncio.sleep(_AGAIN_S)
                continue
            _LOG.info("the NCC follows", host=self._host, port=self._port)
            self._connected(True)
            try:
                await self._tell(reader, writer)
            except OSError as error:
                _LOG.warning("the NCC is lost", host=self._host, port=self._port, error=str(error))
            finally:
                self._connected(False)
                writer.close()
            # It closes a connection whose requests it cannot read: do not retry at once.
            await asyncio.sleep(_AGAIN_S)

    async def _tell(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        bare = writer.get_extra_info("socket")
        bare.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        bare.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._allocation.renew()
        # The NCC sends nothing; reading only detects that it has closed.
        closed = asyncio.ensure_future(_until_closed(reader))
        try:
            while not closed.done():
                self._news.clear()
                if not self._may_tell():
                    # After a pause of this process another may plan the beam: check that first.
                    await asyncio.sleep(_AGAIN_S)
                    continue
                now_ms = self._clock.now_ms()
                requests = self._allocation.poll(now_ms)
                if requests:
                    await _send(writer, requests)
                    self._told(requests)
                wait_s = (self._allocation.next_ms(now_ms) - self._clock.now_ms()) / 1000
                news = asyncio.ensure_future(self._news.wait())
                try:
                    await asyncio.wait(
                        {closed, news}, timeout=max(wait_s, 0), return_when="FIRST_COMPLETED"
                    )
                finally:
                    news.cancel()
        finally:
            closed.cancel()
        raise ConnectionError("it has closed the connection")


async def _send(writer: asyncio.StreamWriter, requests: Sequence[Request]) -> None:
    for start in range(0, len(requests), LINES_AT_ONCE):
        piece = requests[start : start + LINES_AT_ONCE]
        writer.write(b"".join(one.line() for one in piece))
        await writer.drain()
        await asyncio.sleep(_PAUSE_S)


async def _until_closed(reader: asyncio.StreamReader) -> None:
    with suppress(OSError):
        while await reader.read(1024):
            pass
