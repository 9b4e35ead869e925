"""Where the terminal's positions come from: a gpsd, or the node's local API."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator

import structlog

from dama.prediction import Fix, FixError
from underpass_control.announcing import gpsd
from underpass_control.client import Client, LostError

_LOG = structlog.get_logger()
_EVERY_S = 1.0
_AGAIN_S = 2.0
# gpsd repeats no fix, but sends something every few seconds even without one.
_QUIET_S = 15.0


async def _line(reader: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(_QUIET_S):
        return await reader.readline()


async def from_gpsd(host: str, port: int) -> AsyncIterator[Fix]:
    """Yield a gpsd's fixes, connecting again whenever it is lost."""
    while True:
        try:
            reader, writer = await asyncio.open_connection(host, port, limit=gpsd.MOST_LINE)
            try:
                writer.write(gpsd.WATCH)
                while line := await _line(reader):
                    fix = gpsd.read_report(line, now_ms())
                    if fix is not None:
                        yield fix
            finally:
                writer.close()
            _LOG.warning("gpsd has closed the connection", host=host, port=port)
        except (OSError, TimeoutError, ValueError) as error:
            # A line beyond the limit raises ValueError.
            _LOG.warning("gpsd is away", host=host, port=port, error=str(error) or "silent")
        await asyncio.sleep(_AGAIN_S)


async def from_node(client: Client) -> AsyncIterator[Fix]:
    """Yield the fixes of a node's local API, by the node's time where it has one.

    Raises:
        client.RefusedError: The node has no receiver.
    """
    last: object = None
    while True:
        try:
            told = (await client.ask("GET", "/v1/position"))["fix"]
        except LostError as error:
            _LOG.warning("the node is away", error=str(error))
            told = None
        if told is not None:
            seen = told.get("node_time_ms"), told.get("gnss_time_ms")
            fix = _fix(told)
            if fix is not None and seen != last:
                yield fix
            last = seen
        await asyncio.sleep(_EVERY_S)


def _fix(told: dict[str, float]) -> Fix | None:
    time_ms = told.get("node_time_ms")
    if time_ms is None:
        time_ms = now_ms() - round(1000 * told["age_s"])
    optional = (told.get(name) for name in ("speed_mps", "heading_deg", "accuracy_m"))
    try:
        return Fix(int(time_ms), told["longitude"], told["latitude"], *optional)
    except FixError as error:
        _LOG.warning("the node tells an impossible position", error=str(error))
        return None


def now_ms() -> int:
    """Return the time in ms since the Unix epoch."""
    return time.time_ns() // 1_000_000
