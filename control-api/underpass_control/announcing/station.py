"""On board: fixes in, announcements to the node."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import structlog

from dama.prediction import Announcement, Fix, ObstructionMap
from dama.prediction.geojson import GeoJsonError, from_geojson
from underpass_control.announcing.announcer import Announcer
from underpass_control.announcing.positions import now_ms
from underpass_control.client import Client, LostError, RefusedError
from underpass_control.instants import moment_of, rfc3339

_LOG = structlog.get_logger()
_EVERY_S = 1.0
_MAP_EVERY_S = 3_600.0
_MAP_AGAIN_S = 10.0

Fetch = Callable[[], Awaitable[ObstructionMap]]


async def announce(
    announcer: Announcer, fixes: AsyncIterator[Fix], node: Client, fetch: Fetch | None
) -> None:
    """Announce until cancelled; the map is fetched again each hour, if `fetch` is given.

    Raises:
        client.RefusedError: The node tells no position.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(_feed(announcer, fixes))
        group.create_task(_tell(announcer, node))
        if fetch is not None:
            group.create_task(_renew_map(announcer, fetch))


async def map_of_control(client: Client) -> ObstructionMap:
    """Return the map of a control service.

    Raises:
        client.LostError: It does not answer.
        client.RefusedError: It refuses, or its map cannot be read.
    """
    features = [one async for one in client.pages("/v1/obstructions", "features")]
    try:
        return ObstructionMap(from_geojson({"type": "FeatureCollection", "features": features}))
    except GeoJsonError as error:
        raise RefusedError(200, f"the control service's map cannot be read: {error}") from error


async def _feed(announcer: Announcer, fixes: AsyncIterator[Fix]) -> None:
    async for fix in fixes:
        announcer.feed(fix)


async def _tell(announcer: Announcer, node: Client) -> None:
    while True:
        for announcement in announcer.due(now_ms()):
            try:
                await node.ask("POST", "/v1/announcements", body=_body(announcement))
            except LostError as error:
                _LOG.warning("not announced, trying again", error=str(error))
                break
            except RefusedError as error:
                # Saying the same again would be refused again.
                _LOG.error("announcement refused", error=str(error))
            else:
                _LOG.info("announced", **_body(announcement))
            announcer.said(announcement)
        await asyncio.sleep(_EVERY_S)


async def _renew_map(announcer: Announcer, fetch: Fetch) -> None:
    while True:
        try:
            obstructions = await fetch()
        except (LostError, RefusedError) as error:
            _LOG.warning("no map of the control service, trying again", error=str(error))
            await asyncio.sleep(_MAP_AGAIN_S)
            continue
        announcer.set_map(obstructions)
        _LOG.info("map", obstructions=len(obstructions.obstructions))
        await asyncio.sleep(_MAP_EVERY_S)


def _body(announcement: Announcement) -> dict[str, object]:
    body: dict[str, object] = {
        "entry": rfc3339(moment_of(announcement.entry_ms)),
        "duration_s": announcement.duration_ms / 1000,
        "confidence": announcement.confidence,
    }
    if announcement.obstruction_id is not None:
        body["obstruction"] = announcement.obstruction_id
    return body
