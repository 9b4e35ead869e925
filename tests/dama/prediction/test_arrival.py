"""When a vehicle enters and leaves: profiles of ways, and the quantiles of its times."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from dama.prediction.arrival import Quantiles, arrivals, median_and_range, of_ways
from dama.prediction.forecast import Errors
from dama.prediction.places import Course
from dama.prediction.profile import ACCELERATION, BRAKING, Profile, Shape
from dama.prediction.speed import Pace
from tests.dama.prediction.test_laws import line

CRUISING = Pace(now_mps=20.0, cruise_mps=20.0, usual_mps=20.0, moved_s=100.0)


def profile(*roads: tuple[list[tuple[float, float]], float | None]) -> Profile:
    """Return the profile of roads with the speeds expected of them, the last of them covered."""
    courses = [(Course(line(*points)), speed) for points, speed in roads]
    shapes = [Shape.of(*one) for one in courses]
    lengths = [course.length_m for course, _ in courses]
    return Profile(shapes[:-1], shapes[-1:], sum(lengths[:-1]), lengths[-1])


def told(pace: Pace, way: Profile, offset_m: float, stood_s: float | None = None) -> Quantiles:
    points = arrivals(pace, Errors(), way, offset_m, stood_s)
    return median_and_range((entry_s, weight, known) for weight, entry_s, _, known in points)


def test_time_is_length_by_speed_at_each_factor() -> None:
    way = profile(([(-1000, 0), (0, 0)], 20.0), ([(0, 0), (500, 0)], 20.0))
    for factor in (0.4, 0.6, 1.0, 1.25, 3.5):
        entry_s, inside_s, here_mps = way.times(250.0, factor)
        assert entry_s == pytest.approx(750.0 / (20.0 * factor), rel=0.01)
        assert inside_s == pytest.approx(500.0 / (20.0 * factor), rel=0.01)
        assert here_mps == pytest.approx(20.0 * factor, rel=0.01)


@pytest.mark.parametrize("slow_mps", [1e-9, 1e-3, 0.3])
def test_a_limit_at_which_nobody_drives_gives_times_all_the_same(slow_mps: float) -> None:
    way = profile(([(-90_000, 0), (-9, 0), (-9, 0), (0, 0)], slow_mps), ([(0, 0), (9, 0)], 20.0))
    entry_s, inside_s, here_mps = way.times(0.0, 1.0)
    assert entry_s == pytest.approx(180_000.0, rel=0.01)
    assert 0.0 < inside_s < 30.0
    assert here_mps > 0.0


def test_a_slower_road_is_braked_for_in_time() -> None:
    way = profile(([(-1000, 0), (0, 0)], 20.0), ([(0, 0), (500, 0)], 10.0))
    entry_s, inside_s, _ = way.times(0.0, 1.0)
    braking_m = (20.0**2 - 10.0**2) / (2.0 * BRAKING)
    assert entry_s == pytest.approx((1000.0 - braking_m) / 20.0 + 10.0 / BRAKING, rel=0.01)
    assert inside_s == pytest.approx(50.0, rel=0.01)
    assert way.times(990.0, 1.0)[2] < 12.0


def test_a_tunnels_limit_says_nothing_of_the_road_before_it() -> None:
    bent = [(-1000.0, 0.0), (-500.0, 0.0), (-460.0, 20.0), (0.0, 20.0)]
    way = profile((bent, None), ([(0.0, 20.0), (500.0, 20.0)], 15.0))
    assert not way.is_known
    entry_s, inside_s, here_mps = way.times(0.0, CRUISING.factor(is_known=way.is_known))
    assert entry_s == pytest.approx(way.approach_m / 20.0, rel=0.02)
    assert inside_s == pytest.approx(500.0 / 15.0, rel=0.02)
    assert here_mps == pytest.approx(20.0, rel=0.02)


def test_a_sharp_turn_takes_time() -> None:
    straight = profile(
        ([(-300, 0), (0, 0)], 14.0), ([(0, 0), (300, 0)], 14.0), ([(300, 0), (400, 0)], 14.0)
    )
    turning = profile(
        ([(-300, 0), (0, 0)], 14.0), ([(0, 0), (0, 300)], 14.0), ([(0, 300), (0, 400)], 14.0)
    )
    assert turning.times(0.0, 1.0)[0] > straight.times(0.0, 1.0)[0] + 2.0


def test_a_segment_of_any_length_costs_no_more_than_some_steps() -> None:
    far = Course(((-170.0, 0.0), (0.0, 60.0), (170.0, 0.0)))
    assert len(Shape.of(far, 20.0).steps_m) == 32


def test_inside_only_the_rest_is_left() -> None:
    way = Profile.of_lengths(0.0, 600.0)
    entry_s, inside_s, _ = way.times(450.0, 1.0)
    assert entry_s == 0.0
    assert inside_s == pytest.approx(150.0 / 13.9, rel=0.01)


def test_a_vehicle_that_has_just_started_needs_longer() -> None:
    way = Profile.of_lengths(1000.0, 100.0)
    started = Pace(now_mps=2.0, cruise_mps=20.0, usual_mps=20.0, moved_s=100.0)
    lost_s = (20.0 - 2.0) ** 2 / (2.0 * ACCELERATION * 20.0)
    (first, *_), (moving, *_) = (
        arrivals(pace, Errors(), way, 0.0, None) for pace in (started, CRUISING)
    )
    assert first[1] > moving[1]
    # This near, the vehicle does not reach its free speed.
    near_s = told(CRUISING, way, 990.0).p50_s
    assert near_s + 1.0 < told(started, way, 990.0).p50_s < near_s + lost_s


def test_what_is_further_away_is_told_less_exactly() -> None:
    way = Profile.of_lengths(2000.0, 500.0)
    far, near = told(CRUISING, way, 0.0), told(CRUISING, way, 1800.0)
    assert near.p10_s < near.p50_s < near.p90_s
    assert far.p90_s - far.p10_s > 3.0 * (near.p90_s - near.p10_s)
    inside = arrivals(CRUISING, Errors(), way, 2100.0, None)
    assert {entry_s for _, entry_s, _, _ in inside} == {0.0}
    assert len({exit_s for _, _, exit_s, _ in inside}) > 1


def test_weights_are_those_of_one_passage() -> None:
    way = Profile.of_lengths(500.0, 100.0)
    for pace, stood_s in ((CRUISING, None), (CRUISING, 20.0), (Pace(2.0, 20.0), None)):
        total = math.fsum(point[0] for point in arrivals(pace, Errors(), way, 0.0, stood_s, 0.7))
        assert total == pytest.approx(0.7)


def lit(*lights_m: float | None) -> Profile:
    """Return a way of 200 m roads, the last of them covered, with a light on some of them."""
    places = [200.0 * n for n in range(len(lights_m) + 1)]
    shapes = [
        Shape.of(Course(line((begins, 0), (begins + 200.0, 0))), 20.0, light_m)
        for begins, light_m in zip(places, lights_m, strict=False)
    ]
    return Profile(shapes[:-1], shapes[-1:], 200.0 * (len(shapes) - 1), 200.0)


def test_a_light_on_the_way_makes_a_late_entry_more_probable_and_the_median_no_later() -> None:
    none, one, two = lit(None, None, None), lit(50.0, None, None), lit(50.0, 100.0, None)
    assert [way.lights_after(0.0) for way in (none, one, two)] == [0, 1, 2]
    assert [way.lights_after(60.0) for way in (none, one, two)] == [0, 0, 1]
    dark, red, twice = (told(CRUISING, way, 0.0) for way in (none, one, two))
    assert dark.p90_s + 10.0 < red.p90_s < twice.p90_s
    assert dark.p50_s == pytest.approx(red.p50_s, abs=0.5)
    # A light that was passed makes no difference.
    assert told(CRUISING, one, 60.0) == told(CRUISING, none, 60.0)


def test_lights_of_one_crossing_are_one_light() -> None:
    assert lit(180.0, 0.0, None).lights_after(0.0) == 1
    assert lit(150.0, 0.0, None).lights_after(0.0) == 2


def test_a_light_inside_makes_the_exit_late_and_not_the_entry() -> None:
    dark, lit_inside = lit(None, None), lit(None, 100.0)
    assert (lit_inside.lights_after(0.0), lit_inside.lights_inside) == (0, 1)
    entries = told(CRUISING, lit_inside, 0.0), told(CRUISING, dark, 0.0)
    assert tuple(entries[0]) == pytest.approx(tuple(entries[1]), abs=1.5)
    exits = [
        median_and_range(
            [
                (s, weight, known)
                for weight, _, s, known in arrivals(CRUISING, Errors(), way, 0.0, None)
            ]
        )
        for way in (dark, lit_inside)
    ]
    assert exits[0].p90_s + 10.0 < exits[1].p90_s
    assert exits[0].p50_s == pytest.approx(exits[1].p50_s, abs=0.5)


def test_in_a_queue_it_may_take_long() -> None:
    way = Profile.of_lengths(500.0, 100.0)
    creeping = Pace(now_mps=1.5, cruise_mps=15.0, usual_mps=15.0, moved_s=200.0)
    assert told(creeping, way, 350.0).p90_s > 3.0 * told(CRUISING, way, 350.0).p90_s


def test_a_queue_goes_on_the_longer_the_longer_it_has_lasted() -> None:
    way = Profile.of_lengths(500.0, 100.0)
    creeping = Pace(now_mps=2.0, cruise_mps=15.0, usual_mps=15.0, moved_s=200.0)
    # It is 100 m to the portal, 50 s at this speed and 7 s at the other.
    waits = [told(replace(creeping, slow_s=slow_s), way, 400.0) for slow_s in (0.0, 25.0, 200.0)]
    medians = [wait.p50_s for wait in waits]
    assert medians == sorted(medians)
    assert medians[0] < 20.0
    assert medians[2] == pytest.approx(50.0, abs=3.0)
    # How fast the queue will move is unknown, and at 2 m/s so is the vehicle's place in it, to 8 m.
    assert waits[2].p10_s < 30.0
    assert waits[2].p90_s > 75.0
    # If the queue may as well end at once, it has either ended or not.
    assert waits[1].p10_s < 15.0 < 45.0 < waits[1].p90_s


def test_only_motion_slower_than_the_road_is_a_queue() -> None:
    pace = Pace().after(14.0, 1.0, 14.0).after(14.0, 1.0, 14.0)
    assert pace.slow_s == 0.0
    for _ in range(30):
        pace = pace.after(2.0, 1.0, 14.0)
    assert pace.slow_s == pytest.approx(28.0, abs=2.0)
    # A stop within a queue neither ends the queue nor counts; driving freely ends it.
    assert pace.after(0.0, 40.0, 14.0).after(0.0, 40.0, 14.0).slow_s == pace.slow_s
    assert pace.after(14.0, 10.0, 14.0).slow_s == 0.0
    # On a road where 3 m/s is the usual speed, that is no queue.
    assert Pace().after(3.0, 1.0, 3.0).after(3.0, 1.0, 3.0).slow_s == 0.0


def test_a_silence_is_no_queue() -> None:
    # Out of a tunnel of five minutes, into a queue that has just begun.
    pace = Pace().after(14.0, 1.0, 14.0).after(14.0, 1.0, 14.0).after(2.0, 300.0, 14.0)
    assert pace.slow_s <= 10.0


def test_quantiles_of_weighted_moments() -> None:
    assert median_and_range([(7.0, 1.0, True)]) == (7.0, 7.0, 7.0)
    tenths = median_and_range((float(n), 1.0, True) for n in range(1, 11))
    assert tenths == pytest.approx((1.5, 5.5, 9.5))
    # A moment of weight 0 changes nothing.
    even = [(-50.0, 1e-9, True), (2.0, 1.0, True), (4.0, 1.0, True)]
    assert median_and_range(even).p50_s == pytest.approx(3.0)


def test_what_nobody_foresees_widens_what_is_told_and_moves_no_median() -> None:
    foreseen = [(float(n), 1.0, True) for n in range(1, 11)]
    held_up = median_and_range([*foreseen, (60.0, 3.0, False)])
    assert held_up.p50_s == pytest.approx(5.5)
    assert held_up.p90_s > 9.5


def test_between_a_short_way_and_a_long_one_nobody_comes() -> None:
    short = [(4.0 + n, 0.104, True) for n in range(5)]
    long = [(64.0 + n, 0.096, True) for n in range(5)]
    # The result has the short way's median, and a range that contains both ways.
    told_of_both = of_ways([short, long])
    assert told_of_both.p50_s == pytest.approx(6.0)
    assert told_of_both.p10_s < 6.0
    assert told_of_both.p90_s > 64.0
    assert of_ways([short]) == median_and_range(short)
    # Ways that overlap count as one.
    near = [(second + 3.0, part, known) for second, part, known in short]
    assert of_ways([short, near]) == median_and_range([*short, *near])
