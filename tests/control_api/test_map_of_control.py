"""The control service's map, read on board over a link that is slow or down."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from underpass_control.announcing import map_of_control, station
from underpass_control.announcing.announcer import Announcer
from underpass_control.announcing.map_of_control import MapOfControl
from underpass_control.client import Client, LostError, RefusedError

from dama.prediction import ObstructionMap
from tests.dama.prediction.test_laws import MAP

AXIS = {"type": "LineString", "coordinates": [[7.0, 46.0], [7.01, 46.0]]}
TUNNEL = {"type": "Feature", "id": "tunnel", "geometry": AXIS, "properties": {}}


class Service:
    """A map of three pages, each with an ETag, and a record of the requests."""

    def __init__(self) -> None:
        self.revisions = {None: 1, "1": 1, "2": 1}
        self.asked: list[tuple[str | None, str | None]] = []
        # What happens, once, to the answer with a page.
        self.faults: dict[str | None, Callable[[], web.Response]] = {}
        # A page of which only one byte arrives.
        self.silent: str | None = None
        self.over = asyncio.Event()

    async def page(self, request: web.Request) -> web.StreamResponse:
        cursor, known = request.query.get("cursor"), request.headers.get("If-None-Match")
        self.asked.append((cursor, known))
        if cursor in self.faults:
            return self.faults.pop(cursor)()
        if cursor is not None and cursor == self.silent:
            answer = web.StreamResponse()
            await answer.prepare(request)
            await answer.write(b"{")
            await self.over.wait()
            return answer
        tag = f'"{self.revisions[cursor]}"'
        if known == tag:
            return web.Response(status=304, headers={"ETag": tag})
        number = int(cursor or 0)
        properties = {"name": f"{number}.{self.revisions[cursor]}"}
        document = {
            "type": "FeatureCollection",
            "features": [{**TUNNEL, "id": f"tunnel {number}", "properties": properties}],
        }
        if number < 2:
            document["next"] = str(number + 1)
        return web.json_response(document, headers={"ETag": tag})


@asynccontextmanager
async def read(service: Service, satellite: str | None = None) -> AsyncIterator[MapOfControl]:
    application = web.Application()
    application.router.add_get("/v1/obstructions", service.page)
    runner = web.AppRunner(application)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        async with Client(f"http://127.0.0.1:{runner.addresses[0][1]}") as client:
            yield MapOfControl(client, satellite)
    finally:
        service.over.set()
        await runner.cleanup()


def names(found: ObstructionMap | None) -> list[str]:
    assert found is not None
    return [one.name for one in found.obstructions.values()]


def busy() -> web.Response:
    return web.Response(status=503)


async def test_a_page_that_fails_is_asked_for_again_and_no_other() -> None:
    service = Service()
    service.faults["2"] = busy
    async with read(service) as control:
        with pytest.raises(LostError):
            await control.renew()
        assert control.pages_read == 2
        assert names(await control.renew()) == ["0.1", "1.1", "2.1"]
        assert control.pages_read == 0
    assert [cursor for cursor, _ in service.asked] == [None, "1", "2", "2"]


async def test_only_what_has_changed_is_sent_again() -> None:
    service = Service()
    async with read(service) as control:
        assert await control.renew() is not None
        service.asked.clear()
        assert await control.renew() is None
        assert service.asked == [(None, '"1"'), ("1", '"1"'), ("2", '"1"')]
        service.revisions["1"] = 2
        assert names(await control.renew()) == ["0.1", "1.2", "2.1"]
        assert await control.renew() is None


async def test_after_a_refusal_it_begins_anew_with_what_it_knows() -> None:
    service = Service()
    service.faults["2"] = lambda: web.Response(status=400)
    async with read(service) as control:
        with pytest.raises(RefusedError):
            await control.renew()
        assert names(await control.renew()) == ["0.1", "1.1", "2.1"]
    assert service.asked[3:] == [(None, '"1"'), ("1", '"1"'), ("2", None)]


@pytest.mark.parametrize("status", [200, 403])
@pytest.mark.parametrize("body", [b"<p>Sign in, please: \xfcber uns", b"[" * 100_000])
async def test_what_something_else_answers_is_a_refusal(body: bytes, status: int) -> None:
    service = Service()
    service.faults[None] = lambda: web.Response(body=body, status=status, content_type="text/html")
    async with read(service) as control:
        with pytest.raises(RefusedError):
            await control.renew()


PAGE = {"type": "FeatureCollection", "features": [TUNNEL]}


@pytest.mark.parametrize("answer", [[], {"type": "x"}, {**PAGE, "next": 7}, {**PAGE, "next": "1"}])
async def test_a_service_with_a_fault_is_left_alone(answer: object) -> None:
    service = Service()
    service.faults = {one: lambda: web.json_response(answer) for one in (None, "1")}
    async with read(service) as control:
        with pytest.raises(RefusedError, match="map"):
            await control.renew()


async def test_a_service_whose_pages_are_empty_and_have_no_end_is_left_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(map_of_control, "MAX_FEATURES", 10)
    asked = 0

    async def page(_request: web.Request) -> web.Response:
        nonlocal asked
        asked += 1
        return web.json_response({**PAGE, "features": [], "next": str(asked)})

    service = Service()
    monkeypatch.setattr(service, "page", page)
    async with asyncio.timeout(10), read(service) as control:
        with pytest.raises(RefusedError, match="no end"):
            await control.renew()
    assert asked == 11


async def test_a_page_may_take_its_time_but_not_fall_silent(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    service = Service()
    limits: list[aiohttp.ClientTimeout] = []
    request = aiohttp.ClientSession.request

    def asked(*given: Any, timeout: aiohttp.ClientTimeout, **more: Any) -> Any:
        limits.append(timeout)
        return request(*given, timeout=timeout, **more)

    monkeypatch.setattr(aiohttp.ClientSession, "request", asked)
    async with read(service) as control:
        service.faults["1"] = busy
        with pytest.raises(LostError):
            await control.renew()
        service.silent = "1"
        monkeypatch.setattr(map_of_control, "_SILENT_S", 0.1)
        with pytest.raises(LostError):
            await control.renew()
    assert {limit.total for limit in limits} == {None}


class Enough(Exception):  # noqa: N818
    """Raised when the test has seen enough."""


def test_pauses_grow_until_a_page_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is between a half and all of 5 s, 10 s, 20 s and so on, up to 10 minutes."""
    failing, after_s = 12, list[float]()

    class Control(MapOfControl):
        def __init__(self) -> None:
            self._came = 0

        @property
        def pages_read(self) -> int:
            return self._came

        async def renew(self) -> ObstructionMap | None:
            # One page comes after this many failures.
            self._came += len(after_s) == failing
            raise LostError("the link is blocked", again_s=1e9 if len(after_s) > failing else 1.0)

    async def sleep(delay_s: float) -> None:
        after_s.append(delay_s)
        if len(after_s) > failing + 1:
            raise Enough

    monkeypatch.setattr(asyncio, "sleep", sleep)
    with pytest.raises(Enough):
        asyncio.run(station._renew_map(Announcer(MAP), Control()))
    most_s = [min(5 * 2**n, 600) for n in range(failing)]
    grown = zip(after_s[:failing], most_s, strict=True)
    assert all(most / 2 - 0.001 <= after <= most for after, most in grown)
    # Pauses are random.
    assert max(Counter(after_s[7:failing]).values()) == 1
    assert after_s[failing] <= 5
    # The pause that the service asks for is respected, up to an hour.
    assert after_s[failing + 1] == 3_600


