"""Vector tiles over REST: stored as a whole, served one by one, deleted with their map."""

from __future__ import annotations

import asyncio
import base64
import gzip
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import mapbox_vector_tile
import pytest
import shapely
from sqlalchemy import func, select
from typer.testing import CliRunner
from underpass_control.cli import app
from underpass_control.http import tiles as endpoints
from underpass_control.http.sequences import Pace
from underpass_control.pruning import prune
from underpass_control.storage import tilesets
from underpass_control.storage.models import MapTile, Tileset
from underpass_control.tiles.encoding import MOST_TILE_BYTES, TileContent, encoded
from underpass_control.tiles.grid import Tile
from underpass_control.tiles.sequence import to_text

from tests.control_api.drawn import draw
from tests.control_api.service.api import Api, Reply, served
from tests.control_api.service.test_maps import counts, put
from tests.control_api.service.test_maps import tunnel as obstruction
from tests.drives.island import ISLAND_OSM, PLANE

KIND = "application/json-seq"


def content(name: str = "x") -> bytes:
    """Return a tile's content, gzipped."""
    properties = json.dumps({"class": "town", "name": name, "rank": 1})
    made = encoded([(3, properties, shapely.Point(5, 5))])
    assert made is not None
    return gzip.compress(made, mtime=0)


def text(tile: Any, packed: bytes) -> bytes:
    """Return a text of a sequence, with any content."""
    return json.dumps({"tile": tile, "content": base64.b64encode(packed).decode()}).encode() + b"\n"


def send(api: Api, source: str, *texts: bytes) -> Reply:
    return api.call("PUT", f"/v1/maps/{source}/tiles", b"".join(texts), content_type=KIND)


def set_tiles(api: Api, source: str, *tiles: tuple[int, int, int], name: str = "x") -> None:
    """Set a map's tiles."""
    texts = [to_text(TileContent(Tile(*one), content(name))) for one in tiles]
    answer = send(api, source, *texts)
    assert (answer.status, answer.json["tiles"]) == (200, len(tiles)), answer.text


