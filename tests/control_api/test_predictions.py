"""The expected blockages of a beam's terminals: predicted, announced, observed, learned."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import replace

import pytest
from underpass_control.prediction import Lesson, Predictions
from underpass_control.prediction.lessons import Lessons

from dama.prediction import Announcement, Blockage, Fix, ObstructionMap, Predictor
from dama.prediction.habits import Habits
from dama.prediction.learning import Learned
from dama.prediction.places import Line
from dama.prediction.route import Route
from tests.dama.prediction.test_laws import MAP, START_MS, after, at, eastwards, fix, line
from tests.dama.prediction.test_passages import serpentine

VAN, BUS = 10, 11


def ms(second: float) -> int:
    return START_MS + round(1000 * second)


def driving(fixes: list[Fix], obstructions: ObstructionMap = MAP) -> Predictions:
    made = Predictions(obstructions)
    for one in fixes:
        made.feed(VAN, one)
    return made


def only(made: Predictions, second: float) -> Blockage:
    (blockage,) = made.blockages_of(VAN, ms(second))
    return blockage


def test_each_terminal_has_its_own_blockages() -> None:
    made = driving(eastwards(-400.0, 20.0))
    for one in eastwards(-400.0, 20.0, y=500.0):
        made.feed(BUS, one)
    assert made.blockages_of(BUS, ms(30)) == ()
    assert abs(only(made, 30).entry_ms - ms(50)) < 500
    made.forget(VAN)
    assert made.blockages_of(VAN, ms(30)) == ()


def test_an_announcement_is_reconciled_with_the_prediction() -> None:
    made = driving(eastwards(-400.0, 20.0))
    said = Announcement(ms(31), ms(52), 40_000, 0.9)
    made.announce(VAN, said)
    made.announce(VAN, said)
    blockage = only(made, 31)
    assert (blockage.entry_ms, blockage.exit_ms) == (ms(52), ms(92))
    assert (blockage.source, blockage.obstruction_id) == ("announced", "t")
    made.announce(VAN, Announcement(ms(32), ms(52), 40_000, 0.0))
    assert made.blockages_of(VAN, ms(32)) == ()


def test_an_announcement_by_another_name_is_of_the_same_blockage() -> None:
    made = driving(eastwards(-400.0, 20.0))
    made.announce(VAN, Announcement(ms(31), ms(52), 40_000, 0.9, "Long tunnel"))
    blockage = only(made, 31)
    assert (blockage.entry_ms, blockage.obstruction_id) == (ms(52), "t")


def test_an_announcement_needs_no_map() -> None:
    made = Predictions()
    made.announce(BUS, Announcement(ms(0), ms(60), 30_000, 1.0))
    (blockage,) = made.blockages_of(BUS, ms(1))
    assert (blockage.entry_ms, blockage.exit_ms) == (ms(60), ms(90))
    assert made.blockages_of(BUS, ms(90)) == ()


def test_while_it_is_dark_the_blockage_began_when_it_was_observed() -> None:
    made = driving(eastwards(-40.0, 20.0))
    expected = only(made, 30)
    made.observe(VAN, ms(33), None)
    dark = only(made, 35)
    assert dark.entry_ms == ms(33)
    assert dark.duration_s == expected.duration_s
    assert dark.confidence == 1.0


def test_who_stays_dark_longer_is_believed_inside_and_then_lost() -> None:
    made = driving(eastwards(-40.0, 20.0))
    made.observe(VAN, ms(32), None)
    over = only(made, 33).exit_ms
    late = made.blockages_of(VAN, over + 10_000)[0]
    assert over + 10_000 < late.exit_ms < over + 25_000
    assert made.blockages_of(VAN, over + 300_000) == ()


def test_once_it_is_light_again_nothing_is_expected_of_what_has_been() -> None:
    made = driving(eastwards(-40.0, 20.0))
    made.observe(VAN, ms(32), None)
    assert made.blockages_of(VAN, ms(40))
    made.observe(VAN, ms(32), ms(50))
    assert made.blockages_of(VAN, ms(50)) == ()


def test_a_bridge_shortly_before_does_not_hide_the_tunnel() -> None:
    made = driving(eastwards(-400.0, 20.0))
    made.observe(VAN, ms(31), ms(33))
    assert abs(only(made, 33).entry_ms - ms(50)) < 500


def test_both_ends_of_a_link_observe_one_blockage() -> None:
    made = driving(eastwards(-40.0, 20.0))
    made.observe(VAN, ms(32), None)
    made.observe(VAN, ms(32.4), None)
    made.observe(VAN, ms(32.4), ms(60))
    made.observe(VAN, ms(32), ms(60.2))
    assert made.blockages_of(VAN, ms(61)) == ()


def test_during_one_passage_of_an_obstruction_the_next_one_stays_expected() -> None:
    made = driving(eastwards(-40.0, 20.0), serpentine())
    first, second = made.blockages_of(VAN, ms(30))
    # The link is lost a second before the expected entry, or three seconds after it.
    for begins in (31, 35):
        made = driving(eastwards(-40.0, 20.0), serpentine())
        made.observe(VAN, ms(begins), None)
        present, following = made.blockages_of(VAN, ms(begins + 1))
        assert present.entry_ms == ms(begins)
        assert present.duration_s == first.duration_s
        assert following == second
        # After the exit: before there is a fix, and then with one.
        made.observe(VAN, ms(begins), ms(begins + 10))
        assert made.blockages_of(VAN, ms(begins + 10)) == (second,)
        made.feed(VAN, fix(begins + 11, 230.0, 0.0, 20.0))
        assert abs(only(made, begins + 11).entry_ms - ms(begins + 11 + 18.5)) < 1_500


def test_a_loss_that_nothing_foretold_reserves_nothing() -> None:
    made = driving(eastwards(-400.0, 20.0, y=500.0))
    made.observe(VAN, ms(31), None)
    assert made.blockages_of(VAN, ms(35)) == ()


def lost_through(seconds: tuple[int, int], obstructions: ObstructionMap) -> Predictions:
    made = Predictions(obstructions)
    for second in range(90):
        if second == seconds[1] + 2:
            made.observe(VAN, ms(seconds[0]), ms(seconds[1]))
        if not seconds[0] < second < seconds[1]:
            made.feed(VAN, fix(second, -600.0 + 20.0 * second, 500.0, 20.0))
    return made


def test_a_loss_in_motion_is_a_lesson() -> None:
    made = lost_through((30, 45), ObstructionMap([]))
    (lesson,) = made.lessons()
    # All tenants see the id, which tells neither the vehicle nor the time.
    assert re.fullmatch(r"learned:[0-9a-f]{16}", lesson.id)
    assert lesson.seen is not None
    # The lesson is returned until it is stored.
    assert made.lessons() == [lesson]
    made.stored(1)
    assert made.lessons() == []


def knowing() -> tuple[Predictions, Learned]:
    """Return predictions that know the place where a link was lost once, and that place."""
    (lesson,) = lost_through((30, 45), ObstructionMap([])).lessons()
    (place,) = lesson.applied((), ObstructionMap([]))
    made = Predictions()
    made.set_map(ObstructionMap([place.obstruction]), {place.id: place})
    return made, place


def counted(made: Predictions, known: Learned) -> tuple[int, int]:
    """Return how often the link was lost at the known place, and held, with all lessons."""
    places: tuple[Learned, ...] = (known,)
    for one in made.lessons():
        places = one.applied(places, ObstructionMap([known.obstruction]))
    (place,) = places
    assert place.id == known.id
    return place.lost, place.held


def after_lessons(lessons: Iterable[Lesson]) -> tuple[Learned, ...]:
    places: tuple[Learned, ...] = ()
    for lesson in lessons:
        places = lesson.applied(places, ObstructionMap([]))
    return places


def test_a_loss_where_one_is_known_is_counted_there() -> None:
    made, known = knowing()
    for second in range(90):
        made.feed(VAN, fix(second, -600.0 + 20.0 * second, 500.0, 20.0))
        if second == 46:
            made.observe(VAN, ms(30), ms(45))
    assert len(made.lessons()) == 1
    assert counted(made, known)[0] == 2


def test_a_passage_on_which_the_link_held_counts_against_what_was_learned() -> None:
    made, known = knowing()
    for second in range(120):
        made.feed(VAN, fix(second, -600.0 + 20.0 * second, 500.0, 20.0))
        made.blockages_of(VAN, ms(second))
    assert len(made.lessons()) == 1
    assert counted(made, known) == (1, 1)


@pytest.mark.parametrize(
    ("held_back", "by_plan", "is_sensed", "counts"),
    [
        # The peer was silent until the plan's exit: had it been heard, the node would have sent.
        ((29, 46), True, True, (2, 0)),
        # The peer was heard.
        ((29, 30), True, True, (1, 1)),
        # Silence shows nothing where it is never noticed, and nothing while an operator blocks.
        ((29, 46), True, False, (1, 0)),
        ((0, 85), False, True, (1, 0)),
    ],
)
def test_a_passage_on_which_a_node_held_back_counts_as_its_peer_was_silent_or_heard(
    held_back: tuple[int, int], by_plan: bool, is_sensed: bool, counts: tuple[int, int]
) -> None:
    made, known = knowing()
    if is_sensed:
        made.observe(VAN, ms(-600), ms(-590))
    for second in range(120):
        if second == held_back[0]:
            made.held_back(VAN, ms(second), None, by_plan=by_plan)
        if second == held_back[1]:
            made.held_back(VAN, ms(held_back[0]), ms(second), by_plan=by_plan)
        made.feed(VAN, fix(second, -600.0 + 20.0 * second, 500.0, 20.0))
        made.blockages_of(VAN, ms(second))
    assert counted(made, known) == counts


@pytest.mark.parametrize(
    ("by_plan", "before_s", "counts"),
    [
        (True, 3_500, (1, 0)),
        (True, 3_700, (1, 1)),
        (False, 3_700, (1, 0)),
        (False, 90_000, (1, 1)),
    ],
)
def test_a_missed_end_of_holding_back_stops_counting_for_a_limited_time(
    by_plan: bool, before_s: int, counts: tuple[int, int]
) -> None:
    made, known = knowing()
    made.held_back(VAN, ms(-before_s), None, by_plan=by_plan)
    for second in range(120):
        made.feed(VAN, fix(second, -600.0 + 20.0 * second, 500.0, 20.0))
        made.blockages_of(VAN, ms(second))
    assert counted(made, known) == counts


def round_a_block(second: int) -> Fix:
    """Return the fix of a vehicle that drives round a block of 400 by 100 m, 20 m a second."""
    done_m = (20.0 * second) % 1_000.0
    for x, y, east, north, side_m in ((-100, 0, 1, 0, 400), (300, 0, 0, 1, 100)):
        for sign in (1.0, -1.0):
            begins_m = (0.0 if east else 400.0) + (0.0 if sign > 0 else 500.0)
            if begins_m <= done_m < begins_m + side_m:
                on_m = done_m - begins_m
                first = (x, y) if sign > 0 else (200 - x, 100 - y)
                heading = (90.0 if east else 0.0) + (0.0 if sign > 0 else 180.0)
                return fix(
                    second,
                    first[0] + sign * east * on_m,
                    first[1] + sign * north * on_m,
                    20.0,
                    heading,
                )
    raise AssertionError(done_m)


def test_each_passage_of_a_place_counts_once_whatever_else_is_expected_of_it() -> None:
    place = Learned("a", line((-100, 0), (0, 0)), line((0, 0), (120, 0)))
    lessons = Lessons()
    lessons.set_map(ObstructionMap([place.obstruction]), {"a": place})
    predictor = Predictor(ObstructionMap([]))
    taught = []
    for second in range(150):
        predictor.feed(round_a_block(second))
        # It is entered 5 s after each round has begun, and always foreseen twice.
        ahead = [at_s for at_s in range(5, 400, 50) if at_s > second][:2]
        lessons.expect(
            VAN, [Blockage("a", ms(s), ms(s + 6), 0.9, ms(second)) for s in ahead], ms(second)
        )
        lessons.look(VAN, predictor.track)
        taught.append(len(lessons.unstored()))
    assert taught[35] == 0
    assert taught[50] == 1
    assert taught[100] == 2
    assert taught[-1] == 3
    assert set(lessons.unstored()) == {Lesson("a", None)}


def test_a_passage_costs_the_same_however_many_places_are_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_at = 0
    applied = Lesson.applied

    def counted(
        lesson: Lesson, known: Iterable[Learned], mapped: ObstructionMap
    ) -> tuple[Learned, ...]:
        nonlocal looked_at
        known = tuple(known)
        looked_at += len(known)
        return applied(lesson, known, mapped)

    monkeypatch.setattr(Lesson, "applied", counted)
    place = Learned("a", line((-100, 0), (0, 0)), line((0, 0), (120, 0)))
    others = [replace(place, id=f"b{number}") for number in range(100)]
    lessons = Lessons()
    lessons.set_map(ObstructionMap([]), {one.id: one for one in (*others, place)})
    # Lost once, it is forgotten with the sixth passage on which the link holds.
    for passages in range(1, 7):
        lessons._teach(Lesson("a", None))
        assert looked_at == passages
        assert ("a" in lessons._known) == (passages < 6)
    lessons._teach(Lesson("a", None))
    assert len(lessons.unstored()) == 6
    assert len(lessons._known) == len(others)


@pytest.mark.parametrize(
    ("away_m", "learns"),
    [((), True), ((5_000.0,), False), ((20.0, 800.0), True), ((20.0, 800.0, 5_000.0), False)],
)
def test_a_loss_that_vehicles_far_apart_share_is_not_of_the_place(
    away_m: tuple[float, ...], learns: bool
) -> None:
    made = Predictions(ObstructionMap([]))
    for number, away in enumerate(away_m, 1):
        made.feed(VAN + number, fix(0, 0.0, 500.0 + away, 0.0))
    for second in range(90):
        # All lost their links at about the same time, as when a gateway restarts.
        if second == 47:
            made.observe(VAN, ms(30), ms(45))
            for number in range(1, len(away_m) + 1):
                made.observe(VAN + number, ms(30) + 500 * number, ms(44))
        if not 30 < second < 45:
            made.feed(VAN, fix(second, -600.0 + 20.0 * second, 500.0, 20.0))
    assert len(made.lessons()) == learns


def test_a_convoy_in_an_unknown_tunnel_learns_it() -> None:
    made = Predictions(ObstructionMap([]))
    for second in range(90):
        for number in range(3):
            # A second apart: 20 m.
            if second == 48:
                made.observe(VAN + number, ms(30 + number), ms(45 + number))
            if not 30 + number < second < 45 + number:
                x = -600.0 + 20.0 * (second - number)
                made.feed(VAN + number, fix(second, x, 500.0, 20.0))
    (place,) = after_lessons(made.lessons())
    assert place.lost == 3


def test_a_restart_of_the_gateway_teaches_nothing_to_a_fleet() -> None:
    made = Predictions(ObstructionMap([]))
    for second in range(70):
        for number in range(50):
            if second == 47:
                made.observe(VAN + number, ms(30 + number % 3), ms(45))
            made.feed(VAN + number, fix(second, 20.0 * second, 5_000.0 * number, 20.0))
    assert made.lessons() == []


def test_late_reports_of_an_earlier_loss_teach_and_say_nothing_of_the_present() -> None:
    made = driving(eastwards(-40.0, 20.0))
    made.observe(VAN, ms(32), None)
    made.observe(VAN, ms(5), ms(9))
    assert only(made, 40).entry_ms == ms(32)


def test_another_map_takes_the_track_along() -> None:
    made = driving(eastwards(-400.0, 20.0), ObstructionMap([]))
    assert made.blockages_of(VAN, ms(30)) == ()
    made.set_map(MAP)
    # The road is found with the next fix.
    made.feed(VAN, fix(31, -380.0, 0.0, 20.0))
    assert abs(only(made, 31).entry_ms - ms(50)) < 500


def test_a_route_that_turns_off_keeps_clear_of_the_tunnel() -> None:
    made = driving(eastwards(-400.0, 20.0))
    made.set_route(VAN, (at(-2_000.0), at(-300.0), at(-300.0, 1_000.0)))
    assert made.blockages_of(VAN, ms(30)) == ()
    made.set_route(VAN, None)
    assert made.blockages_of(VAN, ms(30))


def test_a_route_is_laid_over_the_map_once_it_is_needed_and_not_before(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    laid = 0

    class Counted(Route):
        def __init__(self, line: Line, on: ObstructionMap) -> None:
            nonlocal laid
            laid += 1
            super().__init__(line, on)

    monkeypatch.setattr("dama.prediction.predictor.Route", Counted)
    made = driving(eastwards(-400.0, 20.0))
    way = (at(-2_000.0), at(-300.0), at(-300.0, 1_000.0))
    made.set_route(VAN, way)
    made.set_map(MAP)
    made.set_map(MAP)
    assert laid == 0
    for later in range(3):
        assert made.blockages_of(VAN, ms(30 + later)) == ()
        # The routes of all terminals are read when one's may have changed.
        made.set_route(VAN, way)
        made.set_route(BUS, None)
    assert laid == 1


def test_two_vehicles_under_one_number_are_told_once_and_a_leap_is_not() -> None:
    made = Predictions(MAP)
    for second in range(60):
        made.feed(VAN, fix(second, -1_500.0 + 20.0 * second, 0.0, 20.0))
        if second == 30:
            made.feed(VAN, fix(second + 0.5, 9_000.0, 0.0, 20.0))
    assert made.take_leaping() == set()
    for second in range(60, 120):
        made.feed(VAN, fix(second, 20.0 * second, 0.0, 20.0))
        made.feed(VAN, fix(second + 0.5, 20.0 * second, 50_000.0, 20.0))
        if second == 66:
            assert made.take_leaping() == {VAN}
    assert made.take_leaping() == set()


@pytest.mark.parametrize("behind", [3, 90, 3_600])
def test_a_second_vehicle_whose_clock_is_behind_is_told_once_and_spoils_nothing(
    behind: int,
) -> None:
    made, alone = Predictions(MAP), Predictions(MAP)
    told = 0
    for second in range(400):
        one = fix(second, -1_500.0 + 20.0 * second, 0.0, 20.0)
        made.feed(VAN, one)
        alone.feed(VAN, one)
        assert not made.feed(VAN, fix(second - behind, 20.0 * second, 50_000.0, 20.0))
        assert made.blockages_of(VAN, ms(second)) == alone.blockages_of(VAN, ms(second))
        told += made.take_leaping() == {VAN}
    assert told == 1


def test_what_has_waited_in_blockages_is_late_and_of_no_second_vehicle() -> None:
    made = Predictions(MAP)
    for begin in range(0, 1_200, 40):
        # The newest first, then the waiting ones in order of time.
        for second in (*range(begin, begin + 20), begin + 40, *range(begin + 20, begin + 40)):
            made.feed(VAN, fix(second, 20.0 * second, 5_000.0, 20.0))
    assert made.take_leaping() == set()


def test_hours_of_positions_that_come_beside_the_newest_are_of_no_second_vehicle() -> None:
    made = Predictions(MAP)
    for second in range(700):
        made.feed(VAN, fix(14_000 + second, 20.0 * second, 5_000.0, 20.0))
        for waited in range(20 * second, 20 * second + 20):
            made.feed(VAN, fix(waited, 0.0, 5_000.0, 0.0))
    assert made.take_leaping() == set()


def parked(made: Predictions) -> int:
    """Drive through the tunnel and past it, switch off, and return when that drive is over."""
    for one in eastwards(1_500.0, 20.0, seconds=150):
        made.feed(VAN, one)
    return ms(150) + 20 * 60_000


def test_a_drive_is_remembered_once_it_is_over_until_it_is_stored() -> None:
    made = Predictions(MAP)
    over_ms = parked(made)
    assert made.habits(over_ms - 60_000) == {}
    habits = made.habits(over_ms)
    assert [one.roads for one in habits[VAN].drives] == [("t/forward/0", "t/forward")]
    assert made.habits(over_ms + 1) == habits
    made.habits_stored(habits)
    assert made.habits(over_ms + 2) == {}


def test_a_drive_that_is_over_is_found_after_the_clock_was_set_back() -> None:
    made = Predictions(MAP)
    assert made.habits(ms(86_400)) == {}
    assert list(made.habits(parked(made))) == [VAN]


def test_what_is_stored_is_not_set_over_what_is_not() -> None:
    made = Predictions(MAP)
    habits = made.habits(parked(made))
    made.set_habits(VAN, Habits())
    assert made.habits(0) == habits
    made.habits_stored(habits)
    made.set_habits(BUS, habits[VAN])
    made.set_map(MAP)
    made.set_route(BUS, None)
    made.forget(VAN)
    assert made.habits(0) == {}


def test_between_fixes_what_is_told_of_a_moving_vehicle_is_what_its_predictor_says() -> None:
    fixes = eastwards(-400.0, 20.0)
    made = driving(fixes)
    told = [made.blockages_of(VAN, ms(30) + later) for later in range(0, 90_000, 250)]
    predictor = after(fixes)
    said = [predictor.blockages(ms(30) + later) for later in range(0, 90_000, 250)]
    for number, found in enumerate(told):
        # Predictions that change only with time are checked twice a second.
        assert found in said[max(number - 2, 0) : number + 1]


def test_terminals_of_another_satellite_neither_count_nor_unlearn_a_place() -> None:
    (lesson,) = lost_through((30, 45), ObstructionMap([])).lessons()
    assert lesson.satellite is None
    (place,) = replace(lesson, satellite="astra").applied((), ObstructionMap([]))
    assert place.satellite == "astra"
    # It is also expected for terminals whose satellite is unknown.
    made = Predictions()
    made.set_map(ObstructionMap([place.obstruction]), {place.id: place})
    for second in range(120):
        made.feed(VAN, fix(second, -600.0 + 20.0 * second, 500.0, 20.0))
        expected = made.blockages_of(VAN, ms(second))
        assert bool(expected) or second != 20
    assert made.lessons() == []
    made = Predictions()
    made.set_map(ObstructionMap([]), {place.id: place}, "west")
    for second in range(90):
        made.feed(VAN, fix(second, -600.0 + 20.0 * second, 500.0, 20.0))
        assert made.blockages_of(VAN, ms(second)) == ()
        if second == 46:
            made.observe(VAN, ms(30), ms(45))
    (own,) = made.lessons()
    assert own.satellite == "west"
    assert [one.satellite for one in own.applied([place], ObstructionMap([]))] == ["astra", "west"]
