"""Sends answers within bounds, so that a client that does not read occupies no memory or place.

aiohttp puts a whole answer into the connection's buffer, and waits for ever until it is read.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from contextlib import suppress
from typing import TypeVar

import structlog
from aiohttp import hdrs, web
from aiohttp.abc import AbstractStreamWriter

from underpass_control.http.problem import Handler

_LOG = structlog.get_logger()
T = TypeVar("T")
# An answer of at most this size goes into the connection's buffers at once.
_AT_ONCE = 1 << 16
# The time that a client has to read an answer; a larger one gets more. The client may be on board:
# behind a blockage of a minute or two, and at half of the least rate of a terminal.
_WITHIN_S = 120.0
_LEAST_BYTES_PER_S = 4_096.0
# The largest files served here are below 2 MB.
_FILE_WITHIN_S = 600.0


def limit_s(size: int) -> float:
    """Return how long a client may take to read this many bytes."""
    return _WITHIN_S + size / _LEAST_BYTES_PER_S


async def _within(request: web.BaseRequest, within_s: float, going_out: Awaitable[T]) -> T | None:
    """Wait until an answer is sent; a client that has not read it by then is cut off."""
    try:
        async with asyncio.timeout(within_s):
            return await going_out
    except TimeoutError:
        _LOG.info("an answer is not read", path=request.path, remote=request.remote)
        if request.transport is not None:
            request.transport.abort()
        return None


class File(web.FileResponse):
    """A file; a client that is too slow is cut off."""

    async def prepare(self, request: web.BaseRequest) -> AbstractStreamWriter | None:
        """Send it."""
        return await _within(request, _FILE_WITHIN_S, super().prepare(request))


@web.middleware
async def sent(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Send a large answer here; a client that is too slow is cut off."""
    response = await handler(request)
    if response.prepared or request.method == hdrs.METH_HEAD:
        # A stream, which has its own bounds; or an empty answer.
        return response
    body = response.body if isinstance(response, web.Response) else None
    if not isinstance(body, bytes) or len(body) <= _AT_ONCE:
        return response
    out = web.StreamResponse(status=response.status, headers=response.headers)
    out.content_length = len(body)
    # A client that leaves meanwhile is no error; aiohttp would log a traceback for each.
    with suppress(ConnectionError):
        await _within(request, limit_s(len(body)), _write(out, request, body))
    return out


async def _write(out: web.StreamResponse, request: web.Request, body: bytes) -> None:
    await out.prepare(request)
    for start in range(0, len(body), _AT_ONCE):
        await out.write(body[start : start + _AT_ONCE])
    await out.write_eof()
