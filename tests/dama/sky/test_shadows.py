"""Shadows on lanes: laws, and a comparison with rays."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dama.prediction.places import Line, Plane
from dama.sky import (
    AntennaMask,
    Belief,
    HeightGrid,
    Heights,
    Lane,
    Masks,
    Obstacle,
    Satellite,
    SkyError,
    State,
    look_angles,
    shade,
)
from dama.sky.satellite import Floats
from tests.dama.sky.rays import Block, Rays, direction

CENTRE = (15.6, 48.4)
PLANE = Plane(CENTRE)
SATELLITE = Satellite("astra", 19.2)
# Practically certain.
EXACTLY = 0.004


def ring(*corners: tuple[float, float], plane: Plane = PLANE) -> Line:
    return tuple(plane.position(*corner) for corner in (*corners, corners[0]))


def square(x: float, y: float, half: float = 10.0, plane: Plane = PLANE) -> Line:
    return ring(
        (x - half, y - half),
        (x + half, y - half),
        (x + half, y + half),
        (x - half, y + half),
        plane=plane,
    )


def lane(
    *points: tuple[float, float], plane: Plane = PLANE, offset_m: float = 0.0, clear_m: float = 6.0
) -> Lane:
    line = tuple(plane.position(*point) for point in points)
    return Lane("lane", line, offset_m, clear_m)


def seen(
    road: Lane,
    *blocks: tuple[Line, float],
    satellite: Satellite = SATELLITE,
    spread: float = EXACTLY,
    antenna: AntennaMask | None = None,
) -> np.typing.NDArray[np.float64]:
    """Return how probably each metre is blocked by houses of some heights."""
    heights = Heights()
    obstacles = [
        Obstacle(f"house {n}", (rings,), heights.add(Belief(height, spread)))
        for n, (rings, height) in enumerate(blocks)
    ]
    return shade([road], obstacles, heights, satellite, antenna=antenna).metres_of("lane")


@pytest.mark.parametrize("lon", [-179.9, 0.0, 37.6, 180.0])
@pytest.mark.parametrize("lat", [-70.0, -0.01, 0.0, 48.4, 81.0])
@pytest.mark.parametrize("east", [-75.0, -20.0, 0.5, 60.0])
def test_look_angles_are_those_of_vectors_in_space(lon: float, lat: float, east: float) -> None:
    stands = (lon + east + 540.0) % 360.0 - 180.0
    azimuth, elevation = look_angles(Satellite("a", stands), np.array([lon]), np.array([lat]))
    expected = direction(stands, (lon, lat))
    assert elevation[0] == pytest.approx(math.degrees(expected[1]), abs=1e-3)
    assert (azimuth[0] - math.degrees(expected[0]) + 180) % 360 == pytest.approx(180.0, abs=1e-3)


def test_a_shadow_is_as_long_as_the_elevation_makes_it() -> None:
    azimuth, elevation = look_angles(SATELLITE, np.array([CENTRE[0]]), np.array([CENTRE[1]]))
    # A road along the line of sight, away from a wall of 20 m that it faces squarely.
    ahead = math.radians(azimuth[0])
    east, north = math.sin(ahead), math.cos(ahead)
    house = ring(
        (10 * east - 20 * north, 10 * north + 20 * east),
        (10 * east + 20 * north, 10 * north - 20 * east),
        (40 * east + 20 * north, 40 * north - 20 * east),
        (40 * east - 20 * north, 40 * north + 20 * east),
    )
    blocked = seen(lane((-90 * east, -90 * north), (9.9 * east, 9.9 * north)), (house, 20.0))
    length = 18.0 / math.tan(math.radians(elevation[0]))
    assert (blocked > 0.5).sum() == pytest.approx(length, abs=1.0)
    assert (blocked[-20:] > 0.99).all()
    assert (blocked[: 99 - math.ceil(length) - 2] < 0.01).all()


def town(seed: int, plane: Plane, count: int = 250) -> list[Block]:
    """Draw houses of all shapes: squares, L-shapes, and blocks around a courtyard."""
    draw = random.Random(seed)
    blocks = []
    for _ in range(count):
        x, y = draw.uniform(-600, 600), draw.uniform(-600, 600)
        half, top = draw.uniform(4, 25), draw.uniform(3, 60)
        kind = draw.random()
        if kind < 0.4:
            rings: tuple[Line, ...] = (square(x, y, half, plane),)
        elif kind < 0.8:
            corners = [(0, 0), (2, 0), (2, 1), (1, 1), (1, 2), (0, 2)]
            rings = (ring(*((x + half * a, y + half * b) for a, b in corners), plane=plane),)
        else:
            rings = square(x, y, half, plane), square(x, y, half / 2, plane)
        blocks.append(Block(rings, top))
    return blocks


@pytest.mark.parametrize(
    ("centre", "stands"),
    [((15.6, 48.4), 19.2), ((37.6, 55.75), -5.0), ((179.999, -20.0), 172.0), ((-77.0, 0.1), -70.0)],
)
def test_metres_are_blocked_where_rays_are(centre: tuple[float, float], stands: float) -> None:
    plane = Plane(centre)
    blocks = town(7, plane)
    heights = Heights()
    obstacles = [
        Obstacle(f"house {n}", block.rings, heights.add(Belief(block.top_m, EXACTLY)))
        for n, block in enumerate(blocks)
    ]
    rays = Rays(blocks, stands, centre)
    draw = random.Random(3)
    agreed = missed = invented = 0
    for _ in range(12):
        ends = [(draw.uniform(-600, 600), draw.uniform(-600, 600)) for _ in range(3)]
        road = lane(*ends, plane=plane)
        made = shade([road], obstacles, heights, Satellite("a", stands)).metres_of("lane")
        run_m = 0.0
        for begin, end in pairwise(ends):
            length = math.dist(begin, end)
            for k in range(math.ceil(run_m), math.floor(run_m + length), 7):
                part = (k + 0.5 - run_m) / length
                place = plane.position(
                    begin[0] + part * (end[0] - begin[0]), begin[1] + part * (end[1] - begin[1])
                )
                expected = rays.blocked(place, 2.0)
                told = made[k] > 0.5
                agreed += expected and told
                missed += expected and not told
                invented += told and not expected
            run_m += length
    assert agreed > 200
    # Differences are within a metre of a shadow's border.
    assert missed <= 0.01 * agreed
    assert invented <= 0.01 * agreed


places = st.tuples(st.floats(-80, 80), st.floats(-80, 80))
houses = st.lists(
    st.tuples(places, st.floats(3, 15), st.floats(3, 80)).map(
        lambda one: (square(*one[0], one[1]), one[2])
    ),
    min_size=1,
    max_size=4,
)
ROAD = lane((-150.0, -20.0), (0.0, 10.0), (150.0, -5.0))


@settings(max_examples=60, deadline=None)
@given(houses, st.floats(1.0, 3.0), st.floats(0.05, 0.8))
def test_a_higher_house_never_uncovers(
    town: list[tuple[Line, float]], factor: float, spread: float
) -> None:
    low = seen(ROAD, *town, spread=spread)
    high = seen(ROAD, *((rings, height * factor) for rings, height in town), spread=spread)
    assert (high >= low - 2e-3).all()


@settings(max_examples=60, deadline=None)
@given(houses, places, st.floats(3, 80))
def test_another_house_never_uncovers(
    town: list[tuple[Line, float]], place: tuple[float, float], height: float
) -> None:
    before = seen(ROAD, *town, spread=0.3)
    after = seen(ROAD, *town, (square(*place), height), spread=0.3)
    assert (after >= before - 1e-12).all()


@settings(max_examples=60, deadline=None)
@given(houses, st.floats(0.0, 40.0))
def test_a_lower_satellite_in_the_same_direction_never_uncovers(
    town: list[tuple[Line, float]], further: float
) -> None:
    # On the equator a satellite to the east sinks as it moves on, in the same direction.
    plane = Plane((0.0, 0.0))
    moved = [
        (tuple(plane.position(*PLANE.xy(place)) for place in rings), height)
        for rings, height in town
    ]
    road = lane((-150.0, -20.0), (150.0, 30.0), plane=plane)
    high = seen(road, *moved, satellite=Satellite("a", 35.0), spread=0.3)
    low = seen(road, *moved, satellite=Satellite("a", 35.0 + further), spread=0.3)
    assert (low >= high - 1e-6).all()


@settings(max_examples=40, deadline=None)
@given(houses, st.floats(0, 360))
def test_what_turns_with_the_satellite_stays_in_the_shade(
    town: list[tuple[Line, float]], turn: float
) -> None:
    # The satellite stands equally high at a place east of its longitude and at one west of it.
    east, west = Plane(CENTRE), Plane((2 * 19.2 - CENTRE[0], CENTRE[1]))
    at_west = [
        (tuple(west.position(-x, y) for x, y in map(east.xy, rings))[::-1], height)
        for rings, height in town
    ]
    angle = math.radians(turn)
    ends = [(150 * math.cos(angle), 150 * math.sin(angle)), (-100 * math.cos(angle), 20.0)]
    there = seen(lane(*ends, plane=east), *town, spread=0.3)
    mirrored = seen(lane(*((-x, y) for x, y in ends), plane=west), *at_west, spread=0.3)
    assert there == pytest.approx(mirrored, abs=1e-2)


def test_doubt_about_a_height_is_doubt_about_its_shadow() -> None:
    sure = seen(ROAD, (square(0.0, -20.0), 20.0))
    unsure = seen(ROAD, (square(0.0, -20.0), 20.0), spread=0.5)
    assert set(np.unique(sure > 0.5)) == {False, True}
    assert ((sure < 0.02) | (sure > 0.98)).mean() > 0.97
    assert ((unsure > 0.1) & (unsure < 0.9)).sum() > 5


def test_each_side_of_the_road_has_its_own_shade() -> None:
    # The satellite is in the south: the northern side is further from the houses.
    wall = ring((-100, -30), (100, -30), (100, -10), (-100, -10))
    road = lane((-90.0, 0.0), (90.0, 0.0), offset_m=4.0)
    southern = seen(road, (wall, 9.4))
    northern = seen(replace(road, offset_m=-4.0), (wall, 9.4))
    assert southern.mean() > 0.9
    assert northern.mean() < 0.1


def test_only_lower_roads_are_under_a_bridge() -> None:
    heights = Heights()
    bridge = Obstacle(
        "bridge",
        ((PLANE.position(-60, 0), PLANE.position(60, 0)),),
        heights.add(Belief(5.0, 0.05)),
        is_area=False,
        is_overhead=True,
        width_m=10.0,
        thickness_m=1.5,
        layer=1,
        ends=(1, 2),
    )
    below = lane((0.0, -60.0), (0.0, 60.0))

    def blocked(road: Lane) -> np.typing.NDArray[np.float64]:
        return shade([road], [bridge], heights, SATELLITE).metres_of("lane")

    shadow = blocked(below)
    assert 8 <= (shadow > 0.5).sum() <= 16
    assert not (blocked(replace(below, layer=1)) > 0.01).any()
    assert not (blocked(replace(below, ends=(2, 7))) > 0.01).any()
    # From the north the view passes under it, from the south beside it.
    middle = np.flatnonzero(shadow > 0.5).mean()
    assert 60 < middle < 70


def test_roads_are_cut_free_of_the_forest_around_them() -> None:
    heights = Heights()
    forest = Obstacle(
        "forest",
        (square(0.0, 0.0, 400.0),),
        heights.add(Belief(15.0, 0.2)),
        opacity=0.9,
        is_vegetation=True,
    )
    along_sight = lane((-5.0, -150.0), (5.0, 150.0), clear_m=8.0)
    across = lane((-150.0, 0.0), (150.0, 0.0), clear_m=8.0)
    wide = replace(across, clear_m=60.0)

    def mean(road: Lane) -> float:
        return float(shade([road], [forest], heights, SATELLITE).metres_of("lane").mean())

    assert mean(across) > 0.8
    assert mean(along_sight) < 0.1
    assert mean(wide) < 0.1


def test_an_antenna_sees_not_below_its_mask() -> None:
    backwards = AntennaMask(((0.0, 10.0), (90.0, 10.0), (180.0, 50.0), (270.0, 10.0)))
    southwards = lane((0.0, 100.0), (0.0, -100.0))
    northwards = lane((0.0, -100.0), (0.0, 100.0))
    assert not seen(southwards, antenna=backwards).any()
    assert seen(northwards, antenna=backwards).all()


def test_a_covered_lane_is_blocked_and_a_satellite_below_the_horizon_is_an_error() -> None:
    assert seen(replace(ROAD, covered=True)).all()
    with pytest.raises(SkyError, match="below the horizon"):
        seen(ROAD, satellite=Satellite("far", -150.0))
    pole = Lane("lane", ((10.0, 89.9), (20.0, 89.9)))
    with pytest.raises(SkyError, match="below the horizon"):
        seen(pole)


def test_a_mountain_hides_and_is_never_lower_than_the_plain() -> None:
    columns = np.arange(400)
    rows = np.arange(400)[:, None]
    # A ridge of 1,500 m, 2 km to the south of the road, over its western half.
    ridge = np.where((abs(rows - 290) < 15) & (columns < 200), 1_500.0, 200.0)
    step = 1.0 / 3600.0
    grid = HeightGrid(CENTRE[0] - 200 * step, CENTRE[1] + 225 * step, (step, step), ridge)
    road = lane((-1_500.0, 0.0), (1_500.0, 0.0))
    blocked = shade([road], [], Heights(), SATELLITE, terrain=grid).metres_of("lane")
    assert (blocked[:1_000] > 0.99).all()
    assert (blocked[-1_000:] < 0.01).all()
    plain = HeightGrid(grid.west, grid.north, (step, step), np.full((400, 400), 200.0))
    assert not shade([road], [], Heights(), SATELLITE, terrain=plain).metres_of("lane").any()


def test_ground_of_unknown_height_is_not_clear() -> None:
    columns = np.arange(400) + np.zeros((400, 1))
    rows = np.arange(400)[:, None] + np.zeros(400)
    step = 1.0 / 3600.0
    road = lane((-1_500.0, 0.0), (1_500.0, 0.0))

    def masks(heights: Floats) -> Masks:
        grid = HeightGrid(CENTRE[0] - 200 * step, CENTRE[1] + 225 * step, (step, step), heights)
        return shade([road], [], Heights(), SATELLITE, terrain=grid)

    ridge = np.where(abs(rows - 290) < 15, 1_500.0, 200.0)
    assert masks(ridge).unknown_m == 0
    # To the south, the eastern half of the ridge is a void.
    half = masks(np.where((abs(rows - 290) < 15) & (columns >= 200), np.nan, ridge))
    first, *_, last = half.of("lane")
    assert first.state is State.BLOCKED
    assert last.state is State.UNKNOWN
    assert last.probability < 0.01
    assert {one.state for one in half.of("lane")} == {State.BLOCKED, State.UNKNOWN}
    assert 1_400 < half.unknown_m < 1_800
    # On a plain whose heights are unknown around a part of the road, some 230 m long.
    inside = (abs(rows - 225) < 5) & (columns >= 210) & (columns < 220)
    plain = masks(np.where(inside, np.nan, 200.0))
    assert [one.state for one in plain.of("lane")] == [State.CLEAR, State.UNKNOWN, State.CLEAR]
    assert 200 < plain.unknown_m < 270
    assert not plain.metres_of("lane").any()


@pytest.mark.parametrize("lat", [89.0, 90.0, -90.0])
def test_at_a_pole_what_the_ground_hides_costs_no_more_than_elsewhere(lat: float) -> None:
    step = 1 / 120
    looked = 0

    class Counted(HeightGrid):
        def at(self, lon: Floats, lat: Floats) -> Floats:
            nonlocal looked
            looked += 1
            return super().at(lon, lat)

    north = lat + 150 * step
    grid = Counted(-2.0, north, (step, step), np.full((300, 480), 200.0))
    grid.heights[100, 100] = 3_000.0
    many = np.full(4, lat), np.array([0.0, 90.0, 180.0, 270.0]), np.full(4, 2.0)
    found, _ = grid.hides(np.zeros(4), *many, 2.0)
    assert np.all((found >= 0.0) & (found <= 1.0))
    # Mountains of this height are searched for up to 80 km away.
    assert looked < 80_000 / (grid.cell_m / 8) + 2


def test_a_house_on_a_hill_casts_a_longer_shadow() -> None:
    step = 1.0 / 3600.0
    rows = np.arange(400)[:, None] + np.zeros(400)
    house = ring((-50, -40), (50, -40), (50, -25), (-50, -25))
    heights = Heights()
    obstacle = Obstacle("house", (house,), heights.add(Belief(10.0, EXACTLY)))
    road = lane((-40.0, 0.0), (40.0, 0.0))

    def mean(rise: float) -> float:
        ground = 100.0 + rise * np.clip(rows - 200.0, -3.0, 3.0)
        grid = HeightGrid(CENTRE[0] - 200 * step, CENTRE[1] + 200 * step, (step, step), ground)
        made = shade([road], [obstacle], heights, SATELLITE, terrain=grid)
        return float(made.metres_of("lane").mean())

    assert mean(0.0) < 0.1
    assert mean(12.0) > 0.9


def test_intervals_cover_the_lane_and_say_how_sure() -> None:
    heights = Heights()
    obstacle = Obstacle("house", (square(0.0, -22.0),), heights.add(Belief(30.0, 0.3)))
    masks = shade([ROAD], [obstacle], heights, SATELLITE)
    intervals = masks.of("lane")
    assert intervals[0].from_m == 0.0
    assert intervals[-1].to_m == pytest.approx(sum(math.dist(*one) for one in _legs()), rel=1e-3)
    for before, after in pairwise(intervals):
        assert before.to_m == after.from_m
        assert before.probability != after.probability
    assert {one.state for one in intervals} == set(State) - {State.UNKNOWN}
    for one in intervals:
        assert (one.state is State.CLEAR) == (one.probability < 0.1)
        assert (one.state is State.BLOCKED) == (one.probability >= 0.9)


def _legs() -> list[tuple[tuple[float, float], tuple[float, float]]]:
    return [((-150.0, -20.0), (0.0, 10.0)), ((0.0, 10.0), (150.0, -5.0))]


def test_a_way_of_a_million_nodes_costs_what_its_length_does() -> None:
    line = tuple(PLANE.position(x / 1000.0, 0.0) for x in range(1_000_000))
    made = seen(Lane("lane", line), (square(500.0, -20.0), 20.0))
    assert len(made) == 1_000
    assert 10 <= (made > 0.5).sum() <= 30


@pytest.mark.parametrize(
    "make",
    [
        lambda: Satellite("", 0.0),
        lambda: Satellite("a", math.nan),
        lambda: Satellite("a", 181.0),
        lambda: Lane("a", ((0.0, 0.0),)),
        lambda: Lane("a", ((0.0, 0.0), (0.0, 91.0))),
        lambda: Lane("a", ((0.0, 0.0), (math.nan, 0.0))),
        lambda: Lane("a", ((0.0, 0.0), (1.0, 0.0)), offset_m=math.inf),
        lambda: Belief(-3.0, 0.1),
        lambda: Belief(0.0, 0.1),
        lambda: Belief(1e9, 0.1),
        lambda: Belief(math.nan, 0.1),
        lambda: Belief(10.0, 0.0),
        lambda: Obstacle("a", (), 0),
        lambda: Obstacle("a", (((0.0, 0.0), (1.0, 0.0), (1.0, 1.0), (0.0, 1.0)),), 0),
        lambda: Obstacle("a", (((0.0, 0.0), (1.0, 0.0)),), 0),
        lambda: Obstacle("a", (square(0, 0),), 0, opacity=0.0),
        lambda: AntennaMask(()),
        lambda: AntennaMask(((10.0, 5.0), (10.0, 6.0))),
        lambda: AntennaMask(((0.0, 95.0),)),
        lambda: AntennaMask(height_m=0.0),
        lambda: HeightGrid(0.0, 0.0, (0.1, 0.1), np.full((3, 3), math.nan)),
        lambda: HeightGrid(0.0, 0.0, (0.1, 0.1), np.zeros((1, 3))),
        lambda: HeightGrid(0.0, 0.0, (0.0, 0.1), np.zeros((3, 3))),
    ],
)
def test_what_cannot_be_is_refused(make: object) -> None:
    with pytest.raises(SkyError):
        make()  # type: ignore[operator]
