"""A vehicle's earlier drives are expected again, and one vehicle influences others little."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dama.prediction import Fix, Obstruction, ObstructionMap, Onward, Predictor, Road
from dama.prediction.driven import driven_on
from dama.prediction.habits import MOST_DRIVES, MOST_ROADS, Habits, RememberedDrive, TurnCounts
from tests.dama.prediction.test_laws import after, fix, line, now

DAY_MS = 86_400_000
# Two crossings, then one before the portal: few go on to the tunnel.
TURNS = {("a", "b"): 0.6, ("b", "c"): 0.6, ("c", "d"): 0.3, ("c", "x"): 0.7}


def turn(here: str, there: str) -> float | None:
    return TURNS.get((here, there))


def crossing() -> ObstructionMap:
    """A road eastwards with crossings at x = -1200, -900 and -300; a tunnel begins at x = 0."""

    def road(name: str, west: float, east: float, **onward: float) -> Road:
        steps = tuple(Onward(there, part) for there, part in onward.items())
        return Road(name, line((west, 0), (east, 0)), onward=steps)

    return ObstructionMap(
        [
            Obstruction(
                "t",
                roads=(
                    road("a", -2000, -1200, b=0.6),
                    road("b", -1200, -900, c=0.6),
                    road("c", -900, -300, d=0.3, x=0.7),
                    road("d", -300, 0, t=1.0),
                    Road("x", line((-300, 0), (-300, 900))),
                    Road("t", line((0, 0), (600, 0)), covered_by="t", onward=(Onward("e", 1.0),)),
                    road("e", 600, 1500),
                ),
            )
        ]
    )


def drive(to_m: float, day: int = 0) -> list[Fix]:
    """Drive from the west, on a day; the tunnel hides the sky."""
    seconds = range(round((to_m + 1900) / 20.0) + 1)
    places = [(86_400 * day + n, -1900 + 20.0 * n) for n in seconds]
    return [fix(second, x, 0, 20.0) for second, x in places if not 0 < x < 600]


def made_before(times: int = 1) -> Habits:
    predictor = Predictor(crossing())
    for number in range(times):
        for one in drive(1400.0, number):
            predictor.feed(one)
    predictor.end_drive()
    return predictor.habits


def test_the_roads_of_a_drive_are_remembered_with_those_that_nobody_saw() -> None:
    (remembered,) = made_before().drives
    assert remembered.roads == ("a", "b", "c", "d", "t", "e")


def test_the_second_time_a_drive_is_recognised_before_the_turn_that_few_take() -> None:
    fixes = drive(-400.0, day=1)
    (unknown,) = now(after(fixes, crossing()))
    assert unknown.confidence == pytest.approx(0.3, abs=0.05)
    known = Predictor(crossing(), habits=made_before())
    for one in fixes:
        known.feed(one)
    (blockage,) = known.blockages(fixes[-1].time_ms)
    assert blockage.confidence > 0.8
    assert blockage.entry_ms - fixes[-1].time_ms == pytest.approx(20_000, abs=2_000)


def test_where_what_is_remembered_ends_most_go_on_as_the_map_says() -> None:
    # Behind many portals the map has no roads, so no drive shows that the tunnel was passed.
    (passage,) = crossing().along("abcd")
    assert (passage.obstruction_id, passage.probability) == ("t", 1.0)
    assert crossing().along("abc") == crossing().along("abcx") == []


def test_once_a_drive_is_over_its_turns_decide_no_more_what_is_ahead() -> None:
    predictor = Predictor(crossing(), habits=made_before())
    for one in drive(-500.0, day=1):
        predictor.feed(one)
    before = now(predictor)
    predictor.end_drive()
    again = Predictor(crossing(), predictor.track, habits=predictor.habits)
    assert now(predictor) == now(again) != before


def test_who_leaves_a_remembered_drive_is_no_longer_expected_on_it() -> None:
    known = Predictor(crossing(), habits=made_before(3))
    for one in drive(-300.0, day=4):
        known.feed(one)
    second = 4 * 86_400 + 80
    for n in range(1, 15):
        known.feed(fix(second + n, -300, 20.0 * n, 20.0, heading=0.0))
    assert now(known) == ()


def test_a_drive_is_over_when_a_vehicle_stands_for_long_or_is_not_heard_of() -> None:
    parked = Predictor(crossing())
    for n in range(50):
        parked.feed(fix(n, -1900 + 20.0 * n, 0, 20.0))
    for n in range(50, 50 + 301):
        parked.feed(fix(n, -920, 0, 0.0))
    assert [one.roads for one in parked.habits.drives] == [("a", "b")]
    assert parked.track.driven == ()
    silent = Predictor(crossing())
    for n in (*range(50), 50 + 1_200):
        silent.feed(fix(n, -1900 + 20.0 * min(n, 50), 0, 20.0))
    assert [one.roads for one in silent.habits.drives] == [("a", "b")]


def test_a_drive_made_again_counts_again_and_less_with_time() -> None:
    habits = Habits().after("abcdef", 0).after("abcdef", 0)
    (drive_,) = habits.drives
    assert drive_.weight(0) == 2.0
    assert drive_.weight(30 * DAY_MS) == pytest.approx(1.0)
    assert len(habits.after("xyz", 400 * DAY_MS).drives) == 1


def test_a_part_of_a_drive_made_before_is_no_drive_of_its_own() -> None:
    (drive_,) = Habits().after("abcdefgh", 0).after("cdefgh", 1).drives
    assert drive_.roads == tuple("abcdefgh")
    assert drive_.times == pytest.approx(2.0)


def test_the_way_that_led_here_says_which_drive_it_is() -> None:
    habits = Habits().after("abcd", 0).after("zycx", 0)
    found = {one.roads[1]: one.probability for one in habits.continuations("ab", "c", 0, turn)}
    assert found["d"] > 2 * found["x"]
    assert sum(found.values()) < 1.0
    by_itself = {one.roads[1]: one.probability for one in habits.continuations("", "c", 0, turn)}
    assert by_itself["d"] == pytest.approx(by_itself["x"])


def test_who_goes_round_and_round_is_recognised_within_one_drive() -> None:
    lap = [f"r{number}" for number in range(40)]
    found = Habits().continuations([*lap, *lap[:3]], "r2", 0, turn)
    assert [one.roads for one in found] == [(*lap[2:], *lap[:3])]
    # In a roundabout, a vehicle that missed its exit comes round to it again.
    assert Habits().continuations("abcdab", "b", 0, turn) == []


roads = st.text("abcdefgh", min_size=1, max_size=40)


@settings(deadline=None)
@given(st.lists(roads, max_size=40), roads, st.integers(10, 400))
def test_habits_are_bounded_and_what_they_expect_adds_up_to_less_than_all(
    drives: Sequence[str], driven: str, most: int
) -> None:
    habits = Habits()
    for number, one in enumerate(drives):
        habits = habits.after(one, number * DAY_MS, most)
    assert len(habits.drives) <= MOST_DRIVES
    assert sum(len(one.roads) for one in habits.drives) <= most
    found = habits.continuations(driven, driven[-1], len(drives) * DAY_MS, turn)
    assert all(one.roads[0] == driven[-1] and len(one.roads) > 1 for one in found)
    assert sum(one.probability for one in found) <= 0.98 + 1e-9


def test_a_drive_without_end_is_remembered_in_pieces() -> None:
    names = [f"r{number}" for number in range(MOST_ROADS + 10)]
    steps = dict(pairwise(names))
    made = tuple(
        Road(
            name,
            line((100 * n - 40_000, 0), (100 * n - 39_900, 0)),
            onward=(Onward(steps[name], 1.0),) if name in steps else (),
            covered_by="t" if n == 0 else None,
        )
        for n, name in enumerate(names)
    )
    predictor = Predictor(ObstructionMap([Obstruction("t", roads=made)]))
    for n in range(5 * len(names)):
        predictor.feed(fix(n, 20.0 * n - 40_000, 0, 20.0))
    (piece,) = predictor.habits.drives
    assert len(piece.roads) == MOST_ROADS
    assert len(predictor.track.driven) < MOST_ROADS


def test_a_road_that_was_left_at_once_was_a_mistake() -> None:
    known = crossing()
    assert driven_on(known, ("a", "b", "x"), "b", 10.0) == ("a", "b")
    assert driven_on(known, ("a", "b", "x"), "c", 10.0) == ("a", "b", "c")
    assert driven_on(known, ("c",), "d", 10.0) == ("c", "d")
    assert driven_on(known, ("d",), "e", 700.0) == ("d", "t", "e")
    # No way between these roads is that short.
    assert driven_on(known, ("c",), "e", 10.0) == ("c", "e")


def remembered(times: float, *drives: str) -> Habits:
    return Habits(tuple(RememberedDrive(tuple(one), times, 0) for one in drives))


def test_turns_that_vehicles_take_count_beside_what_the_map_says() -> None:
    counts = TurnCounts()
    for _ in range(12):
        counts.add(remembered(3.0, "abcd"), 0, crossing().turn)
    turned = crossing().turned(counts)
    assert turned.turn("c", "d") == pytest.approx((4 * 0.3 + 12) / 16)
    assert turned.turn("c", "x") == pytest.approx(4 * 0.7 / 16)
    assert crossing().turn("c", "d") == 0.3
    (passage,) = turned.ahead("c")
    assert passage.probability == pytest.approx((4 * 0.3 + 12) / 16)


def test_one_vehicle_teaches_the_others_no_more_than_one() -> None:
    hostile, honest = TurnCounts(), TurnCounts()
    hostile.add(remembered(1e9, *["abcd"] * MOST_DRIVES), 0, crossing().turn)
    honest.add(remembered(1.0, "abcd"), 0, crossing().turn)
    assert hostile.of("c") == pytest.approx(honest.of("c")) == {"d": pytest.approx(1.0)}
    assert crossing().turned(hostile).turn("c", "d") == pytest.approx((4 * 0.3 + 1) / 5)


def test_who_leaves_the_map_counts_only_where_the_map_has_no_road() -> None:
    counts = TurnCounts()
    counts.add(remembered(1.0, "axaxax", "cacaca"), 0, crossing().turn)
    turned = crossing().turned(counts)
    # Behind a, the map lacks roads that four of ten take; behind c it has them all.
    assert turned.turn("a", "b") == pytest.approx(4 * 0.6 / 5)
    assert turned.turn("c", "d") == pytest.approx(0.3)
