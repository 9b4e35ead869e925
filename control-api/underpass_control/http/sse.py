"""A stream of server-sent events (HTML Standard, § 9.2) to one caller."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web

from underpass_control.events import frame

# A client that reads nothing for this long counts as gone.
_WRITE_WITHIN_S = 30.0
# The longest wait until the last event of a stream is sent: its token may have ended.
_CUT_WITHIN_S = 0.3


class EventResponse:
    """A continuing answer, bounded in its buffer and in how long it waits."""

    def __init__(self, request: web.Request, most_bytes: int) -> None:
        """Take the most that the connection may buffer here."""
        self._request = request
        self._most_bytes = most_bytes
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        self.response = web.StreamResponse(headers=headers)
        # Whether what has been written ends with the end of an event.
        self._whole = True

    async def open(self) -> None:
        """Send the head of the answer."""
        await self.response.prepare(self._request)
        if self._request.transport is not None:
            self._request.transport.set_write_buffer_limits(self._most_bytes)

    async def send(self, data: bytes) -> None:
        """Send whole events.

        Raises:
            ConnectionError, TimeoutError: The caller is gone, or reads nothing.
        """
        for start in range(0, len(data), self._most_bytes):
            # The data is in the connection's buffer at once; the wait is for the client's reading.
            self._whole = start + self._most_bytes >= len(data)
            async with asyncio.timeout(_WRITE_WITHIN_S):
                await self.response.write(data[start : start + self._most_bytes])

    async def cut(self, reason: str, *, resumable: bool = True) -> None:
        """Send the last event, which says why, and end the answer.

        If the stream is not resumable, the event has an empty id: the client forgets the last one.
        """
        if not self._whole:
            # The rest of an event is missing, so nothing after it could be read.
            self.abort()
            return
        last = frame("cut", {"reason": reason}, None if resumable else "")
        try:
            async with asyncio.timeout(_CUT_WITHIN_S):
                await self.response.write(last)
                with suppress(ConnectionError):
                    await self.response.write_eof()
        except TimeoutError:
            self.abort()

    def abort(self) -> None:
        """Close the connection without a last event."""
        if self._request.transport is not None:
            self._request.transport.abort()
