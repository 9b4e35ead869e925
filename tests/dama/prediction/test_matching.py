"""Which road a vehicle is on."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from itertools import pairwise

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dama.prediction import Fix, Obstruction, ObstructionMap, Onward, Predictor, Road
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


def test_a_receiver_that_says_how_little_it_knows_breaks_nothing() -> None:
    followed = Predictor(_ladder())
    for second, accuracy_m in enumerate([None, 1e6, 1e200, 1.7e308, 5.0]):
        lon, lat = at(10.0 * second, 0.0)
        assert followed.feed(Fix(1000 * second, lon, lat, 10.0, 90.0, accuracy_m))
        followed.blockages(1000 * second)
    assert followed.track.hypotheses[0].road_id.startswith("a")


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


def test_who_comes_round_takes_the_same_exits_once_more() -> None:
    corners = [at(0, 0), at(40, 0), at(40, 40), at(0, 40)]
    roads = []
    for n, (here, there) in enumerate(zip(corners, corners[1:] + corners[:1], strict=True)):
        onward = (Onward(f"ring{(n + 1) % 4}", 0.5), Onward(f"exit{n}", 0.5))
        roads.append(Road(f"ring{n}", (here, there), onward=onward))
        out = at(*(3.0 * value - 40.0 for value in PLANE.xy(there)))
        roads.append(Road(f"exit{n}", (there, out), covered_by=f"t{n % 3}"))
    known = ObstructionMap(Obstruction(f"t{n}", roads=tuple(roads)) for n in range(3))
    # Half of the traffic leaves by each exit that it reaches; a sixteenth comes round.
    into = {one.obstruction_id: one.probability for one in known.into("ring0")}
    again = 1.0625
    assert into == pytest.approx(
        {"t0": (0.5 + 0.0625) * again, "t1": 0.25 * again, "t2": 0.125 * again}
    )


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


def _fork() -> ObstructionMap:
    """Return a road that forks into two, 12 m apart; the left one ends in a tunnel."""
    left = Road("left", (at(500, 0), at(1500, 0)), onward=(Onward("in", 1.0),))
    right = Road("right", (at(500, 0), at(540, -12), at(1500, -12)))
    lead = Road("lead", (at(0, 0), at(500, 0)), onward=(Onward("left", 0.5), Onward("right", 0.5)))
    inside = Road("in", (at(1500, 0), at(1700, 0)), covered_by="t")
    return ObstructionMap([Obstruction("t", roads=(lead, left, right, inside))])


def _after(places: Iterable[tuple[float, float]]) -> dict[str, float]:
    """Return the weights of roads after a fix each second, at 15 m/s to the east."""
    predictor = Predictor(_fork())
    for second, place in enumerate(places):
        predictor.feed(Fix(1_000 * second, *at(*place), 15.0, 90.0))
    return {one.road_id: one.weight for one in predictor.track.hypotheses}


def test_the_error_seen_before_a_fork_is_expected_behind_it() -> None:
    # The vehicle takes the right road; the fixes, 7 m to the left, are nearer to the left one.
    track = [(x, 7.0 - min(max(0.3 * (x - 500.0), 0.0), 12.0)) for x in range(0, 675, 15)]
    assert _after(track)["right"] > 0.9


def test_an_error_that_lasts_is_little_news() -> None:
    # The first fix is behind the fork, and nearer to the left road.
    track = [(600.0 + 15.0 * second, -4.0) for second in range(55)]
    soon, late = _after(track[:10])["left"], _after(track)["left"]
    assert 0.5 < soon < 0.8
    assert soon <= late < 0.98


def test_who_is_first_heard_of_on_a_road_is_believed_there_with_its_first_fixes() -> None:
    assert _after([(200.0, 2.0), (215.0, 2.0)])["lead"] > 0.9
