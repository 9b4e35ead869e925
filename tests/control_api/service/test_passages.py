"""Shadows of the map are corrected by how often terminals' links hold in them."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Any

import pytest
from sqlalchemy import delete
from sqlalchemy.ext.asyncio import AsyncConnection
from underpass_control.announcing.map_of_control import MapOfControl
from underpass_control.client import Client
from underpass_control.pruning import prune
from underpass_control.roles import Role
from underpass_control.storage import learned, passages
from underpass_control.storage.changes import Change
from underpass_control.storage.models import Terminal

from dama.prediction.geojson import to_geojson
from dama.prediction.learning import Counts
from tests.control_api.service.api import FIRST, SECOND, Api
from tests.control_api.service.test_expectations import LOSS, PLACE, learn
from tests.control_api.service.two_tenants import NORTH, settle
from tests.control_api.test_passing import street
from tests.dama.prediction.test_laws import MAP, at

DAY_MS = 86_400_000
NOW_MS = 1_800_000_000_000
SHADE = street()


def imported(api: Api) -> None:
    document = to_geojson([SHADE, MAP.obstructions["t"]])
    assert api.call("POST", "/v1/obstructions", document).json == {"accepted": 2}


def count(
    api: Api, name: str, terminal: int, lost: int, held: int, at_ms: int = NOW_MS
) -> list[Change]:
    """Count passages, and return what is announced."""
    told: list[Change] = []

    async def run() -> None:
        async with api.database.transaction() as connection:
            passed = {(name, terminal): (lost, held)}
            await passages.put(connection, told.append, passed, at_ms)

    api.run(run())
    return told


def certainty(api: Api, name: str) -> float:
    async def run() -> float:
        async with api.database.reading() as connection:
            found, _ = await learned.load_map(connection)
            return found.obstructions[name].certainty

    return api.run(run())


def totals(api: Api) -> dict[str, Counts]:
    async def run() -> dict[str, Counts]:
        async with api.database.reading() as connection:
            return await passages.totals(connection)

    return api.run(run())


def test_a_shadow_in_which_links_hold_counts_less_in_all_maps(api: Api) -> None:
    imported(api)
    assert certainty(api, SHADE.id) == 0.7
    told = count(api, SHADE.id, FIRST, 0, 3)
    # Every process reads the map again, and tenants hear nothing.
    assert told == [{"kind": "obstructions", "action": "set", "source": "learned", "count": 1}]
    assert certainty(api, SHADE.id) == pytest.approx(0.4)
    count(api, SHADE.id, SECOND, 3, 0)
    assert certainty(api, SHADE.id) == pytest.approx(5.8 / 10)
    # What a map says stays as it was imported.
    features = api.get("/v1/obstructions").json["features"]
    shown = {one["id"]: one["properties"]["certainty"] for one in features}
    assert shown == {SHADE.id: 0.7, "t": 1.0}


def test_what_drives_have_made_of_a_certainty_is_told_everywhere(api: Api) -> None:
    settle(api)
    viewer = api.run(api.token(Role.VIEWER, tenant=NORTH))
    imported(api)
    count(api, SHADE.id, FIRST, 0, 3)
    count(api, SHADE.id, SECOND, 3, 0)
    assert certainty(api, SHADE.id) == pytest.approx(0.58)

    def told(caller: str) -> set[float | None]:
        features = api.get("/v1/obstructions", caller=caller).json["features"]
        lon, lat = at(100.0)
        around = api.get(f"/v1/sky?longitude={lon}&latitude={lat}", caller=caller).json["hidden"]
        return {
            *(one["properties"].get("corrected") for one in features if one["id"] == SHADE.id),
            *(one["certainty"] for one in around if one["obstruction"] == SHADE.id),
        }

    async def on_board() -> float:
        async with Client(str(api.client.make_url("/")), api.tokens["first"]) as client:
            known = await MapOfControl(client).renew()
            assert known is not None
            return known.obstructions[SHADE.id].certainty

    for caller in ("operator", "first", viewer):
        assert told(caller) == {0.6}
    assert api.run(on_board()) == 0.6
    # What is exported and imported again is corrected once.
    document = api.get("/v1/obstructions").json
    assert api.call("POST", "/v1/obstructions", document).status == 200
    assert certainty(api, SHADE.id) == pytest.approx(0.58)
    # What the map is sure of, and what nobody has passed, is told as the map has it.
    others = [one["properties"] for one in document["features"] if one["id"] != SHADE.id]
    assert others
    assert all("corrected" not in one for one in others)


def test_a_small_change_is_not_announced(api: Api) -> None:
    imported(api)
    assert count(api, SHADE.id, FIRST, 4, 2) == []
    assert totals(api)


def test_what_is_certain_learned_or_unknown_is_not_counted(api: Api) -> None:
    imported(api)
    learn(api, LOSS)
    for name, terminal in (("t", FIRST), (PLACE.id, FIRST), ("gone", FIRST), (SHADE.id, 4_711)):
        assert count(api, name, terminal, 0, 3) == []
    assert totals(api) == {}


def test_counts_are_added_up_and_pruned_by_age(api: Api) -> None:
    imported(api)
    count(api, SHADE.id, FIRST, 1, 1)
    count(api, SHADE.id, FIRST, 0, 1, NOW_MS + 30 * DAY_MS)
    count(api, SHADE.id, SECOND, 1, 0, NOW_MS + 1)
    whole = totals(api)[SHADE.id]
    assert (whole.lost, whole.held) == pytest.approx((1.5, 1.5))
    assert api.run(prune(api.database, passages.prune, NOW_MS + DAY_MS)) == 1
    whole = totals(api)[SHADE.id]
    assert (whole.lost, whole.held) == pytest.approx((0.5, 1.5))
    # They go with their terminal.
    assert api.call("DELETE", f"/v1/terminals/{FIRST}").status == 204
    assert totals(api) == {}


def test_a_terminal_that_is_deleted_meanwhile_ends_no_planning(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    if api.database.is_sqlite:
        pytest.skip("SQLite has one writer, and whoever counts is it already")
    imported(api)
    read = passages._counts
    deleting: list[asyncio.Task[None]] = []
    told: list[Change] = []

    async def remove() -> None:
        async with api.database.transaction() as connection:
            await connection.execute(delete(Terminal).where(Terminal.node == FIRST))

    async def beside(connection: AsyncConnection, keys: Collection[tuple[str, int]]) -> Any:
        deleting.append(asyncio.create_task(remove()))
        # It waits for the lock; without one, it would be done by now.
        await asyncio.wait(deleting, timeout=1.0)
        return await read(connection, keys)

    async def run() -> None:
        async with api.database.transaction() as connection:
            passed = {(SHADE.id, FIRST): (0, 1), (SHADE.id, SECOND): (0, 1)}
            await passages.put(connection, told.append, passed, NOW_MS)
        await asyncio.gather(*deleting)

    monkeypatch.setattr(passages, "_counts", beside)
    api.run(run())
    # Its own counts have gone with it.
    assert totals(api) == {SHADE.id: Counts(0.0, 1.0)}


def test_what_is_announced_is_by_the_counts_of_all_terminals(api: Api) -> None:
    imported(api)
    assert count(api, SHADE.id, FIRST, 2, 1) == []
    # Together they make it 0.58 certain, and then 0.71: later ones displace some of the earlier.
    assert len(count(api, SHADE.id, SECOND, 1, 2)) == 1
    assert len(count(api, SHADE.id, SECOND, 3, 0)) == 1
    assert certainty(api, SHADE.id) == pytest.approx(8.467 / 12, abs=0.001)
