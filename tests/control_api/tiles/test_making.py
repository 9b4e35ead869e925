"""Tiles of extracts: which objects are drawn as which kinds, wound and cut as specified."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path
from typing import Any

import mapbox_vector_tile
import numpy as np
import pytest
import shapely
from mapbox_vector_tile.Mapbox import vector_tile_pb2
from underpass_control.obstructions.extract import ExtractError
from underpass_control.tiles import encoding, making
from underpass_control.tiles.encoding import TileContent, encoded
from underpass_control.tiles.grid import BUFFER, EXTENT, Tile
from underpass_control.tiles.kinds import LAYERS, line_kind, place_kind
from underpass_control.tiles.making import Tiles

from tests.control_api.drawn import Drawn, draw
from tests.drives import field
from tests.drives.island import ISLAND_OSM, PLANE


def made(path: Path, *ways: Drawn) -> dict[Tile, dict[str, Any]]:
    """Return the tiles of ways drawn in metres."""
    return tiles_of(draw(path, PLANE, *ways))


def tiles_of(path: Path) -> dict[Tile, dict[str, Any]]:
    """Return an extract's tiles, decoded, with the grid's axes."""
    with Tiles(path) as tiles:
        return {one.tile: decoded(gzip.decompress(one.content)) for one in tiles}


def decoded(content: bytes) -> dict[str, Any]:
    found: dict[str, Any] = mapbox_vector_tile.decode(
        content, default_options={"y_coord_down": True}
    )
    return found


def classes(tiles: dict[Tile, dict[str, Any]], zoom: int, layer: str) -> set[str]:
    """Return the classes in a layer at a zoom."""
    return {
        one["properties"]["class"]
        for tile, layers in tiles.items()
        if tile.z == zoom and layer in layers
        for one in layers[layer]["features"]
    }


SQUARE = "0,0 900,0 900,900 0,900 0,0"


@pytest.mark.parametrize(
    ("points", "tags", "layer", "kind"),
    [
        ("0,0 900,0", {"highway": "motorway"}, "roads", "motorway"),
        ("0,0 900,0", {"highway": "residential"}, "roads", "minor"),
        ("0,0 900,0", {"highway": "footway"}, "roads", None),
        ("0,0 900,0", {"railway": "rail"}, "roads", "rail"),
        ("0,0 900,0", {"waterway": "river"}, "water", "river"),
        ("0,0 900,0", {"waterway": "stream", "tunnel": "culvert"}, "water", None),
        ("0,0 900,0", {"natural": "coastline"}, "water", "coast"),
        (SQUARE, {"natural": "water"}, "water", "lake"),
        (SQUARE, {"landuse": "forest"}, "land", "forest"),
        (SQUARE, {"landuse": "residential"}, "land", "built"),
        (SQUARE, {"landuse": "farmland"}, "land", None),
    ],
)
def test_what_is_drawn(
    tmp_path: Path, points: str, tags: dict[str, str], layer: str, kind: str | None
) -> None:
    found = classes(made(tmp_path / "x.osm", (points, tags)), 13, layer)
    assert found == (set() if kind is None else {kind})


def test_a_road_is_drawn_from_the_zoom_of_its_class_on_and_tunnels_are_told(tmp_path: Path) -> None:
    found = made(
        tmp_path / "x.osm",
        ("-3000,0 3000,0", {"highway": "motorway"}),
        ("3000,0 5000,0", {"highway": "motorway", "tunnel": "yes"}),
        ("0,0 0,3000", {"highway": "residential"}),
    )
    assert classes(found, 5, "roads") == {"motorway"}
    assert classes(found, 11, "roads") == {"motorway"}
    assert classes(found, 12, "roads") == {"motorway", "minor"}
    last = [layers["roads"] for tile, layers in found.items() if tile.z == 13]
    told = {
        (one["properties"]["class"], one["properties"].get("tunnel"))
        for layer in last
        for one in layer["features"]
    }
    assert told == {("motorway", None), ("motorway", True), ("minor", None)}


def test_areas_are_wound_as_the_specification_asks_and_stay_within_the_margin(
    tmp_path: Path,
) -> None:
    outer = "-3000,-3000 3000,-3000 3000,3000 -3000,3000 -3000,-3000"
    backwards = " ".join(reversed(outer.split()))
    for points in (outer, backwards):
        with Tiles(draw(tmp_path / "x.osm", PLANE, (points, {"natural": "water"}))) as tiles:
            contents = [gzip.decompress(one.content) for one in tiles if one.tile.z == 13]
        assert len(contents) >= 4
        for content in contents:
            rings = rings_of(content)
            assert rings
            for ring in rings:
                assert (np.array(ring) >= -BUFFER).all()
                assert (np.array(ring) <= EXTENT + BUFFER).all()
            # An exterior ring's area by the surveyor's formula is positive, y down (4.3.4.4).
            assert surveyed(rings[0]) > 0
            assert all(surveyed(ring) != 0 for ring in rings)


def rings_of(content: bytes) -> list[list[tuple[int, int]]]:
    """Read the rings of a tile's areas by the specification, without the library's decoder."""
    tile = vector_tile_pb2.tile()
    tile.ParseFromString(content)
    rings: list[list[tuple[int, int]]] = []
    for layer in tile.layers:
        assert (layer.version, layer.extent) == (2, EXTENT)
        for feature in (one for one in layer.features if one.type == tile.Polygon):
            x = y = at = 0
            numbers = list(feature.geometry)
            while at < len(numbers):
                command, count = numbers[at] & 7, numbers[at] >> 3
                at += 1
                for _ in range(count if command != 7 else 0):
                    x += (numbers[at] >> 1) ^ -(numbers[at] & 1)
                    y += (numbers[at + 1] >> 1) ^ -(numbers[at + 1] & 1)
                    at += 2
                    if command == 1:
                        rings.append([])
                    rings[-1].append((x, y))
    return rings


def surveyed(ring: list[tuple[int, int]]) -> float:
    return (
        sum(a[0] * b[1] - b[0] * a[1] for a, b in zip(ring, ring[1:] + ring[:1], strict=True)) / 2
    )


def test_an_area_with_a_hole_crossing_itself_is_drawn_validly() -> None:
    bow_tie = shapely.Polygon([(0, 0), (400, 400), (400, 0), (0, 400), (0, 0)])
    content = encoded([(LAYERS.index("water"), '{"class": "lake"}', bow_tie)])
    assert content is not None
    assert sum(surveyed(ring) for ring in rings_of(content)) == pytest.approx(80_000, rel=0.02)


@pytest.mark.parametrize(
    ("tags", "is_drawn"),
    [
        ({"place": "town", "name": "Bern"}, True),
        ({"place": "town", "name": "<img src=x onerror=alert(1)>"}, True),
        ({"place": "town", "name": "x" * 61}, False),
        ({"place": "town", "name": "a\u202eb"}, False),
        ({"place": "town", "name": " "}, False),
        ({"place": "town"}, False),
        ({"place": "planet", "name": "Earth"}, False),
    ],
)
def test_places_have_names_that_can_be_shown(tags: dict[str, str], is_drawn: bool) -> None:
    assert (place_kind(tags) is not None) == is_drawn


def test_larger_places_come_first_whatever_the_file_says_of_people() -> None:
    def rank(place: str, people: str) -> int:
        kind = place_kind({"place": place, "name": "x", "population": people})
        assert kind is not None
        return int(dict(kind.properties)["rank"])

    order = [
        rank("city", "900000"),
        rank("city", "10"),
        rank("town", "9" * 5000),
        rank("town", "-1"),
    ]
    assert order == sorted(order)
    assert rank("town", "9" * 9) > rank("city", "")


def test_slip_roads_come_with_the_roads_around() -> None:
    kind = line_kind({"highway": "motorway_link"})
    assert kind is not None
    assert (dict(kind.properties)["class"], kind.from_zoom) == ("motorway", 11)


def test_the_same_extract_gives_the_same_bytes() -> None:
    def once() -> list[TileContent]:
        with Tiles(ISLAND_OSM) as tiles:
            return list(tiles)

    first = once()
    assert first == once()
    assert [one.tile for one in first] == sorted(one.tile for one in first)
    assert {one.tile.z for one in first} == set(range(5, 14))


@pytest.mark.parametrize(
    "content",
    [b"", b"\x00" * 100, b"<osm", b"\x1f\x8b" + b"x" * 50],
    ids=["empty", "zeros", "cut", "no gzip"],
)
@pytest.mark.parametrize("ending", [".osm", ".osm.pbf", ".osm.gz"])
def test_what_is_no_extract_is_said_to_be_none(tmp_path: Path, content: bytes, ending: str) -> None:
    path = tmp_path / f"x{ending}"
    path.write_bytes(content)
    with pytest.raises(ExtractError, match=r"x\.osm"):
        Tiles(path)
    with pytest.raises(ExtractError, match="no such file"):
        Tiles(tmp_path / "none.osm.pbf")


def test_a_hostile_extract_costs_no_more_than_its_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "_MOST_PIECES", 500)
    path = tmp_path / "x.osm"
    corners = [(-170, -80), (0, -80), (0, 80), (-170, 80)]
    nodes = "".join(
        f'<node id="{number}" version="1" lon="{lon}" lat="{lat}"/>'
        for number, (lon, lat) in enumerate(corners, 1)
    )
    # A sea of half the Earth, a way that is a point, one without nodes, and one of unknown nodes.
    ways = [[1, 2, 3, 4, 1], [1, 1, 1], [], [98, 99]]
    tags = ('natural" v="water', 'highway" v="motorway', *['highway" v="motorway'] * 2)
    made_ways = "".join(
        f'<way id="{number}" version="1">'
        + "".join(f'<nd ref="{ref}"/>' for ref in refs)
        + f'<tag k="{tag}"/></way>'
        for number, (refs, tag) in enumerate(zip(ways, tags, strict=True), 1)
    )
    path.write_text(f'<osm version="0.6">{nodes}{made_ways}</osm>')
    with Tiles(path) as tiles:
        assert tiles.left_out == 1
        assert tiles.most <= 500


def test_a_tile_with_too_much_in_it_loses_what_comes_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(encoding, "MOST_TILE_BYTES", 4_000)
    rows = [
        (LAYERS.index("land"), '{"class": "built"}', shapely.box(x, x, x + 9, x + 9))
        for x in range(0, 4000, 4)
    ]
    content = encoded(rows)
    assert content is not None
    assert 1_000 < len(content) <= 4_000


def test_memory_holds_a_tile_and_not_the_map(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A write takes more rows than such small maps have.
    monkeypatch.setattr(making, "_AT_ONCE", 50)

    def peak(count: int) -> int:
        ways = [
            (f"{x},{y} {x + 400},{y + 300}", {"highway": "residential"})
            for x in range(0, 500 * count, 500)
            for y in range(0, 4_000, 500)
        ]
        path = draw(tmp_path / f"{count}.osm", PLANE, *ways)
        tracemalloc.start()
        with Tiles(path) as tiles:
            assert sum(1 for _ in tiles) > count / 4
            _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    assert peak(120) < 1.5 * peak(30)


@pytest.mark.skipif(bool(field.missing(field.ANDORRA)), reason="no field data")
def test_a_country_s_tiles() -> None:
    found = tiles_of(field.FIELD / field.ANDORRA)
    assert classes(found, 13, "roads") >= {"main", "secondary", "minor"}
    (tile,) = [
        tile
        for tile, layers in found.items()
        if tile.z == 13
        for one in layers.get("places", {"features": []})["features"]
        if one["properties"]["name"] == "Andorra la Vella"
    ]
    west, south, east, north = tile.box()
    assert west < 1.5218 < east
    assert south < 42.5063 < north
