"""Obstructions: GeoJSON in and out, and the import of maps."""

from __future__ import annotations

import asyncio
import json
import random
import threading
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import sqlite
from typer.testing import CliRunner
from underpass_control.announcing.map_of_control import MapOfControl
from underpass_control.cli import app
from underpass_control.client import Client
from underpass_control.http import obstructions as obstructions_endpoint
from underpass_control.prediction import Lesson
from underpass_control.storage import learned as stored_map
from underpass_control.storage import obstructions as stored
from underpass_control.storage.boxes import Box, box_of, touching
from underpass_control.storage.database import Database

from dama.prediction.geojson import from_geojson
from dama.prediction.learning import Observation
from tests.control_api.service.api import Api
from tests.control_api.service.conftest import with_database
from tests.control_api.service.test_expectations import learn

PATH = "/v1/obstructions"
ISLAND = Path(__file__).parents[2] / "drives/island.osm"
AXIS = [[7.50, 46.50], [7.51, 46.50]]


def feature(name: str, **members: Any) -> dict[str, Any]:
    axis = {"type": "LineString", "coordinates": AXIS}
    return {"type": "Feature", "id": name, "geometry": axis, "properties": {}, **members}


def collection(*features: dict[str, Any]) -> dict[str, Any]:
    return {"type": "FeatureCollection", "features": list(features)}


def ids(api: Api, query: str = "") -> list[str]:
    return [one["id"] for one in api.get(f"{PATH}?{query}").json["features"]]


def test_what_goes_in_comes_out_the_same_to_the_predictor(api: Api) -> None:
    given = collection(feature("osm:way/1"), feature("ridge", properties={"name": "Ridge"}))
    assert api.call("POST", PATH, given).json == {"accepted": 2}
    answer = api.get(PATH)
    assert answer.headers["Content-Type"].startswith("application/geo+json")
    assert from_geojson(answer.json) == from_geojson(given)


def test_setting_again_replaces_by_id(api: Api) -> None:
    api.call("POST", PATH, collection(feature("a"), feature("b")))
    api.call("POST", PATH, collection(feature("a", properties={"name": "new"})))
    names = [one["properties"]["name"] for one in api.get(PATH).json["features"]]
    assert names == ["new", ""]


@pytest.mark.parametrize(
    "name", ["\u0645\u06cc\u200c\u06af\u0648\u0646", "Tunnel\u00a0du Roux", "\u200f\u05de\u05e0"]
)
def test_a_name_may_have_what_joins_and_directs_its_letters(api: Api, name: str) -> None:
    given = collection(feature("a", properties={"name": name}))
    assert api.call("POST", PATH, given).json == {"accepted": 1}
    (shown,) = api.get(PATH).json["features"]
    assert shown["properties"]["name"] == name


@pytest.mark.parametrize("east", [179.99985, -179.99985])
def test_what_crosses_the_180th_meridian_is_on_both_sides_of_it(api: Api, east: float) -> None:
    axis = {"type": "LineString", "coordinates": [[179.9998, 46.5], [-179.9998, 46.5]]}
    assert api.call("POST", PATH, collection(feature("a", geometry=axis))).status == 200
    west, east = sorted((east, 180.0 if east > 0.0 else -180.0))
    assert ids(api, f"bbox={west},46,{east},47") == ["a"]
    assert ids(api, f"bbox={west},47,{east},48") == []


@pytest.mark.parametrize(
    ("module", "name"), [(obstructions_endpoint, "from_geojson"), (stored, "to_feature")]
)
def test_while_obstructions_are_read_others_are_answered(
    api: Api, monkeypatch: pytest.MonkeyPatch, module: ModuleType, name: str
) -> None:
    begun, goes_on, work = threading.Event(), threading.Event(), getattr(module, name)

    def slow(*given: Any) -> Any:
        begun.set()
        assert goes_on.wait(20), "everything else waits"
        return work(*given)

    async def run() -> None:
        monkeypatch.setattr(module, name, slow)
        given = collection(feature("a"), feature("b"))
        setting = asyncio.create_task(api.ask("POST", PATH, given, caller="operator"))
        while not begun.is_set():
            await asyncio.sleep(0.02)
        assert (await api.ask("GET", "/health")).status == 200
        goes_on.set()
        assert (await setting).json == {"accepted": 2}

    api.run(run())
    assert ids(api) == ["a", "b"]


