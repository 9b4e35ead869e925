"""Broken maps: they cost little, and do not harm the predictions from correct roads nearby."""

from __future__ import annotations

import math

import pytest

from dama.prediction import (
    Blockage,
    Fix,
    Obstruction,
    ObstructionError,
    ObstructionMap,
    Predictor,
)
from dama.prediction.cover import obstructions_of
from dama.prediction.network import MOST_NODES, Network, Way
from dama.prediction.obstruction import MAX_POSITIONS
from dama.prediction.places import Line, Position
from dama.prediction.route import Route

_PRIMARY = {"highway": "primary"}
_COVERED = {**_PRIMARY, "tunnel": "yes"}
# The place where the road tunnel begins, and the length of it and of each road beside it.
_PORTAL = (10.0, 47.0)
_LENGTH_M = 400.0


def _east(place: Position, metres: float) -> Position:
    """Return the place so far east, across the 180th meridian where it lies there."""
    lon = place[0] + metres / (111_195.0 * math.cos(math.radians(place[1])))
    return (lon + 180.0) % 360.0 - 180.0, place[1]


def _roads(portal: Position = _PORTAL, level: str = "-1") -> list[Way]:
    """Draw a road from the west that leads through a tunnel."""
    at = [_east(portal, n * _LENGTH_M) for n in (-1, 0, 1, 2)]
    tags = (_PRIMARY, {**_COVERED, "layer": level, "level": level}, _PRIMARY)
    return [Way(n, (n, n + 1), (at[n - 1], at[n]), tags[n - 1]) for n in (1, 2, 3)]


def _told(ways: list[Way], portal: Position = _PORTAL) -> dict[str | None, float]:
    """Return the blockages predicted for a vehicle that drives from the west to the portal."""
    predictor = Predictor(ObstructionMap(obstructions_of(Network(ways))))
    for second in range(31):
        place = _east(portal, 10.0 * second - _LENGTH_M)
        predictor.feed(Fix(1_000 * second, *place, 10.0, 90.0, 5.0))
    return {one.obstruction_id: one.confidence for one in predictor.blockages(30_000)}


@pytest.mark.parametrize(
    "broken",
    [
        Way(9, (2, 2), (_PORTAL, _PORTAL), _PRIMARY),
        Way(9, (2, 2), (_PORTAL, _PORTAL), _COVERED),
        Way(9, (2, 9), (_PORTAL, _PORTAL), _PRIMARY),
        Way(9, (2,), (_PORTAL,), _COVERED),
        Way(9, (), (), _COVERED),
    ],
    ids=["loop of a node", "covered loop", "of no length", "without an end", "without nodes"],
)
def test_a_way_that_leads_nowhere_draws_no_traffic(broken: Way) -> None:
    assert _told([*_roads(), broken]) == _told(_roads())
    assert _told(_roads())["osm:way/2"] > 0.9


def test_a_level_that_is_no_number_is_no_matter() -> None:
    assert _told(_roads(level="ground")) == _told(_roads())


def test_a_way_of_a_million_nodes_is_refused_before_it_costs() -> None:
    nodes = range(100, 100 + 1_000_000)
    endless = Way(9, tuple(nodes), (_PORTAL,) * len(nodes), _COVERED)
    with pytest.raises(ObstructionError, match=r"osm:way/9: 1000000 nodes.*split the way"):
        Network([*_roads(), endless])


def test_as_many_nodes_as_are_allowed_are_read() -> None:
    line = tuple(_east(_PORTAL, n / 10.0) for n in range(MOST_NODES))
    long = Way(9, tuple(range(100, 100 + MOST_NODES)), line, _PRIMARY)
    assert len(Network([long]).edges) == 2


def test_roads_that_are_drawn_too_finely_for_one_tunnel_are_left_out() -> None:
    winding = [
        Way(
            10 + number,
            (*range(1_000 * (number + 1), 1_000 * (number + 1) + 799), 2),
            tuple((_PORTAL[0], _PORTAL[1] + 1e-6 * (800 - n) * number) for n in range(800)),
            _PRIMARY,
        )
        for number in range(1, 31)
    ]
    (made,) = obstructions_of(Network([*_roads(), *winding]))
    assert sum(len(road.line) for road in made.roads) <= MAX_POSITIONS
    assert len(made.roads) > 20
    assert _told([*_roads(), *winding]) != {}


@pytest.mark.parametrize(
    "portal",
    [
        (179.9995, 10.0),
        (-179.99, -45.0),
        (25.0, 85.0),
        (25.0, -85.0),
        # The road to the portal crosses the 180th meridian, or ends at it.
        (-179.999, 60.0),
        (180.0, 0.0),
        (-180.0, 0.0),
    ],
)
def test_a_tunnel_is_told_wherever_on_earth(portal: Position) -> None:
    assert _told(_roads(portal), portal)["osm:way/2"] > 0.9


