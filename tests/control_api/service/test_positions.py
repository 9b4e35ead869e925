"""Positions: taken in, and read."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from underpass_control.http import models
from underpass_control.http.cursor import cursor_of
from underpass_control.http.endpoint import _BEFORE_VALUES
from underpass_control.http.positions import _MOST_OF_BATCH
from underpass_control.instants import moment_of, rfc3339
from underpass_control.storage.positions import BusyError, Position, PositionWriter, track
from underpass_control.storage.scope import within

from tests.control_api.service.api import FIRST, SECOND, Api, now_ms

_CASES = itertools.count()
TRACK = f"/v1/terminals/{FIRST}/positions"


def moment(ms: int) -> str:
    return rfc3339(moment_of(ms))


def position(time_ms: int, **members: object) -> dict[str, object]:
    place = {"terminal": FIRST, "longitude": 7.5, "latitude": 46.5}
    return {**place, "time": moment(time_ms), **members}


def report(api: Api, *positions: dict[str, object], caller: str = "gateway") -> Any:
    return api.call("POST", "/v1/positions", {"positions": positions}, caller=caller)


def times(api: Api, query: str = "", path: str = TRACK) -> list[str]:
    return [one["time"] for one in api.get(f"{path}?{query}").json["positions"]]


def test_a_report_comes_back_as_it_was_given(api: Api) -> None:
    at = now_ms() - 500
    given_members: dict[str, object] = {"speed_mps": 13.9, "heading_deg": 359.9, "altitude_m": -3.5}
    given_members |= {"gnss_time": moment(at), "node_time": moment(at + 2500)}
    assert report(api, position(at, **given_members)).json == {"accepted": 1}
    newest = api.get(TRACK + "/newest").json
    received = newest.pop("received")
    assert newest == {**position(at, **given_members), "clocks_differ": True}
    assert moment(at) <= received <= moment(now_ms())


def test_the_largest_batch_is_within_the_bounds_of_its_body() -> None:
    at, number = moment(now_ms()), -100.0 / 3
    members: dict[str, object] = {
        **dict.fromkeys(models.PositionOfTerminal.model_fields, number),
        **dict.fromkeys(("time", "gnss_time", "node_time"), at),
    }
    text = json.dumps({"positions": [members] * models.MOST_BATCH}, indent=4).encode()
    assert len(text) <= _MOST_OF_BATCH.size_bytes
    assert sum(map(text.count, _BEFORE_VALUES)) <= _MOST_OF_BATCH.values


@pytest.mark.parametrize(
    ("path", "caller"),
    [("/v1/positions", "first"), (TRACK, "first"), ("/v1/reports", "gateway")],
)
@pytest.mark.parametrize("value", ["0", "[]", "{}"])
def test_a_body_of_very_many_values_is_refused_before_it_is_read(
    unchanged: Api, path: str, caller: str, value: str
) -> None:
    body = f'{{"more":[{f"{value}," * 600_000}0]}}'
    refused = unchanged.call("POST", path, body, caller=caller)
    assert refused.status == 413
    assert refused.problem


def test_very_many_errors_are_counted_and_not_named(unchanged: Api) -> None:
    body = {str(number): 0 for number in range(30_000)}
    refused = unchanged.call("POST", "/v1/positions", body)
    assert (refused.status, "errors" in refused.json) == (422, False)
    assert "30001 places" in refused.problem


def test_a_report_that_comes_again_changes_nothing(api: Api) -> None:
    at = now_ms() - 1000
    first = position(at)
    assert report(api, first, first).status == 202
    assert report(api, position(at, longitude=8.0), position(at + 1)).status == 202
    assert times(api) == [moment(at), moment(at + 1)]
    assert api.get(TRACK).json["positions"][0]["longitude"] == 7.5


def test_reports_in_any_order_make_a_track(api: Api) -> None:
    start = now_ms() - 100_000
    report(api, *(position(start + 1000 * n) for n in (5, 1, 9, 0, 3)))
    report(api, *(position(start + 1000 * n) for n in (2, 4, 8, 7, 6)))
    all_of_them = [moment(start + 1000 * n) for n in range(10)]
    assert times(api) == all_of_them
    assert times(api, "order=newest") == all_of_them[::-1]
    part = f"since={moment(start + 2000)}&until={moment(start + 5000)}"
    assert times(api, part) == all_of_them[2:5]
    assert api.get(TRACK + "/newest").json["time"] == all_of_them[-1]


@pytest.mark.parametrize("order", ["time", "newest"])
def test_pages_make_up_the_track(api: Api, order: str) -> None:
    start = now_ms() - 100_000
    report(api, *(position(start + n) for n in range(10)))
    pages = api.pages(f"{TRACK}?limit=3&order={order}")
    found = [one["time"] for page in pages for one in page["positions"]]
    wanted = [moment(start + n) for n in range(10)]
    assert found == (wanted if order == "time" else wanted[::-1])


@pytest.mark.parametrize("order", ["time", "newest"])
def test_a_long_track_is_read_with_one_report_of_each_interval(api: Api, order: str) -> None:
    # The first interval begins with a multiple of ten seconds, whatever time it is.
    start = now_ms() // 10_000 * 10_000 - 100_000
    seconds = [0, 1, 9, 11, 12, 35, 40, 41, 49]
    report(api, *(position(start + 1000 * s) for s in seconds))
    query = f"apart_s=10&order={order}"
    first = [0, 11, 35, 40] if order == "time" else [49, 35, 12, 9]
    wanted = [moment(start + 1000 * s) for s in first]
    assert times(api, query) == wanted
    page = api.get(f"{TRACK}?{query}&limit=3").json
    assert [one["time"] for one in page["positions"]] == wanted[:3]
    assert times(api, f"{query}&limit=3&cursor={page['next']}") == wanted[3:]
    part = f"{query}&since={moment(start + 1000)}&until={moment(start + 40_000)}"
    found = [1, 11, 35] if order == "time" else [35, 12, 9]
    assert times(api, part) == [moment(start + 1000 * s) for s in found]
    assert len(times(api, query, TRACK)) == len(
        api.get(f"{TRACK}.geojson?{query}").json["features"]
    )
    for wrong in ("0", "-1", "1.5", "86401"):
        assert api.get(f"{TRACK}?apart_s={wrong}").status == 400
    for far in (2**63 - 1, 1 - 2**63):
        assert api.get(f"{TRACK}?{query}&cursor={cursor_of(far)}").status == 200


def test_a_thinned_track_is_shown_to_its_own_tenant_alone(api: Api) -> None:
    start = now_ms() // 10_000 * 10_000 - 100_000
    report(api, *(position(start + 1000 * s) for s in range(30)))

    async def read(tenant: str) -> list[int]:
        with within(tenant):
            async with api.database.reading() as connection:
                found = await track(connection, FIRST, apart_ms=10_000)
        return [one.time_ms - start for one in found]

    assert api.run(read("default")) == [0, 10_000, 20_000]
    assert api.run(read("nobody")) == []


def test_a_track_is_geojson_too(api: Api) -> None:
    at = now_ms()
    report(api, position(at, altitude_m=440.0), position(at + 1))
    answer = api.get(TRACK + ".geojson")
    assert answer.headers["Content-Type"].startswith("application/geo+json")
    places = [feature["geometry"]["coordinates"] for feature in answer.json["features"]]
    assert places == [[7.5, 46.5, 440.0], [7.5, 46.5]]
    assert answer.json["features"][0]["properties"]["time"] == moment(at)
    pages = [page["features"] for page in api.pages(TRACK + ".geojson?limit=1")]
    assert [feature for page in pages for feature in page] == answer.json["features"]


def test_a_terminal_without_reports_has_an_empty_track(api: Api) -> None:
    assert api.get(TRACK).json == {"positions": []}
    assert "no position" in api.get(TRACK + "/newest").problem
    assert api.get("/v1/terminals/99/positions").status == 404


@pytest.mark.parametrize(
    ("members", "pointer"),
    [
        ({"longitude": 180.1}, "longitude"),
        ({"latitude": -91}, "latitude"),
        ({"longitude": "7.5"}, "longitude"),
        ({"longitude": None}, "longitude"),
        ({"longitude": True}, "longitude"),
        ({"speed_mps": -1}, "speed_mps"),
        ({"heading_deg": 361}, "heading_deg"),
        ({"terminal": 0}, "terminal"),
        ({"terminal": -(2**70)}, "terminal"),
        ({"terminal": "11'; DROP TABLE position_report; --"}, "terminal"),
        ({"time": 1_700_000_000}, "time"),
        ({"time": "2026-01-01T00:00:00"}, "time"),
        ({"time": "9999-12-31T23:59:59-12:00"}, "time"),
        ({"gnss_time": "0001-01-01T00:00:00Z"}, "gnss_time"),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_wrong_member_refuses_the_whole_batch(
    unchanged: Api, members: dict[str, object], pointer: str
) -> None:
    refused = report(unchanged, position(now_ms()), position(now_ms(), **members))
    assert refused.status == 422
    assert refused.json["errors"][0]["pointer"] == f"/positions/1/{pointer}"
    assert times(unchanged) == []


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999"])
def test_what_is_no_number_is_refused(unchanged: Api, number: str) -> None:
    body = f'{{"time": "{moment(now_ms())}", "longitude": {number}, "latitude": 46.5}}'
    assert unchanged.call("POST", TRACK, body, caller="first").status in (400, 422)
    assert times(unchanged) == []


def test_positions_travel_in_time_neither_way(api: Api) -> None:
    for time_ms in (0, now_ms() + 120_000, 300_000_000_000):
        assert "cannot be the time" in report(api, position(time_ms)).problem
    assert report(api, position(now_ms() + 20_000)).status == 202
    # Until its time has come it is not the newest.
    assert "no position" in api.get(TRACK + "/newest").problem
    assert api.get("/v1/positions").json == {"positions": []}
    at = now_ms()
    assert report(api, position(at)).status == 202
    assert api.get(TRACK + "/newest").json["time"] == moment(at)
    assert [one["time"] for one in api.get("/v1/positions").json["positions"]] == [moment(at)]


def test_an_unknown_terminal_refuses_its_batch_and_no_other(api: Api) -> None:
    async def many() -> list[int]:
        def batch(n: int) -> dict[str, object]:
            mixed = [position(now_ms() - n), position(now_ms(), terminal=99)]
            return {"positions": mixed[: 1 + n % 2]}

        asked = (api.ask("POST", "/v1/positions", batch(n)) for n in range(10))
        return [reply.status for reply in await asyncio.gather(*asked)]

    assert api.run(many()) == [202, 409] * 5
    assert 1 <= len(times(api)) <= 5
    assert api.call("POST", "/v1/terminals/99/positions", position_of_path()).status == 404


def position_of_path() -> dict[str, object]:
    return {"time": moment(now_ms()), "longitude": 7.5, "latitude": 46.5}


def test_a_huge_batch_is_refused_whole(api: Api) -> None:
    batch = [position(now_ms())] * 10_001
    refused = report(api, *batch)
    assert refused.status == 422
    assert report(api).status == 422
    assert times(api) == []
    assert report(api, *batch[:10_000]).json == {"accepted": 10_000}


def test_more_than_can_wait_is_put_off(api: Api) -> None:
    async def run() -> None:
        writer = PositionWriter(api.changes, capacity=10)
        reports = [Position(FIRST, now_ms() + n, 7.5, 46.5) for n in range(10)]
        stored = asyncio.create_task(writer.store(reports))
        await asyncio.sleep(0)
        with pytest.raises(BusyError):
            await writer.store(reports[:1])
        writer.start()
        await stored
        await writer.store(reports)
        await writer.close()

    api.run(run())
    assert len(times(api)) == 10


def test_nobody_has_more_waiting_than_leaves_the_others_room(api: Api) -> None:
    async def run() -> None:
        writer = PositionWriter(api.changes, capacity=10)
        reports = [Position(FIRST, now_ms() + n, 7.5, 46.5) for n in range(10)]
        under_way = []
        for party, some, one_more in (("one", reports[:5], 1), ("another", reports[5:7], 2)):
            under_way.append(asyncio.create_task(writer.store(some, party)))
            await asyncio.sleep(0)
            with pytest.raises(BusyError):
                await writer.store(reports[:one_more], party)
        writer.start()
        await asyncio.gather(*under_way)
        await writer.store(reports, "one")
        await writer.close()

    api.run(run())
    assert len(times(api)) == 10


@settings(max_examples=30, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    offsets=st.lists(st.integers(0, 50), min_size=1, max_size=60),
    split=st.integers(1, 60),
)
def test_a_track_has_each_reported_time_once(api: Api, offsets: list[int], split: int) -> None:
    # No two cases share a time.
    start = 1_700_000_000_000 + 1000 * next(_CASES)
    for part in (offsets[:split], offsets[split:]):
        if part:
            assert report(api, *(position(start + n, terminal=SECOND) for n in part)).status == 202
    path = f"/v1/terminals/{SECOND}/positions"
    found = times(api, f"since={moment(start)}&until={moment(start + 51)}&limit=1000", path)
    assert found == [moment(start + n) for n in sorted(set(offsets))]