def test_a_page_is_sent_packed_and_not_again_while_it_is_the_same(api: Api) -> None:
    api.call("POST", PATH, collection(*(feature(name) for name in "abcd")))
    pages = [f"{PATH}?limit=2"]
    first = api.get(pages[0])
    assert first.headers["Content-Encoding"] == "gzip"
    plain = api.get(pages[0], headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    assert plain.text == first.text
    pages.append(f"{pages[0]}&cursor={first.json['next']}")
    tags = [api.get(page).headers["ETag"] for page in pages]

    def sent() -> list[int]:
        known = zip(pages, tags, strict=True)
        return [api.get(page, headers={"If-None-Match": tag}).status for page, tag in known]

    assert sent() == [304, 304]
    api.call("POST", PATH, collection(feature("c", properties={"name": "new"})))
    assert sent() == [304, 200]


def test_a_vehicle_reads_the_map_page_by_page(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("underpass_control.announcing.map_of_control._PAGE", 2)
    api.call("POST", PATH, collection(*(feature(name) for name in "abcde")))

    async def run() -> list[str]:
        url = str(api.client.make_url("/"))
        async with Client(url, api.tokens["first"]) as client:
            control = MapOfControl(client)
            found = await control.renew()
            assert found is not None
            assert await control.renew() is None
            return list(found.obstructions)

    assert api.run(run()) == list("abcde")


def test_a_part_of_the_map_and_pages(api: Api) -> None:
    far = {"type": "LineString", "coordinates": [[-70.0, -30.0], [-70.1, -30.0]]}
    api.call("POST", PATH, collection(feature("a"), feature("b"), feature("far", geometry=far)))
    assert ids(api, "bbox=7.505,46.4,8,47") == ["a", "b"]
    assert ids(api, "bbox=-71,-31,-70,-29") == ["far"]
    page = api.get(f"{PATH}?limit=2").json
    assert ids(api, f"limit=2&cursor={page['next']}") == ["far"]
    for wrong in ("1,2,3", "a,b,c,d", "8,46,7,47", "nan,0,1,1", "0,0,1,1e9"):
        assert api.get(f"{PATH}?bbox={wrong}").status == 400


def test_pages_go_on_behind_the_longest_ids_of_any_letters(api: Api) -> None:
    names = {"a" * 128, "\u0436" * 128, "\U0001f6a7" * 128}
    assert api.call("POST", PATH, collection(*map(feature, names))).status == 200
    pages = api.pages(f"{PATH}?limit=1")
    assert {one["id"] for page in pages for one in page["features"]} == names


def areas(count: int) -> dict[str, Box]:
    """Return boxes of all sizes, most of them small and near to one another."""
    drawn = random.Random(7)
    found = {"world": Box(-180.0, -80.0, 180.0, 80.0)}
    for number in range(count):
        west, south = drawn.uniform(7.0, 8.0), drawn.uniform(46.0, 46.6)
        size = drawn.choice((0.001, 0.01, 0.05, 0.1, 0.4, 3.0))
        wide, high = size * drawn.random() + 1e-6, size * drawn.random() + 1e-6
        found[f"a{number:03}"] = Box(west, south, west + wide, south + high)
    return found


def area(name: str, box: Box) -> dict[str, Any]:
    west, south, east, north = box.west, box.south, box.east, box.north
    ring = [[west, south], [east, south], [east, north], [west, north], [west, south]]
    return feature(name, geometry={"type": "Polygon", "coordinates": [ring]})


@pytest.mark.parametrize("found_first", [10_000, 5])
def test_exactly_what_touches_a_part_of_the_map_is_found(
    api: Api, monkeypatch: pytest.MonkeyPatch, found_first: int
) -> None:
    monkeypatch.setattr(stored, "_MOST_FOUND", found_first)
    boxes = areas(200)
    given = collection(*(area(name, box) for name, box in boxes.items()))
    assert api.call("POST", PATH, given).json == {"accepted": len(boxes)}
    drawn = random.Random(8)
    asked = [Box(-180.0, -90.0, 180.0, 90.0), Box(-180.0, 80.0, 180.0, 90.0)]
    for _ in range(30):
        west, south = drawn.uniform(6.9, 8.0), drawn.uniform(45.9, 46.6)
        asked.append(Box(west, south, west + drawn.random() ** 4, south + drawn.random() ** 4))
    # Of a box's corner, only the box itself and those around it.
    asked += [Box(one.east, one.north, one.east, one.north) for one in boxes.values()][:5]
    for box in asked:
        touched = [
            name
            for name, one in sorted(boxes.items())
            if one.west <= box.east
            and one.east >= box.west
            and one.south <= box.north
            and one.north >= box.south
        ]
        query = f"bbox={box.west!r},{box.south!r},{box.east!r},{box.north!r}"
        assert ids(api, f"{query}&limit=1000") == touched
        if len(touched) > 2:
            assert ids(api, f"{query}&limit=2") == touched[:2]


@pytest.mark.parametrize(
    ("corners", "on", "beside"),
    [
        ([179.5, -179.5], [179.5, 179.9, 180.0, -180.0, -179.5], [179.4, -179.4, 0.0]),
        ([179.5, 180.0], [179.5, 180.0, -180.0], [179.4, -179.9, 0.0]),
        ([179.5, -180.0], [179.5, 180.0, -180.0], [179.4, -179.9, 0.0]),
        ([-180.0, -179.5], [180.0, -180.0, -179.5], [179.9, -179.4, 0.0]),
        ([-180.0, 180.0], [180.0, -180.0, 0.0, 90.0], []),
        ([-120.0, 0.0, 120.0], [180.0, -180.0, -60.0, 60.0], []),
        ([-180.0, -90.0, 0.0, 90.0], [180.0, -180.0, -45.0, 135.0], []),
    ],
)
@pytest.mark.parametrize("found_first", [10_000, 0])
@pytest.mark.parametrize("south", [-90.0, 46.0, 89.0])
def test_the_180th_meridian_is_no_border_of_an_area(
    api: Api,
    monkeypatch: pytest.MonkeyPatch,
    corners: list[float],
    on: list[float],
    beside: list[float],
    found_first: int,
    south: float,
) -> None:
    monkeypatch.setattr(stored, "_MOST_FOUND", found_first)
    sides = [[lon, south] for lon in corners] + [[lon, south + 1.0] for lon in corners[::-1]]
    geometry = {"type": "Polygon", "coordinates": [[*sides, sides[0]]]}
    assert api.call("POST", PATH, collection(feature("a", geometry=geometry))).status == 200

    def found(lon: float) -> bool:
        return ids(api, f"bbox={lon},{south},{lon},{south + 1.0}") == ["a"]

    assert [lon for lon in on + beside if found(lon)] == on


@pytest.mark.parametrize(
    ("lons", "is_area", "sides"),
    [
        ([179.5, -179.5], True, (179.5, 180.5)),
        ([179.5, -180.0], True, (179.5, 180.0)),
        ([-180.0, -179.5], True, (-180.0, -179.5)),
        ([-90.0, 90.0], True, (-90.0, 90.0)),
        ([180.0, -180.0], False, (180.0, 180.0)),
        ([180.0, -180.0], True, (-180.0, 180.0)),
        ([180.0, 0.0, -180.0], True, (-180.0, 180.0)),
        ([-120.0, 0.0, 120.0], True, (-180.0, 180.0)),
    ],
)
def test_a_box_is_no_wider_than_what_is_in_it(
    lons: list[float], is_area: bool, sides: tuple[float, float]
) -> None:
    box = box_of([(lon, 46.5) for lon in lons], is_area=is_area)
    assert (box.west, box.east) == sides


def test_a_part_of_the_map_is_searched_in_the_index_alone(sqlite_url: str) -> None:
    near = touching(Box(7.5, 46.5, 7.6, 46.6)).compile(
        dialect=sqlite.dialect(), compile_kwargs={"literal_binds": True}
    )

    async def run(database: Database) -> list[str]:
        async with database.reading() as connection:
            plan = await connection.execute(text(f"EXPLAIN QUERY PLAN {near}"))
            return [row[3] for row in plan if "obstruction" in row[3]]

    steps = with_database(sqlite_url, run)
    assert steps
    for step in steps:
        assert step.startswith("SEARCH obstruction USING COVERING INDEX ix_obstruction_strip (")
        assert "west>" in step


def test_a_place_beside_the_180th_meridian_is_learned_once(api: Api) -> None:
    def loss(name: str, lon: float) -> Lesson:
        approach, axis = ((lon, 9.99), (lon, 10.0)), ((lon, 10.0), (lon, 10.005))
        return Lesson(name, Observation(approach, axis))

    names, places = learn(api, loss("learned:a", 179.9999), loss("learned:b", -179.9999))
    assert names == ["learned:a"]
    assert places["learned:a"].lost == 2


@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 5])
def test_a_map_is_read_whole_in_portions(
    api: Api, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    monkeypatch.setattr(stored_map, "_READ_AT_ONCE", 2)
    names = list("abcde"[:count])
    if names:
        assert api.call("POST", PATH, collection(*map(feature, names))).status == 200
    assert learn(api)[0] == names


def test_few_pages_are_made_at_a_time_while_the_others_wait(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert api.call("POST", PATH, collection(feature("a"))).status == 200
    goes_on, read = threading.Event(), list[object]()
    content, page = obstructions_endpoint._content, stored.page

    def slow(given: Any) -> Any:
        goes_on.wait(60)
        return content(given)

    async def noted(*given: Any, **more: Any) -> Any:
        read.append(given)
        return await page(*given, **more)

    async def run() -> None:
        monkeypatch.setattr(obstructions_endpoint, "_content", slow)
        monkeypatch.setattr(stored, "page", noted)
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(api.ask("GET", PATH)) for _ in range(8)]
            while len(read) < 4:
                await asyncio.sleep(0.02)
            for _ in range(10):
                assert (await api.ask("GET", "/v1/beams/ku-1")).status == 200
            assert len(read) == 4
            goes_on.set()
        assert [task.result().status for task in tasks] == [200] * 8

    api.run(run())


def test_an_id_with_a_slash_is_deleted(api: Api) -> None:
    api.call("POST", PATH, collection(feature("osm:way/1")))
    assert api.call("DELETE", f"{PATH}/osm:way%2F1").status == 204
    assert api.call("DELETE", f"{PATH}/osm:way%2F1").status == 404
    assert ids(api) == []


@pytest.mark.parametrize(
    "wrong",
    [
        {"geometry": {"type": "Point", "coordinates": [7.5, 46.5]}},
        {"geometry": None},
        {"geometry": {"type": "LineString", "coordinates": [[7.5, 46.5]]}},
        {"geometry": {"type": "LineString", "coordinates": [[7.5, 146.5], [7.5, 46.5]]}},
        {"geometry": {"type": "LineString", "coordinates": "'; DROP TABLE obstruction; --"}},
        {"properties": {"certainty": 2}},
        {"properties": {"name": "a\0b"}},
        {"properties": {"name": "a\nb"}},
        {"properties": {"name": "x" * 201}},
        {"id": "a\u200cb"},
        {"id": "x" * 129},
        {"type": "Thing"},
    ],
)
def test_malformed_geojson_is_refused_whole(unchanged: Api, wrong: dict[str, Any]) -> None:
    refused = unchanged.call("POST", PATH, collection(feature("good"), feature("bad") | wrong))
    assert refused.status == 422
    assert refused.problem
    assert ids(unchanged) == []


def test_only_operators_set_obstructions(api: Api) -> None:
    for caller in ("viewer", "gateway", "first"):
        assert api.call("POST", PATH, collection(feature("a")), caller=caller).status == 403
        assert api.call("DELETE", f"{PATH}/a", caller=caller).status == 403
        assert api.get(PATH, caller=caller).status == 200


def test_a_map_is_imported_twice_with_the_same_result(url: str) -> None:
    def run(path: Path, status: int = 0) -> str:
        command = ["obstruction", "import", str(path), "--json", "--database", url]
        result = CliRunner().invoke(app, command)
        assert result.exit_code == status, result.output
        return result.stdout

    first = json.loads(run(ISLAND))
    assert first["imported"] > 0
    assert json.loads(run(ISLAND)) == first
    run(Path("/nowhere.osm"), status=1)