def test_an_unchanged_map_is_not_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    found: list[ObstructionMap | None] = [MAP, None]
    given: list[ObstructionMap] = []

    class Control(MapOfControl):
        def __init__(self) -> None: ...

        @property
        def pages_read(self) -> int:
            return 0

        async def renew(self) -> ObstructionMap | None:
            if not found:
                raise Enough
            return found.pop(0)

    async def sleep(_delay_s: float) -> None: ...

    monkeypatch.setattr(asyncio, "sleep", sleep)
    monkeypatch.setattr(Announcer, "set_map", lambda _, given_map: given.append(given_map))
    with pytest.raises(Enough):
        asyncio.run(station._renew_map(Announcer(MAP), Control()))
    assert given == [MAP]


def test_shadows_of_other_satellites_are_left_out() -> None:
    shadow = {**TUNNEL, "id": "shadow", "properties": {"satellite": "astra"}}
    document = {"type": "FeatureCollection", "features": [TUNNEL, shadow]}

    async def found(satellite: str | None) -> set[str]:
        service = Service()
        service.faults[None] = lambda: web.json_response(document)
        async with read(service, satellite) as control:
            known = await control.renew()
        assert known is not None
        return set(known.obstructions)

    assert asyncio.run(found("west")) == {"tunnel"}
    assert asyncio.run(found("astra")) == {"tunnel", "shadow"}
    assert asyncio.run(found(None)) == {"tunnel", "shadow"}


def test_what_drives_have_made_of_a_certainty_counts() -> None:
    def shadow(corrected: object) -> dict[str, object]:
        properties = {"certainty": 0.9, "corrected": corrected}
        return {"type": "FeatureCollection", "features": [{**TUNNEL, "properties": properties}]}

    async def certainty(corrected: object) -> float:
        service = Service()
        service.faults[None] = lambda: web.json_response(shadow(corrected))
        async with read(service) as control:
            known = await control.renew()
        assert known is not None
        return known.obstructions["tunnel"].certainty

    assert asyncio.run(certainty(0.4)) == 0.4
    assert asyncio.run(certainty(None)) == 0.9
    none: list[float] = []
    for wrong in (0, 1.1, -1, "0.4", none):
        with pytest.raises(RefusedError, match="map cannot be read"):
            asyncio.run(certainty(wrong))
