"""Remembered drives are stored, recalled, counted for the fleet, and deleted by age."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

import pytest
from underpass_control.demand import Demands
from underpass_control.prediction import Predictions
from underpass_control.pruning import prune
from underpass_control.storage import habits
from underpass_control.takeover import recall

from dama.prediction import ObstructionMap
from dama.prediction.geojson import to_feature
from dama.prediction.habits import Habits, RememberedDrive
from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.test_plans import planned
from tests.control_api.service.test_positions import position, report
from tests.dama.prediction.test_habits import crossing, drive

NOBODY = 4_711


def put(api: Api, remembered: dict[int, Habits]) -> None:
    async def run() -> None:
        async with api.database.transaction() as connection:
            await habits.put(connection, remembered)

    api.run(run())


def stored(api: Api) -> dict[int, Habits]:
    async def run() -> dict[int, Habits]:
        async with api.database.reading() as connection:
            return await habits.of_beam(connection, "ku-1")

    return api.run(run())


def taught(api: Api, at_ms: int) -> ObstructionMap:
    async def run() -> ObstructionMap:
        async with api.database.reading() as connection:
            return (await habits.taught(connection, [crossing()], at_ms))[0]

    return api.run(run())


def drives(*names: str, last_ms: int) -> Habits:
    return Habits(tuple(RememberedDrive(tuple(one), 2.0, last_ms) for one in names))


def test_what_is_stored_is_what_was_remembered_last(api: Api) -> None:
    at = now_ms()
    put(api, {FIRST: drives("abc", "abx", last_ms=at), NOBODY: drives("ab", last_ms=at)})
    put(api, {SECOND: drives("abc", last_ms=at)})
    put(api, {FIRST: drives("abcd", last_ms=at)})
    assert stored(api) == {
        FIRST: drives("abcd", last_ms=at),
        SECOND: drives("abc", last_ms=at),
    }
    put(api, {FIRST: Habits()})
    assert list(stored(api)) == [SECOND]
    assert api.call("DELETE", f"/v1/terminals/{SECOND}").status == 204
    assert stored(api) == {}


def test_a_new_planner_knows_the_habits(api: Api) -> None:
    at = now_ms()
    put(api, {FIRST: drives("abcdte", last_ms=at)})
    predictions = Predictions(crossing())

    async def run() -> None:
        async with api.database.reading() as connection:
            await recall(connection, "ku-1", predictions, Demands(), at)

    api.run(run())
    for one in drive(-400.0, day=10_000):
        predictions.feed(FIRST, one)
    (blockage,) = predictions.blockages_of(FIRST, one.time_ms)
    assert blockage.confidence > 0.8


def test_the_turns_of_all_terminals_are_counted_on_the_map(api: Api) -> None:
    at = now_ms()
    assert taught(api, at).turn("c", "d") == 0.3
    put(api, {one: drives("abcd", last_ms=at) for one in (FIRST, SECOND)})
    assert taught(api, at).turn("c", "d") == pytest.approx((4 * 0.3 + 2) / 6)


def test_drives_are_read_of_a_few_terminals_at_once(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    at = now_ms()
    put(api, {one: drives("abcd", "ab", last_ms=at) for one in (FIRST, SECOND)})
    before, known = stored(api), taught(api, at)
    together: list[list[int]] = []
    read = habits._habits

    def noted(rows: Iterable[Any]) -> Iterable[tuple[int, Habits]]:
        found = list(read(rows))
        together.append([terminal for terminal, _ in found])
        return found

    monkeypatch.setattr(habits, "_AT_ONCE", 1)
    monkeypatch.setattr(habits, "_habits", noted)
    assert stored(api) == before
    assert taught(api, at).turn("c", "d") == known.turn("c", "d") != 0.3
    assert together == 2 * [[FIRST], [SECOND]]


def test_the_paces_of_all_terminals_count_at_their_hour(api: Api) -> None:
    at = now_ms()
    slow = Habits((RememberedDrive(("c", "d"), 1.0, at, (0, 50)),))
    put(api, {FIRST: slow, SECOND: slow})
    assert stored(api) == {FIRST: slow, SECOND: slow}
    day_ms = 86_400_000
    known = taught(api, at + day_ms)
    assert known.pace("c") == 1.0
    assert known.pace("d") == pytest.approx(0.65, abs=0.05)
    assert known.pace("d") < taught(api, at + day_ms // 2).pace("d") < 1.0


def test_drives_not_made_for_long_are_deleted(api: Api) -> None:
    at = now_ms()
    put(api, {FIRST: drives("abc", last_ms=at - 1_000), SECOND: drives("abc", last_ms=at)})
    assert api.run(prune(api.database, habits.prune, at - 500)) == 1
    assert list(stored(api)) == [SECOND]


def test_a_drive_that_is_reported_is_remembered(api: Api) -> None:
    features = [to_feature(one) for one in crossing().obstructions.values()]
    collection = {"type": "FeatureCollection", "features": features}
    assert api.call("POST", "/v1/obstructions", collection).status == 200
    planned(api)
    # The map is read in the background.
    api.run(asyncio.sleep(1.0))
    made = drive(1_400.0)
    shift_ms = now_ms() - 3_600_000 - made[-1].time_ms
    # An hour later it begins another one.
    times = [*(fix.time_ms + shift_ms for fix in made), now_ms() - 1]
    batch = [
        position(
            time_ms,
            longitude=fix.lon,
            latitude=fix.lat,
            speed_mps=fix.speed_mps,
            heading_deg=fix.heading_deg,
        )
        for time_ms, fix in zip(times, [*made, made[0]], strict=True)
    ]
    assert report(api, *batch).status == 202
    until = time.monotonic() + 60
    while not (found := stored(api)):
        assert time.monotonic() < until
        api.run(asyncio.sleep(0.05))
    assert [one.roads for one in found[FIRST].drives] == [tuple("abcdte")]
