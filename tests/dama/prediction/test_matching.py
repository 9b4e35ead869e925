"""Which road a vehicle is on."""

from __future__ import annotations

import math
import random
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dama.prediction import Obstruction, ObstructionMap, Onward, Road
from dama.prediction.places import Plane, Position

PLANE = Plane((10.0, 50.0))


def at(x: float, y: float) -> Position:
    return PLANE.position(x, y)


def _ladder() -> ObstructionMap:
    """Return two parallel roads of ten pieces, joined by rungs, with a tunnel at the end of one."""
    roads = []
    for n in range(10):
        for side, other in (("a", "b"), ("b", "a")):
            y = 0.0 if side == "a" else 40.0
            onward = (Onward(f"{side}{n + 1}", 0.7), Onward(f"{side}{n + 1}-{other}", 0.3))
            line = (at(30.0 * n, y), at(30.0 * (n + 1), y))
            roads.append(Road(f"{side}{n}", line, onward=onward))
            rung = (at(30.0 * (n + 1), y), at(30.0 * (n + 1), 40.0 - y))
            end = (Onward(f"{other}{n + 1}", 1.0),)
            roads.append(Road(f"{side}{n + 1}-{other}", rung, onward=end))
    inside = Road("a10", (at(300.0, 0.0), at(500.0, 0.0)), covered_by="t")
    return ObstructionMap([Obstruction("t", roads=(*roads, inside))])


def test_what_is_reached_does_not_depend_on_what_was_asked_before() -> None:
    known, dice = _ladder(), random.Random(1)
    for _ in range(300):
        road, distance_m = f"{dice.choice('ab')}{dice.randrange(10)}", dice.uniform(0.0, 130.0)
        assert known.reach(road, distance_m) == _ladder().reach(road, distance_m)


def test_what_is_ahead_by_obstruction_is_all_that_is_ahead() -> None:
    known = _ladder()
    for road in ("a6", "a8", "b9", "a10"):
        of_all = known.ahead(road)
        assert of_all
        (into,) = known.into(road)
        assert into.passages == of_all
        assert into.probability == pytest.approx(sum(one.probability for one in of_all))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.floats(-300, 300), st.floats(-300, 300)), min_size=4, max_size=30),
    st.tuples(st.floats(-300, 300), st.floats(-300, 300)),
    st.floats(1.0, 80.0),
)
def test_near_are_the_roads_within_the_radius_and_no_others(
    corners: list[tuple[float, float]], place: tuple[float, float], radius_m: float
) -> None:
    roads = tuple(
        Road(f"r{n}", (at(*here), at(*there)), covered_by=None if n else "t")
        for n, (here, there) in enumerate(pairwise(corners))
        if math.dist(here, there) > 1.0
    )
    assume(roads and roads[0].covered_by)
    known = ObstructionMap([Obstruction("t", roads=roads)])
    away = {one.id: known.course(one.id).foot(at(*place), 0, 1) for one in roads}
    near = {road_id: foot for road_id, foot in away.items() if foot.lateral_m <= radius_m}
    found = known.near(at(*place), radius_m)
    assert [one.foot.lateral_m for one in found] == sorted(f.lateral_m for f in near.values())[:24]
    assert all(near[one.road_id] == one.foot for one in found)
