"""Positions on the grid of tiles, and the pieces of geometries in each tile."""

from __future__ import annotations

import math

import numpy as np
import pytest
import shapely
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.tiles.grid import (
    BUFFER,
    EXTENT,
    Piece,
    Tile,
    TooManyPiecesError,
    pieces,
    projected,
)

AROUND = shapely.box(-BUFFER, -BUFFER, EXTENT + BUFFER, EXTENT + BUFFER)
LONGITUDES, LATITUDES = st.floats(-180, 180), st.floats(-90, 90)


def cut(geometry: shapely.Geometry, zoom: int, most: int = 10_000) -> list[Piece]:
    """Return the pieces of a geometry in degrees at one zoom."""
    return [one for part in projected(geometry) for one in pieces(part, zoom, zoom, most)]


@pytest.mark.parametrize(
    ("longitude", "latitude", "tile", "place"),
    [
        (0.0, 0.0, Tile(0, 0, 0), (2048, 2048)),
        (-180.0, 85.0511287798066, Tile(0, 0, 0), (0, 0)),
        # Bern's clock tower, and the island's middle.
        (7.4463, 46.9481, Tile(13, 4265, 2883), None),
        (-30.0, 46.0, Tile(13, 3413, 2914), None),
    ],
)
def test_a_place_is_in_the_tile_that_all_maps_have_it_in(
    longitude: float, latitude: float, tile: Tile, place: tuple[int, int] | None
) -> None:
    (one,) = cut(shapely.Point(longitude, latitude), tile.z)
    assert one.tile == tile
    west, south, east, north = tile.box()
    assert west <= longitude <= east
    assert south <= latitude <= north + 1e-9
    if place is not None:
        assert shapely.get_coordinates(one.geometry)[0] == pytest.approx(place, abs=1e-6)


@given(LONGITUDES, LATITUDES, st.integers(0, 14))
def test_each_place_is_in_one_tile_at_most_and_where_the_box_says(
    longitude: float, latitude: float, zoom: int
) -> None:
    found = cut(shapely.Point(longitude, latitude), zoom)
    assert len(found) <= 1
    for tile, geometry in found:
        west, south, east, north = tile.box()
        x, y = shapely.get_coordinates(geometry)[0]
        assert west + (east - west) * x / EXTENT == pytest.approx(longitude, abs=1e-6)
        assert 0 <= y < EXTENT
        if abs(latitude) < 85.05:
            assert south - 1e-9 <= latitude <= north + 1e-9


def test_a_line_is_cut_where_the_tiles_meet_and_both_have_the_margin() -> None:
    # Along the equator from tile (1, 0, *) into (1, 1, *): x is exact there.
    found = {one.tile: one.geometry for one in cut(shapely.LineString([(-90, 10), (90, 10)]), 1)}
    assert set(found) == {Tile(1, 0, 0), Tile(1, 1, 0)}
    west, _, east, _ = shapely.bounds(found[Tile(1, 0, 0)])
    assert (west, east) == pytest.approx((EXTENT / 2, EXTENT + BUFFER))
    west, _, east, _ = shapely.bounds(found[Tile(1, 1, 0)])
    assert (west, east) == pytest.approx((-BUFFER, EXTENT / 2))


def test_an_area_fills_the_tiles_within_it_and_keeps_its_hole() -> None:
    hole = [(-1, -1), (1, -1), (1, 1), (-1, 1), (-1, -1)]
    area = shapely.Polygon([(-60, -60), (60, -60), (60, 60), (-60, 60), (-60, -60)], [hole])
    found = {one.tile: one.geometry for one in cut(area, 4)}
    inner = found[Tile(4, 6, 6)]
    assert shapely.bounds(inner) == pytest.approx(
        (-BUFFER, -BUFFER, EXTENT + BUFFER, EXTENT + BUFFER)
    )
    corner = found[Tile(4, 8, 7)]
    size = EXTENT * 16 / 360
    assert not shapely.contains_xy(corner, size / 2, EXTENT - size / 2)
    assert shapely.contains_xy(corner, 3 * size, EXTENT / 2)


@given(
    st.lists(st.tuples(st.floats(5, 9), st.floats(45, 48)), min_size=2, max_size=8),
    st.integers(5, 10),
)
def test_the_pieces_of_a_line_are_the_line(places: list[tuple[float, float]], zoom: int) -> None:
    line = shapely.LineString(places)
    # A tile draws a line that goes there and back only once.
    if line.length < 0.1 or shapely.unary_union(line).length < 0.99 * line.length:
        return
    (whole,) = projected(line)
    scale = EXTENT * 2**zoom
    length = 0.0
    for tile, geometry in cut(line, zoom):
        origin = np.array([tile.x * EXTENT, tile.y * EXTENT])
        here = shapely.transform(whole, lambda of, at=origin: of * scale - at)
        # The last zoom's tolerance is a unit.
        assert shapely.hausdorff_distance(geometry, shapely.intersection(here, AROUND)) < 1.5
        length += shapely.clip_by_rect(geometry, 0, 0, EXTENT, EXTENT).length
    assert length == pytest.approx(whole.length * scale, rel=0.02, abs=20)


def test_who_crosses_the_antimeridian_is_drawn_on_both_sides_and_not_around_the_earth() -> None:
    for line in ([(179, 10), (-179, 10)], [(-179, 10), (179, 10)]):
        found = cut(shapely.LineString(line), 4)
        assert {one.tile.x for one in found} == {0, 15}
    ring = [(178, -20), (-178, -20), (-178, -15), (178, -15), (178, -20)]
    hole = [(179, -18), (-179, -18), (-179, -17), (179, -17), (179, -18)]
    found = cut(shapely.Polygon(ring, [hole]), 6)
    assert {one.tile.x for one in found} == {0, 63}
    # 2° of longitude on each side, with the half of the hole that is there.
    wide = 2.0 / (360 / 64) * EXTENT
    for tile, geometry in found:
        left, top, right, bottom = shapely.bounds(geometry)
        assert right - left == pytest.approx(wide, abs=1)
        if tile.y == 35:
            missing = (right - left) * (bottom - top) - shapely.area(geometry)
            assert missing == pytest.approx((wide / 2) * wide / 2 / 0.953, rel=0.02)


def test_what_lies_at_the_poles_is_on_the_map_s_edge() -> None:
    around = [(longitude, -80.0) for longitude in range(-180, 181, 10)]
    cap = shapely.Polygon([(-180, -90), *around, (180, -90), (-180, -90)])
    found = cut(cap, 3)
    assert {one.tile.y for one in found} == {7}
    assert {one.tile.x for one in found} == set(range(8))
    for _, geometry in cut(shapely.LineString([(10, 89), (12, -89.9)]), 2):
        assert math.isfinite(shapely.length(geometry))


def test_what_lies_in_too_many_tiles_is_refused_before_they_are_made() -> None:
    taken: list[Piece] = []
    made = pieces(shapely.box(0.01, 0.01, 0.99, 0.99), 4, 13, 1_000)
    with pytest.raises(TooManyPiecesError):
        while True:
            taken.append(next(made))
    assert len(taken) == 1_000


def test_small_areas_come_in_where_they_can_be_seen() -> None:
    def zooms(degrees: float) -> set[int]:
        (flat,) = projected(shapely.box(7.0, 46.0, 7.0 + degrees, 46.0 + degrees))
        return {one.tile.z for one in pieces(flat, 4, 13, 10_000)}

    assert min(zooms(1.0)) == 4
    assert 9 <= min(zooms(0.005)) <= 12
    # The last zoom has everything, since it is shown enlarged.
    assert zooms(0.0001) == {13}
