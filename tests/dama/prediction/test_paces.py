"""How fast roads are driven is learned by the hour of the day, from many vehicles."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dama.prediction import Fix, Obstruction, ObstructionMap, Onward, Predictor, Road
from dama.prediction.habits import Habits, RememberedDrive, hours_apart
from dama.prediction.paces import LEAST_PACE, MOST_PACE, RoadPaces, Stretch
from tests.dama.prediction.test_laws import START_MS, after, fix, line, now

_DAY_S = 86_400
_HOUR_S = 3_600
_EIGHT = 8 * _HOUR_S
_LIMIT_MPS = 20.0
# Each morning the last road before the tunnel is driven at half of its limit.
_SLOW_MPS = 10.0


def approach() -> ObstructionMap:
    """A road eastwards from x = -2000, another one from x = -800 on, a tunnel at x = 0, a road."""

    def road(name: str, west: float, east: float, *onward: str, cover: str | None = None) -> Road:
        steps = tuple(Onward(there, 1.0) for there in onward)
        return Road(name, line((west, 0), (east, 0)), cover, _LIMIT_MPS, steps)

    roads = (
        road("far", -2_000, -800, "near"),
        road("near", -800, 0, "inside"),
        road("inside", 0, 600, "behind", cover="t"),
        road("behind", 600, 1_500),
    )
    return ObstructionMap([Obstruction("t", roads=roads)])


def drive(begins_s: int, near_mps: float, to_m: float = -1.0) -> list[Fix]:
    """Drive from the west, beginning at a time, at this speed on the road before the tunnel."""
    x, second, fixes = -1_990.0, begins_s, []
    while x < to_m:
        speed = near_mps if x >= -800 else _LIMIT_MPS
        fixes.append(fix(second, x, 0, speed))
        x, second = x + speed, second + 1
    return fixes


def through(speed_mps: float, stop_s: int = 0) -> list[Fix]:
    """Drive through the tunnel at this speed, with a stop of this length inside."""
    before = drive(_EIGHT, _LIMIT_MPS)
    comes_s = (before[-1].time_ms - START_MS) // 1_000 + round(600 / speed_mps) + stop_s
    return [*before, *(fix(comes_s + n, 610 + _LIMIT_MPS * n, 0, _LIMIT_MPS) for n in range(30))]


def habits(begins_s: int, near_mps: float, known: ObstructionMap) -> Habits:
    predictor = Predictor(known)
    for one in drive(begins_s, near_mps):
        predictor.feed(one)
    predictor.end_drive()
    return predictor.habits


def paces_of(*fleet: Habits, at_s: int) -> RoadPaces:
    paces = RoadPaces(START_MS + 1_000 * at_s)
    for one in fleet:
        paces.add(one)
    return paces


def test_what_a_drive_remembers_is_the_part_of_the_limit_that_was_driven() -> None:
    (remembered,) = habits(_EIGHT, _SLOW_MPS, approach()).drives
    far, near = remembered.paces
    assert remembered.roads == ("far", "near")
    assert far == pytest.approx(100, abs=4)
    assert near == pytest.approx(50, abs=4)


def test_what_is_learned_is_told_against_the_map_and_not_against_what_was_learned() -> None:
    first = habits(_EIGHT, _SLOW_MPS, approach())
    learned = approach().paced(paces_of(*[first] * 20, at_s=_EIGHT))
    assert learned.pace("near") == pytest.approx(0.5, abs=0.05)
    (again,) = habits(_DAY_S + _EIGHT, _SLOW_MPS, learned).drives
    assert again.paces[1] == pytest.approx(50, abs=4)


def test_the_entry_is_foreseen_where_the_others_were_slow_at_this_hour() -> None:
    fleet = [habits(_EIGHT, _SLOW_MPS, approach()) for _ in range(10)]
    begins_s = _DAY_S + _EIGHT
    fixes = drive(begins_s, _SLOW_MPS, to_m=-1_000)
    # 200 m at 20 m/s, and 800 at 10.
    comes_ms = fixes[-1].time_ms + 90_000

    def error_s(known: ObstructionMap) -> float:
        (blockage,) = now(after(fixes, known))
        return abs(blockage.entry_ms - comes_ms) / 1_000

    assert error_s(approach()) > 30
    assert error_s(approach().paced(paces_of(*fleet, at_s=begins_s))) < 10
    # At night the paces learned by day count little.
    at_night = approach().paced(paces_of(*fleet, at_s=begins_s + 12 * _HOUR_S))
    assert 0.6 < at_night.pace("near") < 0.9


def test_one_vehicle_slows_the_others_down_no_more_than_one() -> None:
    slow = RememberedDrive(("near",), 1e9, START_MS, (1,))
    hostile = paces_of(Habits((slow,) * 16), at_s=0)
    honest = [Habits((RememberedDrive(("near",), 1.0, START_MS, (100,)),)) for _ in range(8)]
    assert hostile.of("near") == pytest.approx(math.sqrt(LEAST_PACE))
    assert paces_of(Habits((slow,) * 16), *honest, at_s=0).of("near") > 0.9


def test_who_stops_on_a_road_or_leaves_a_gap_says_nothing_of_its_pace() -> None:
    driven = Stretch().further("a", 1.0, 1.0, stands=False)
    for _ in range(9):
        driven = driven.further("a", 1.0, 0.5, stands=False)
    assert driven.pace == pytest.approx(0.55)
    assert driven.further("a", 1.0, 0.0, stands=True).pace is None
    assert driven.further("a", 60.0, 6.0, stands=False) == driven
    assert driven.further("b", 1.0, 1.0, stands=False).pace is None


@pytest.mark.parametrize(
    ("fixes", "percent"), [(through(_LIMIT_MPS), 100), (through(_SLOW_MPS), 50)]
)
def test_the_pace_inside_is_that_of_the_time_from_portal_to_portal(
    fixes: list[Fix], percent: int
) -> None:
    predictor = after(fixes, approach())
    predictor.end_drive()
    (remembered,) = predictor.habits.drives
    assert remembered.roads == ("far", "near", "inside", "behind")
    assert remembered.paces[2] == pytest.approx(percent, abs=6)


def test_who_is_held_up_inside_says_nothing_of_its_pace() -> None:
    predictor = after(through(_LIMIT_MPS, stop_s=60), approach())
    predictor.end_drive()
    (remembered,) = predictor.habits.drives
    assert remembered.paces[2] == 0


def test_the_same_drive_at_another_hour_is_another_drive() -> None:
    made = Habits().after("abc", _EIGHT * 1_000, paces={"a": 0.5})
    again = made.after("abc", (_DAY_S + _EIGHT + _HOUR_S) * 1_000, paces={"a": 0.7, "c": 1.0})
    (one,) = again.drives
    assert (one.roads, one.paces) == (("a", "b", "c"), (60, 0, 100))
    at_night = again.after("abc", (_DAY_S + _EIGHT + 10 * _HOUR_S) * 1_000, paces={"a": 1.0})
    assert sorted(drive.paces[0] for drive in at_night.drives) == [60, 100]


def test_roads_that_are_not_on_the_map_and_broken_paces_change_nothing() -> None:
    broken = Habits(
        (RememberedDrive(("elsewhere", "near"), 1.0, 0, (50,)), RememberedDrive(("near",), 1.0, 0))
    )
    assert approach().paced(paces_of(broken, at_s=0)).pace("near") == 1.0
    assert approach().paced(paces_of(broken, at_s=0)).pace("elsewhere") == 1.0


@given(st.lists(st.integers(-(10**6), 10**6), max_size=20), st.integers(0, 10**9))
def test_paces_stay_within_their_bounds(percents: list[int], at_s: int) -> None:
    remembered = RememberedDrive(("near",) * len(percents), 3.0, 0, tuple(percents))
    assert LEAST_PACE <= paces_of(Habits((remembered,)), at_s=at_s).of("near") <= MOST_PACE


@given(st.integers(0, 10**13), st.integers(0, 10**13))
def test_hours_apart_are_those_of_a_clock(one_ms: int, other_ms: int) -> None:
    assert 0.0 <= hours_apart(one_ms, other_ms) <= 12.0
    assert hours_apart(one_ms, other_ms) == hours_apart(other_ms, one_ms)
    assert hours_apart(one_ms, one_ms + 24 * 3_600_000) == 0.0
