"""Passages of the map's obstructions: found on the track, and judged by losses of link."""

from __future__ import annotations

import pytest
from underpass_control.prediction import Predictions
from underpass_control.prediction.passing import MapPassage, Passing

from dama.prediction import Obstruction, ObstructionMap, Predictor
from dama.prediction.obstruction import Onward, Road
from tests.control_api.test_predictions import BUS, VAN, ms
from tests.dama.prediction.test_laws import at, fix, line

SHADE_M = 200.0


def street(y: float = 0.0, satellite: str | None = None, shade_m: float = SHADE_M) -> Obstruction:
    """Return a shadow that begins at x = 0 on a street from -2000 to 2000."""
    name = f"shade{y:.0f}"
    roads = (
        Road(f"in{y}", line((-2_000.0, y), (0.0, y)), onward=(Onward(f"shade{y}", 1.0),)),
        Road(f"shade{y}", line((0.0, y), (shade_m, y)), name, onward=(Onward(f"out{y}", 1.0),)),
        Road(f"out{y}", line((shade_m, y), (2_000.0, y))),
    )
    return Obstruction(name, kind="shadow", roads=roads, certainty=0.7, satellite=satellite)


STREET = ObstructionMap([street()])


def passages(seconds: range, on: ObstructionMap = STREET) -> list[MapPassage]:
    """Return the passages of a drive at 10 m/s past x = 0 at second 40, with fixes at seconds."""
    predictor, passing = Predictor(on), Passing()
    found = []
    for second in seconds:
        predictor.feed(fix(second, -400.0 + 10.0 * second, 0.0, 10.0))
        found += passing.look(predictor.track, on)
    return found


def test_a_passage_is_found_once_from_the_road_before_to_the_road_after() -> None:
    (passage,) = passages(range(100))
    assert (passage.obstruction_id, passage.place) == ("shade0", at(0.0))
    assert passage.inside_m == pytest.approx(SHADE_M, rel=0.01)
    # By a fix, the roads at its ends may be taken for each other.
    assert abs(passage.begin_ms - ms(40)) <= 1_000
    assert abs(passage.end_ms - ms(60)) <= 1_000


def test_a_passage_without_fixes_is_found_from_its_ends() -> None:
    predictor, passing = Predictor(STREET), Passing()
    found = []
    for second in (*range(38), *range(63, 90)):
        predictor.feed(fix(second, -400.0 + 10.0 * second, 0.0, 10.0))
        found += passing.look(predictor.track, STREET)
    (passage,) = found
    assert (passage.begin_ms, passage.end_ms) == (ms(37), ms(63))


def test_who_begins_or_ends_a_drive_there_has_not_passed() -> None:
    assert passages(range(45, 100)) == []
    assert passages(range(55)) == []


def test_who_drives_on_a_street_beside_has_not_passed() -> None:
    both = ObstructionMap([street(), street(60.0)])
    assert [one.obstruction_id for one in passages(range(100), both)] == ["shade0"]


def counted(
    *losses: tuple[float, float],
    held_back: tuple[float, float] | None = None,
    sensed: bool = True,
    satellite: str | None = None,
    beam: str | None = None,
    shade_m: float = SHADE_M,
    shared: bool = False,
) -> list[tuple[int, int]]:
    """Return how often the link was lost and held on a drive with the losses at these seconds.

    The vehicle is in the shadow from second 40 on.
    """
    on = ObstructionMap([street(satellite=satellite, shade_m=shade_m)])
    made = Predictions()
    made.set_map(on, {}, beam)
    if sensed:
        made.observe(VAN, ms(-600), ms(-590))
    for second in range(140):
        for begins, ends in losses:
            if second == int(ends) + 1:
                made.observe(VAN, ms(begins), ms(ends))
                if shared:
                    made.observe(BUS, ms(begins + 1), ms(ends))
        if held_back and second == held_back[1]:
            made.held_back(VAN, ms(held_back[0]), ms(held_back[1]), by_plan=True)
        made.feed(VAN, fix(second, 10.0 * (second - 40), 0.0, 10.0))
    return list(made.passages(ms(200)).values())


def test_a_passage_counts_as_the_link_was_lost_or_held() -> None:
    assert counted() == [(0, 1)]
    assert counted((41, 58)) == [(1, 0)]
    # The peer was silent as long as the node held back; or it was heard at once.
    assert counted(held_back=(40, 60)) == [(1, 0)]
    assert counted(held_back=(40, 42)) == [(0, 1)]


def test_nothing_follows_where_a_loss_would_not_have_been_noticed_or_was_of_another_cause() -> None:
    # The terminal's losses have never been sensed.
    assert counted(sensed=False) == []
    # In so short a time, a loss may not be noticed.
    assert counted(shade_m=20.0) == []
    assert counted(shade_m=60.0) == [(0, 1)]
    # The loss was shortly before, or much longer; or the node held back for something before.
    assert counted((28, 34)) == []
    assert counted((5, 75)) == []
    assert counted(held_back=(25, 33)) == []
    # The whole beam was out.
    assert counted((41, 58), shared=True) == []


@pytest.mark.parametrize(("since_s", "counts"), [(-60, []), (-90_000, [(0, 1)])])
def test_a_link_that_is_lost_when_a_passage_is_judged_says_nothing(
    since_s: int, counts: list[tuple[int, int]]
) -> None:
    made = Predictions(STREET)
    made.set_map(STREET, {})
    made.observe(VAN, ms(-99_000), ms(-98_990))
    # The end of one that began more than a day ago has been missed.
    made.observe(VAN, ms(since_s), None)
    for second in range(140):
        made.feed(VAN, fix(second, 10.0 * (second - 40), 0.0, 10.0))
    assert list(made.passages(ms(200)).values()) == counts


def test_a_shadow_counts_in_a_beam_of_its_satellite_only() -> None:
    assert counted(satellite="astra", beam="astra") == [(0, 1)]
    assert counted(satellite="astra") == []


def test_passages_wait_until_they_are_stored_and_are_given_every_ten_minutes() -> None:
    made = Predictions()
    made.set_map(STREET, {})
    made.observe(VAN, ms(-600), ms(-590))
    for second in range(140):
        made.feed(VAN, fix(second, 10.0 * (second - 40), 0.0, 10.0))
    found = made.passages(ms(200))
    assert found == {("shade0", VAN): (0, 1)}
    assert made.passages(ms(790)) == {}
    assert made.passages(ms(800)) == found
    # So they are after the clock was set back.
    assert made.passages(ms(-7_200)) == found
    assert made.passages(ms(-6_700)) == {}
    made.passages_stored(found)
    assert made.passages(ms(1_400)) == {}
