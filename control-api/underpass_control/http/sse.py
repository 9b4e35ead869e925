"""A stream of server-sent events (HTML Standard, § 9.2) as one caller is sent it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

from aiohttp import web

from underpass_control.events import frame

# A client that reads nothing for so long is taken to be gone.
_WRITE_WITHIN_S = 30.0
# The last event of a stream is not waited for longer: its token may have ended.
_CUT_WITHIN_S = 0.3


class EventResponse:
    """An answer that goes on: bounded in what it buffers and in how long it waits."""

    def __init__(self, request: web.Request, most_bytes: int) -> None:
        """Take how much the connection may buffer here."""
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
            ConnectionError, TimeoutError: The caller has gone, or reads nothing.
        """
        for start in range(0, len(data), self._most_bytes):
            # The data is in the connection's buffer at once; the wait is for the client to read it.
            self._whole = start + self._most_bytes >= len(data)
            async with asyncio.timeout(_WRITE_WITHIN_S):
                await self.response.write(data[start : start + self._most_bytes])

    async def cut(self, reason: str, *, resumable: bool = True) -> None:
        """Send the last event, which says why, and end the answer.

        Where nothing is resumable, the event has an empty id: the client forgets the last one.
        """
        if not self._whole:
            # The rest of an event is missing: nothing that follows could be read.
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
        """Close the connection: there is nobody to tell."""
        if self._request.transport is not None:
            self._request.transport.abort()
