"""A terminal's route, read on board from the control service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from underpass_control.announcing import station
from underpass_control.announcing.announcer import Announcer
from underpass_control.announcing.route_of_control import RouteOfControl
from underpass_control.client import Client, LostError, RefusedError

from tests.dama.prediction.test_laws import MAP

LINE = [[7.0, 46.0], [7.01, 46.0, 300.0]]


class Service:
    """A route with an ETag, and a record of the tags that were known to those who asked."""

    def __init__(self) -> None:
        self.route: Any = None
        self.revision = 1
        self.status = 200
        self.asked: list[str | None] = []

    async def answer(self, request: web.Request) -> web.Response:
        known, tag = request.headers.get("If-None-Match"), f'"{self.revision}"'
        self.asked.append(known)
        if self.status != 200:
            return web.Response(status=self.status)
        if self.route is None:
            return web.json_response({"detail": "no route is known"}, status=404)
        if known == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return web.json_response(self.route, headers={"ETag": tag})


@asynccontextmanager
async def read(service: Service) -> AsyncIterator[RouteOfControl]:
    application = web.Application()
    application.router.add_get("/v1/terminals/11/route", service.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with Client(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
            yield RouteOfControl(client, 11)
    finally:
        await runner.cleanup()


async def test_a_route_is_sent_again_only_if_it_has_changed() -> None:
    service = Service()
    async with read(service) as route:
        assert await route.renew() is None
        service.route = {"type": "LineString", "coordinates": LINE}
        first = await route.renew()
        assert first == ((7.0, 46.0), (7.01, 46.0))
        assert await route.renew() is first
        service.route, service.revision = {"type": "LineString", "coordinates": LINE[::-1]}, 2
        assert await route.renew() == first[::-1]
        service.route = None
        assert await route.renew() is None
    assert service.asked == [None, None, '"1"', '"1"', '"2"']


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        {},
        {"coordinates": None},
        {"coordinates": [[7.0, 46.0]]},
        {"coordinates": [[7.0], [7.1]]},
        {"coordinates": [["east", 46.0], [7.0, 46.0]]},
        {"coordinates": [[7.0, 146.0], [7.0, 46.0]]},
        {"coordinates": [[10**400, 46.0], [7.0, 46.0]]},
        {"coordinates": [[7.0, 46.0]] * 10_001},
    ],
)
async def test_what_is_no_route_is_refused_and_the_next_one_is_read(wrong: object) -> None:
    service = Service()
    async with read(service) as route:
        service.route = wrong
        with pytest.raises(RefusedError):
            await route.renew()
        service.route = {"type": "LineString", "coordinates": LINE}
        assert await route.renew() is not None


async def test_a_service_that_is_away_leaves_the_route_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service()
    service.route = {"type": "LineString", "coordinates": LINE}
    slept = asyncio.Event()

    async def asleep(_seconds: float) -> None:
        slept.set()
        await asyncio.Event().wait()

    async with read(service) as route:
        line = await route.renew()
        announcer = Announcer(MAP)
        announcer.set_route(line)
        service.status = 503
        with pytest.raises(LostError):
            await route.renew()
        monkeypatch.setattr("underpass_control.announcing.station.asyncio.sleep", asleep)
        task = asyncio.create_task(station._renew_route(announcer, route))
        await slept.wait()
        monkeypatch.undo()
        task.cancel()
        await asyncio.wait({task})
        assert announcer._route is line