def fetch(api: Api, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
    """Ask for a tile as a viewer; return status, headers and body."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}

    async def ask() -> tuple[int, dict[str, str], bytes]:
        asked = {**api.headers("viewer"), **given}
        async with api.client.get(path, headers=asked) as answer:
            return answer.status, dict(answer.headers), await answer.read()

    return api.run(ask())


def names(api: Api, path: str) -> list[str]:
    """Return the places in a tile; none where it is empty."""
    status, _, raw = fetch(api, path)
    if status == 204:
        assert raw == b""
        return []
    assert status == 200
    layers = mapbox_vector_tile.decode(raw)
    return [one["properties"]["name"] for one in layers["places"]["features"]]


def stored(api: Api) -> tuple[int, int]:
    """Return how many sets and tiles the database has."""

    async def count() -> tuple[int, int]:
        async with api.database.reading() as connection:
            sets = await connection.scalar(select(func.count()).select_from(Tileset))
            tiles = await connection.scalar(select(func.count()).select_from(MapTile))
            return sets or 0, tiles or 0

    return api.run(count())


def described(api: Api) -> dict[str, Any]:
    return {one["source"]: one.get("tiles") for one in api.get("/v1/maps").json["maps"]}


def test_tiles_are_set_described_given_and_replaced_as_a_whole(api: Api) -> None:
    set_tiles(api, "town", (12, 2132, 1441), (13, 4265, 2883), name="old")
    one = described(api)["town"]
    assert (one["from_zoom"], one["to_zoom"], one["tiles"]) == (12, 13, 2)
    west, south, east, north = one["bounds"]
    assert west < 7.4463 < east
    assert south < 46.9481 < north
    assert east - west == pytest.approx(360 / 2**13)
    assert counts(api) == {"town": 0}
    assert names(api, "/v1/maps/town/tiles/13/4265/2883") == ["old"]
    assert names(api, "/v1/maps/town/tiles/13/4265/2884") == []
    set_tiles(api, "town", (13, 4265, 2883), name="new")
    assert names(api, "/v1/maps/town/tiles/13/4265/2883") == ["new"]
    assert names(api, "/v1/maps/town/tiles/12/2132/1441") == []
    assert described(api)["town"]["id"] > one["id"]
    entry = api.get("/v1/audit?target=/v1/maps/town/tiles", caller="administrator").json["entries"]
    assert [one["after"]["tiles"] for one in entry] == [1, 2]


def test_maps_side_by_side_keep_their_own(api: Api) -> None:
    set_tiles(api, "north", (5, 1, 1), name="north")
    set_tiles(api, "south", (5, 1, 1), name="south")
    for source in ("north", "south"):
        assert names(api, f"/v1/maps/{source}/tiles/5/1/1") == [source]
    assert api.call("DELETE", "/v1/maps/north").status == 204
    assert names(api, "/v1/maps/north/tiles/5/1/1") == []
    assert names(api, "/v1/maps/south/tiles/5/1/1") == ["south"]
    assert list(described(api)) == ["south"]


def test_a_map_that_is_replaced_or_deleted_takes_its_tiles_along(api: Api) -> None:
    assert put(api, "town", obstruction("a")).status == 200
    set_tiles(api, "town", (5, 1, 1))
    assert counts(api) == {"town": 1}
    assert put(api, "town", obstruction("b")).status == 200
    assert described(api) == {"town": None}
    set_tiles(api, "town", (5, 1, 1), (6, 2, 2))
    assert api.call("DELETE", "/v1/maps/town").status == 204
    assert described(api) == {}
    assert api.call("DELETE", "/v1/maps/town").status == 404
    # The service itself may have pruned some of them.
    by_itself = api.service._metrics.tiles_pruned
    assert api.run(prune(api.database, tilesets.prune, 0)) + by_itself._value.get() == 3
    assert stored(api) == (0, 0)


def test_what_is_current_is_not_pruned_nor_what_is_still_coming(api: Api) -> None:
    set_tiles(api, "town", (5, 1, 1))

    async def coming() -> int:
        async def portions() -> AsyncIterator[list[TileContent]]:
            yield [TileContent(Tile(5, 2, 2), content())]
            assert await prune(api.database, tilesets.prune, 0) == 0
            assert await tilesets_current() == 1

        await tilesets.replace(api.database, api.changes, "other", portions())
        return await prune(api.database, tilesets.prune, 2**60)

    async def tilesets_current() -> int:
        async with api.database.reading() as connection:
            return len(await tilesets.current(connection, ["town", "other"]))

    assert api.run(coming()) == 0
    assert stored(api) == (2, 2)


def test_a_browser_asks_again_for_nothing_that_has_not_changed(api: Api) -> None:
    set_tiles(api, "town", (5, 1, 1))
    path = "/v1/maps/town/tiles/5/1/1"
    number = described(api)["town"]["id"]
    status, first, body = fetch(api, f"{path}?tileset={number}", Accept_Encoding="br")
    assert (status, body) == (200, gzip.decompress(content()))
    assert "max-age=86400" in first["Cache-Control"]
    assert "Content-Encoding" not in first
    assert first["Content-Type"] == "application/vnd.mapbox-vector-tile"
    assert fetch(api, path, Accept_Encoding="gzip")[1]["Content-Encoding"] == "gzip"
    status, again, body = fetch(api, path, If_None_Match=first["Etag"])
    assert (status, body, again["Cache-Control"]) == (304, b"", "no-cache")
    set_tiles(api, "town", (5, 1, 1), name="y")
    status, stale, _ = fetch(api, f"{path}?tileset={number}", If_None_Match=first["Etag"])
    assert (status, stale["Cache-Control"]) == (200, "no-cache")


@pytest.mark.parametrize(
    "path", ["15/0/0", "3/8/0", "3/0/8", "-1/0/0", "3/1.5/0", "x/0/0", "5/" + "9" * 40 + "/0"]
)
def test_what_is_no_tile_of_any_map_is_not_found(unchanged: Api, path: str) -> None:
    assert unchanged.get(f"/v1/maps/town/tiles/{path}").status == 404


def test_a_tile_of_no_map_is_empty_and_no_error(api: Api) -> None:
    for source in ("none", "learned", "x" * 200):
        assert api.get(f"/v1/maps/{source}/tiles/3/1/1", caller="viewer").status == 204


BOMB = gzip.compress(b"\x1a" * (MOST_TILE_BYTES + 1))
OTHER = gzip.compress(
    mapbox_vector_tile.encode(
        [{"name": "other", "features": [{"geometry": "POINT (1 1)", "properties": {}}]}]
    )
)
COARSE = gzip.compress(
    mapbox_vector_tile.encode(
        [{"name": "places", "features": [{"geometry": "POINT (1 1)", "properties": {}}]}],
        default_options={"extents": 64},
    )
)
BAD = [
    (b"", "no tile"),
    (b"{}\n", "tile and content"),
    (b"[]\n", "tile and content"),
    (b"{\n", "tile and content"),
    (b"[" * 100_000 + b"\n", "tile and content"),
    (text([5, 1], content()), "three whole numbers"),
    (text([5, 1, True], content()), "three whole numbers"),
    (text([5, 1.0, 1], content()), "three whole numbers"),
    (text([15, 1, 1], content()), "no tile"),
    (text([3, 8, 1], content()), "no tile"),
    (text([3, -1, 1], content()), "no tile"),
    (text([3, 1, 1], b"no gzip"), "not gzipped"),
    (text([3, 1, 1], content()[:-4]), "whole gzip member"),
    (text([3, 1, 1], content() + content()), "whole gzip member"),
    (text([3, 1, 1], BOMB), "has more than"),
    (text([3, 1, 1], gzip.compress(b"\xff" * 9)), "no vector tile"),
    (text([3, 1, 1], gzip.compress(b"")), "its layers"),
    (text([3, 1, 1], OTHER), "its layers"),
    (text([3, 1, 1], COARSE), "extent"),
    (b'{"tile": [3, 1, 1], "content": "!"}\n', "tile and content"),
    (text([4, 1, 1], content()) * 2, "twice"),
    (b"x" * (3 << 20), "more than"),
]


@pytest.mark.parametrize(("bad", "reason"), BAD, ids=[str(n) for n in range(len(BAD))])
def test_a_bad_tile_leaves_the_map_s_tiles_as_they_were(
    unchanged: Api, bad: bytes, reason: str
) -> None:
    set_tiles(unchanged, "town", (5, 1, 1), name="old")
    before = described(unchanged)
    good = [text([5, 1, 1], content("new"))] if bad else []
    refused = send(unchanged, "town", *good, bad)
    assert (refused.status, reason in refused.problem) == (422, True), refused.text
    assert len(refused.text) < 600
    assert described(unchanged) == before
    assert names(unchanged, "/v1/maps/town/tiles/5/1/1") == ["old"]
    unchanged.run(prune(unchanged.database, tilesets.prune, 0))
    assert stored(unchanged) == (1, 1)


def test_what_is_too_large_or_stands_still_is_refused(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(endpoints, "_MOST_TILES", 2)
    many = [text([5, n, 1], content()) for n in range(3)]
    refused = send(api, "town", *many)
    assert (refused.status, "more than 2 tiles" in refused.problem) == (422, True)
    monkeypatch.setattr(endpoints, "_MOST_BYTES", 100)
    with suppress(ConnectionError):
        assert send(api, "town", *many).status == 413
    monkeypatch.undo()
    monkeypatch.setattr(endpoints, "_PACE", Pace(0.2, 1.0, 10.0))

    async def silent() -> AsyncIterator[bytes]:
        yield many[0]
        await asyncio.sleep(20)

    async def ask() -> int:
        headers = {**api.headers("operator"), "Content-Type": KIND}
        path = "/v1/maps/town/tiles"
        async with api.client.put(path, data=silent(), headers=headers) as answer:
            return answer.status

    assert api.run(ask()) == 408
    assert described(api) == {}


async def half_sent(
    api: Api, ground: bytes
) -> tuple[asyncio.Task[aiohttp.ClientResponse], asyncio.Event, Reply]:
    """Begin to send a set; return the request, what lets it go on, and another's refusal."""
    began, go_on = asyncio.Event(), asyncio.Event()

    async def slow() -> AsyncIterator[bytes]:
        yield text([5, 1, 1], ground)
        began.set()
        await go_on.wait()

    headers = {**api.headers("operator"), "Content-Type": KIND}
    path = "/v1/maps/town/tiles"
    first = asyncio.create_task(api.client.put(path, data=slow(), headers=headers))
    await began.wait()
    # The first one's data has to have arrived.
    for _ in range(100):
        second = await api.ask("PUT", path, text([5, 1, 1], content()), content_type=KIND)
        if second.status == 503:
            break
        await asyncio.sleep(0.05)
    return first, go_on, second


async def test_one_set_is_taken_at_a_time_and_who_is_overtaken_is_told(api: Api) -> None:
    first, go_on, second = await half_sent(api, content("slow"))
    go_on.set()
    answer = await first
    answer.close()
    assert (second.status, answer.status) == (503, 200)


def test_tiles_of_a_map_that_is_replaced_while_they_come_are_not_its_ground(api: Api) -> None:
    async def overtaken() -> tuple[int, str]:
        first, go_on, _ = await half_sent(api, content("of the map before"))
        await asyncio.sleep(0.2)
        body, kind = json.dumps(obstruction("a")), "application/geo+json-seq"
        replaced = await api.ask("PUT", "/v1/maps/town", body, content_type=kind)
        assert replaced.status == 200, replaced.text
        go_on.set()
        async with await first as answer:
            return answer.status, await answer.text()

    status, told = api.run(overtaken())
    assert (status, "somebody else has set town" in told) == (409, True), told
    assert described(api) == {"town": None}
    set_tiles(api, "town", (5, 1, 1))


def test_viewers_see_tiles_and_do_not_set_them(api: Api) -> None:
    for caller in ("viewer", "gateway", "first"):
        body = text([5, 1, 1], content())
        answer = api.call("PUT", "/v1/maps/town/tiles", body, content_type=KIND, caller=caller)
        assert answer.status == 403
        assert api.get("/v1/maps/town/tiles/5/1/1", caller=caller).status == 204
    assert api.get("/v1/maps/town/tiles/5/1/1", caller=None).status == 401
    learned = send(api, "learned", text([5, 1, 1], content()))
    assert (learned.status, "learned" in learned.problem) == (409, True)


def test_an_extract_is_imported_with_its_tiles(url: str, tmp_path: Path) -> None:
    def imported(path: Path, *options: str) -> dict[str, int]:
        command = ["obstruction", "import", str(path), "--json", "--source", "island", *options]
        done = CliRunner().invoke(app, [*command, "--database", url])
        assert done.exit_code == 0, done.output
        told: dict[str, int] = json.loads(done.stdout)
        return told

    def tiles() -> dict[str, Any]:
        # Not during an import: SQLite has only one writer.
        with served(url) as api:
            return described(api)

    told = imported(ISLAND_OSM)
    assert told["imported"] == 9
    one = tiles()["island"]
    assert (one["tiles"], one["to_zoom"]) == (told["tiles"], 13)
    west, south, east, north = one["bounds"]
    assert west < -30.0 < east
    assert south < 46.0 < north
    assert "tiles" not in imported(ISLAND_OSM, "--no-tiles")
    assert tiles() == {"island": None}
    plain = draw(tmp_path / "x.osm", PLANE, ("0,0 900,0", {"highway": "primary"}))
    assert imported(plain) == {"imported": 0, "removed": 9, "tiles": 6}
    assert tiles()["island"]["tiles"] == 6