def _wood_ahead(lon: float, route: Line | None = None) -> Blockage:
    """Return the blockage of a wood that begins at a longitude, from 200 m before it."""
    south, north = (lon, 9.9995), (lon, 10.0005)
    ring = (south, _east(south, 100.0), _east(north, 100.0), north, south)
    on = ObstructionMap([Obstruction("wood", kind="area", area=(ring,))])
    predictor = Predictor(on, route=route)
    for second in range(31):
        place = _east((lon, 10.0), 10.0 * second - 500.0)
        predictor.feed(Fix(1_000 * second, *place, 10.0, 90.0, 5.0))
    (blockage,) = predictor.blockages(30_000)
    return blockage


_BESIDE_180 = pytest.mark.parametrize("lon", [179.99, 179.9995, 180.0, -180.0, -179.9995])


@_BESIDE_180
def test_an_area_is_told_across_the_180th_meridian(lon: float) -> None:
    blockage = _wood_ahead(lon)
    assert blockage.obstruction_id == "wood"
    assert blockage.entry_ms == pytest.approx(50_000, abs=1_000)


@_BESIDE_180
@pytest.mark.parametrize("step_m", [37, 250])
def test_an_area_on_a_route_is_told_across_the_180th_meridian(lon: float, step_m: int) -> None:
    route = tuple(_east((lon, 10.0), float(metres)) for metres in range(-3_000, 3_001, step_m))
    blockage = _wood_ahead(lon, route)
    assert blockage.confidence > 0.9
    assert blockage.entry_ms == pytest.approx(50_000, abs=1_000)
    assert blockage.exit_ms == pytest.approx(60_000, abs=1_000)


@pytest.mark.parametrize("lon", [10.0, 180.0, -180.0])
def test_a_road_beside_is_kept_across_the_180th_meridian(lon: float) -> None:
    # The tunnel's road ends 20 m before the meridian, the other one begins 20 m behind it.
    portal = _east((lon, 47.0), -2.0 * _LENGTH_M - 20.0)
    beside = Way(9, (90, 91), (_east((lon, 47.0), 20.0), _east((lon, 47.0), 200.0)), _PRIMARY)
    (made,) = obstructions_of(Network([*_roads(portal), beside]))
    assert {"osm:way/9/0-1", "osm:way/9/1-0"} <= {road.id for road in made.roads}


@pytest.mark.parametrize("lon", [10.0, 180.0, -180.0])
def test_covered_roads_beside_a_line_are_found_across_the_180th_meridian(lon: float) -> None:
    portal, west = _east((lon, 10.0), 20.0), _east((lon, 10.0), -20.0)
    on = ObstructionMap(obstructions_of(Network(_roads(portal))))
    north = tuple((west[0], 10.0 + 0.01 * n) for n in (-2, -1, 0, 1, 2))
    assert on.covered_beside(north, 300.0) == {1, 2}
    across = (_east((lon + 90.0, 10.0), -50.0), _east((lon + 90.0, 10.0), 50.0))
    assert on.covered_beside(across, 300.0) == set()


def test_a_line_across_the_180th_meridian_does_not_go_round_the_earth() -> None:
    on = ObstructionMap(obstructions_of(Network(_roads())))
    lat = _PORTAL[1]
    assert on.covered_beside(((179.999, lat), (-179.999, lat)), 300.0) == set()


def test_a_vehicle_keeps_to_a_route_on_the_other_side_of_the_180th_meridian() -> None:
    route = Route(tuple((179.99998, 0.001 * n) for n in range(-30, 31)), ObstructionMap([]))
    predictor = Predictor(ObstructionMap([]))
    for second in range(10):
        predictor.feed(Fix(1_000 * second, -179.99998, 1e-4 * second, 11.1, 0.0, 5.0))
    progress = route.progress(predictor.track)
    assert progress is not None
    assert progress.probability > 0.9


@pytest.mark.parametrize("lat", [90.0, -90.0])
def test_a_fix_on_a_pole_is_far_from_everything(lat: float) -> None:
    predictor = Predictor(ObstructionMap(obstructions_of(Network(_roads()))))
    for second in range(10):
        predictor.feed(Fix(1_000 * second, 36.0 * second - 180.0, lat, 10.0, 90.0, 5.0))
        assert predictor.blockages(1_000 * second) == ()


def test_a_route_on_the_other_side_of_the_world_changes_nothing() -> None:
    known = ObstructionMap(obstructions_of(Network(_roads())))
    away = tuple(_east((-170.0, -47.0), 100.0 * n) for n in range(20))
    alone, routed = Predictor(known), Predictor(known, route=away)
    for second in range(31):
        place = _east(_PORTAL, 10.0 * second - _LENGTH_M)
        for predictor in (alone, routed):
            predictor.feed(Fix(1_000 * second, *place, 10.0, 90.0, 5.0))
    assert routed.blockages(30_000) == alone.blockages(30_000) != ()


def test_two_vehicles_under_one_name_teach_no_drive_between_them() -> None:
    predictor = Predictor(ObstructionMap(obstructions_of(Network(_roads()))))
    far = (11.0, 48.0)
    for second in range(60):
        near = _east(_PORTAL, 5.0 * second - _LENGTH_M)
        place = near if second % 2 else far
        predictor.feed(Fix(1_000 * second, *place, 10.0, 90.0, 5.0))
        assert len(predictor.track.driven) <= 1
        assert len(predictor.blockages(1_000 * second)) <= 1
    predictor.end_drive()
    assert predictor.habits.drives == ()
