"""On board: takes fixes, and gives announcements to the node."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator

import structlog

from dama.prediction import Announcement, Fix
from underpass_control.announcing.announcer import Announcer
from underpass_control.announcing.map_of_control import MapOfControl
from underpass_control.announcing.positions import now_ms
from underpass_control.announcing.route_of_control import RouteOfControl
from underpass_control.client import Client, LostError, RefusedError
from underpass_control.instants import moment_of, rfc3339
from underpass_control.pauses import again_after_ms

_LOG = structlog.get_logger()
_EVERY_S = 1.0
_MAP_EVERY_S = 3_600.0
_ROUTE_EVERY_S = 60.0
# The longest wait before a map is requested again: without one, nothing can be announced.
_LONGEST_AGAIN_MS = 600_000


async def announce(
    announcer: Announcer,
    fixes: AsyncIterator[Fix],
    node: Client,
    control: MapOfControl | None,
    route: RouteOfControl | None = None,
) -> None:
    """Announce until cancelled.

    The map is renewed each hour, if it is a control service's, and the terminal's route there, if
    it is to be followed, each minute.

    Raises:
        client.RefusedError: The node gives no position.
    """
    async with asyncio.TaskGroup() as group:
        group.create_task(_feed(announcer, fixes))
        group.create_task(_tell(announcer, node))
        if control is not None:
            group.create_task(_renew_map(announcer, control))
        if route is not None:
            group.create_task(_renew_route(announcer, route))


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


async def _renew_map(announcer: Announcer, control: MapOfControl) -> None:
    failures = 0
    while True:
        pages_before = control.pages_read
        try:
            obstructions = await control.renew()
        except (LostError, RefusedError) as error:
            # A further page has come, so the link is up.
            failures = 1 if control.pages_read > pages_before else failures + 1
            again_s = _again_s(error, failures)
            _LOG.warning(
                "no map of the control service, trying again", error=str(error), after_s=again_s
            )
            await asyncio.sleep(again_s)
            continue
        failures = 0
        if obstructions is not None:
            announcer.set_map(obstructions)
            _LOG.info("map", obstructions=len(obstructions.obstructions))
        await asyncio.sleep(_MAP_EVERY_S)


async def _renew_route(announcer: Announcer, route: RouteOfControl) -> None:
    failures = 0
    while True:
        try:
            announcer.set_route(await route.renew())
        except (LostError, RefusedError) as error:
            failures += 1
            again_s = _again_s(error, failures)
            _LOG.warning(
                "no route of the control service, trying again", error=str(error), after_s=again_s
            )
            await asyncio.sleep(again_s)
            continue
        failures = 0
        await asyncio.sleep(_ROUTE_EVERY_S)


def _again_s(error: LostError | RefusedError, failures: int) -> float:
    """Return after how long to make a request again; the service may ask for a longer wait."""
    pause_s = again_after_ms(failures, random.random(), _LONGEST_AGAIN_MS) / 1000
    if isinstance(error, LostError):
        return max(pause_s, min(error.again_s, _MAP_EVERY_S))
    return pause_s


def _body(announcement: Announcement) -> dict[str, object]:
    body: dict[str, object] = {
        "entry": rfc3339(moment_of(announcement.entry_ms)),
        "duration_s": announcement.duration_ms / 1000,
        "confidence": announcement.confidence,
    }
    if announcement.obstruction_id is not None:
        body["obstruction"] = announcement.obstruction_id
    return body
