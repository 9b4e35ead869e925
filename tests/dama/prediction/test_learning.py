"""Which obstructions are learned from losses of link, and which are not."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dama.prediction import Fix, ObstructionMap
from dama.prediction.learning import (
    Counts,
    Learned,
    Observation,
    learn,
    observe,
    passages,
    passed,
    taken_in,
)
from dama.prediction.places import distance_m
from tests.dama.prediction.test_laws import MAP, START_MS, after, at, eastwards, fix, line, now

NOTHING = ObstructionMap([])


def ms(second: float) -> int:
    return START_MS + round(1000 * second)


def through(y: float = 500.0, to: int = 90) -> list[Fix]:
    """Drive east at 20 m/s from x = -600, far from the mapped tunnel."""
    return [fix(second, -600.0 + 20.0 * second, y, 20.0) for second in range(to)]


def test_a_loss_in_motion_becomes_an_obstruction_and_is_predicted() -> None:
    seen = observe(after(through()).track, ms(30), ms(45))
    assert seen is not None
    assert distance_m(seen.axis[0], at(0.0, 500.0)) < 1.0
    assert distance_m(seen.axis[-1], at(300.0, 500.0)) < 1.0
    (place,) = learn((), seen, NOTHING, new_id="learned:1")
    (blockage,) = now(after(through(to=20), ObstructionMap([place.obstruction])))
    assert blockage.obstruction_id == "learned:1"
    assert blockage.entry_ms == pytest.approx(ms(30), abs=1_000)
    assert blockage.duration_s == pytest.approx(15.0, abs=1.0)
    assert blockage.confidence == pytest.approx(place.certainty, abs=0.05)


def test_a_loss_while_the_fix_is_lost_too_is_learned_from_its_ends() -> None:
    fixes = [f for f in through() if not 30_000 < f.time_ms - START_MS < 45_000]
    seen = observe(after(fixes).track, ms(30), ms(45))
    assert seen is not None
    assert distance_m(seen.axis[0], at(0.0, 500.0)) < 1.0
    assert distance_m(seen.axis[-1], at(300.0, 500.0)) < 1.0


@given(st.integers(5, 300), st.floats(0.0, 12.0))
def test_a_stop_is_not_learned(seconds: int, drift: float) -> None:
    stood = [
        *eastwards(-500.0, 15.0),
        fix(33, -490.0, 0.0, 0.0, None),
        fix(33 + seconds, -490.0 + drift, 0.0, 0.3, None),
        *(fix(34 + seconds + s, -480.0 + 10.0 * s, 0.0, 10.0) for s in range(8)),
    ]
    assert observe(after(stood).track, ms(33), ms(33 + seconds)) is None


def test_a_loss_whose_end_the_track_does_not_reach_is_not_learned_yet() -> None:
    assert observe(after(through(to=40)).track, ms(30), ms(45)) is None


def test_repeated_observations_become_one() -> None:
    known: tuple[Learned, ...] = ()
    for number, (lost, restored) in enumerate([(30, 45), (31, 45.5), (29.5, 46)]):
        seen = observe(after(through()).track, ms(lost), ms(restored))
        assert seen is not None
        known = learn(known, seen, NOTHING, new_id=f"learned:{number}")
    (place,) = known
    assert place.id == "learned:0"
    assert place.lost == 3
    assert place.certainty == pytest.approx(4 / 5)
    # The mean of entries at 0, 20 and -10 m.
    assert distance_m(place.axis[0], at(10.0 / 3, 500.0)) < 1.0


def test_the_opposite_direction_is_learned_apart() -> None:
    east = observe(after(through()).track, ms(30), ms(45))
    back = [fix(s, 900.0 - 20.0 * s, 505.0, 20.0, 270.0) for s in range(80)]
    west = observe(after(back).track, ms(30), ms(45))
    assert east is not None
    assert west is not None
    known = learn(learn((), east, NOTHING, new_id="a"), west, NOTHING, new_id="b")
    assert [place.id for place in known] == ["a", "b"]


def test_what_a_mapped_tunnel_explains_is_not_learned() -> None:
    seen = Observation(line((-1000, 0), (5, 0)), line((5, 0), (590, 3)))
    assert learn((), seen, MAP, new_id="learned:1") == ()


def test_a_place_where_the_link_mostly_holds_is_forgotten() -> None:
    known: tuple[Learned, ...] = (Learned("a", line((-500, 0), (0, 0)), line((0, 0), (80, 0))),)
    certainties = []
    while known:
        certainties.append(known[0].certainty)
        known = passed(known, "a")
        assert len(certainties) < 20
    assert certainties == sorted(certainties, reverse=True)


def test_a_passage_on_which_the_link_was_lost_counts_for_a_place() -> None:
    place = Learned("a", line((-500, 0), (0, 0)), line((0, 0), (80, 0)))
    assert passed((place,), "a", lost=True) == (replace(place, lost=2),)
    assert passed((place,), "b", lost=True) == (place,)


def test_a_passage_is_found_in_its_direction_only() -> None:
    place = Learned("a", line((-500, 500), (0, 500)), line((0, 500), (300, 500)))
    (when,) = passages(place, after(through()).track)
    assert when[0] == pytest.approx(ms(30), abs=4_000)
    assert when[1] == pytest.approx(ms(45), abs=4_000)
    back = [fix(s, 900.0 - 20.0 * s, 500.0, 20.0, 270.0) for s in range(80)]
    assert list(passages(place, after(back).track)) == []


def test_a_place_taken_in_from_elsewhere_is_the_one_that_was_passed_more_often() -> None:
    axis, approach = line((0, 500), (300, 500)), line((-600, 500), (0, 500))
    known = Learned("here", approach, axis, lost=3, held=1)
    near = Learned("there", approach, line((20, 500), (330, 500)), lost=9, held=0)
    back = Learned("back", axis, approach[::-1], lost=9)
    assert taken_in((), near) == (near,)
    assert taken_in((known,), replace(near, lost=2)) == (known,)
    assert taken_in((known,), near) == (replace(near, id="here"),)
    assert taken_in(taken_in((known,), near), near) == (replace(near, id="here"),)
    assert taken_in((known,), back) == (known, back)


def test_what_is_learned_elsewhere_and_on_the_map_is_not_learned_again() -> None:
    seen = observe(after(through()).track, ms(30), ms(45))
    assert seen is not None
    (place,) = learn((), seen, NOTHING, new_id="elsewhere")
    mapped = ObstructionMap([place.obstruction])
    assert learn((), seen, mapped, new_id="again") == ()
    (counted,) = learn((place,), seen, mapped, new_id="again")
    assert counted.lost == 2


def test_who_brakes_stands_and_starts_again_unseen_has_passed_no_place() -> None:
    brakes = [fix(s, 18.0 * s - 0.6 * s * s, 500.0, 18.0 - 1.2 * s) for s in range(15)]
    starts = [fix(36 + s, 136.0 + 0.6 * s * s, 500.0, 1.2 * s) for s in range(1, 25)]
    cruise = eastwards(-18.0, 18.0, seconds=30, y=500.0)
    later = [Fix(one.time_ms + 31_000, one.lon, one.lat, one.speed_mps, 90.0) for one in brakes]
    again = [Fix(one.time_ms + 31_000, one.lon, one.lat, one.speed_mps, 90.0) for one in starts]
    seen = after([*cruise, *later, *again]).track
    assert observe(seen, ms(31 + 15), ms(31 + 36)) is None


def test_what_hides_one_satellite_teaches_nothing_of_another() -> None:
    seen = observe(after(through()).track, ms(30), ms(45))
    assert seen is not None
    of_astra = learn((), seen, NOTHING, new_id="learned:1", satellite="astra")
    assert of_astra[0].obstruction.satellite == "astra"
    both = learn(of_astra, seen, NOTHING, new_id="learned:2", satellite="west")
    assert [(one.satellite, one.lost) for one in both] == [("astra", 1), ("west", 1)]
    again = learn(both, seen, NOTHING, new_id="learned:3", satellite="west")
    assert [(one.satellite, one.lost) for one in again] == [("astra", 1), ("west", 2)]
    # Losses of every satellite count at a place that holds for all satellites.
    (shared,) = learn((), seen, NOTHING, new_id="learned:4")
    (lost,) = learn((shared,), seen, NOTHING, new_id="learned:5", satellite="west")
    assert (lost.id, lost.satellite, lost.lost) == ("learned:4", None, 2)


def test_a_place_of_another_satellite_is_taken_in_beside() -> None:
    seen = observe(after(through()).track, ms(30), ms(45))
    assert seen is not None
    (place,) = learn((), seen, NOTHING, new_id="learned:1", satellite="astra")
    other = replace(place, id="learned:2", satellite="west", lost=3)
    assert taken_in((place,), other) == (place, other)
    assert taken_in((place,), replace(other, satellite="astra"))[0].lost == 3


DAY_MS = 86_400_000


def test_a_shadow_in_which_links_hold_becomes_unlikely_and_one_with_losses_certain() -> None:
    assert Counts().certainty(0.7) == 0.7
    held = Counts().after(0, 5, 0)
    assert held.certainty(0.7) < 0.4
    assert Counts().after(5, 0, 0).certainty(0.7) > 0.85
    # A tunnel stays one.
    assert held.certainty(1.0) == 1.0


def test_a_vehicles_later_passages_displace_its_earlier_ones() -> None:
    counts = Counts()
    for _ in range(20):
        counts = counts.after(0, 1, 0)
    assert (counts.lost, counts.held) == pytest.approx((0.0, 5.0))
    assert Counts().after(0, 40, 0) == Counts(0.0, 5.0)
    for _ in range(5):
        counts = counts.after(1, 0, 0)
    assert counts.lost + counts.held == pytest.approx(5.0)
    assert counts.lost > counts.held


def test_old_passages_count_less() -> None:
    counts = Counts().after(2, 2, 0).after(0, 1, 30 * DAY_MS)
    assert (counts.lost, counts.held) == pytest.approx((1.0, 2.0))
    # A clock that was set back makes none count more.
    assert Counts(1.0, 1.0).after(0, 1, -DAY_MS) == Counts(1.0, 2.0)
