"""A known route decides which obstructions are predicted, until the vehicle leaves it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from unittest import mock

import pytest

from dama.prediction import (
    Blockage,
    Fix,
    Obstruction,
    ObstructionMap,
    Onward,
    Predictor,
    Road,
    road_tunnel,
)
from dama.prediction.places import Foot, Line, Position
from dama.prediction.roadmap import Near
from dama.prediction.route import Route, _Compared
from tests.dama.prediction.test_laws import MAP, after, eastwards, fix, line, now
from tests.dama.prediction.test_predictor import forked

INTO = line((-2000, 0), (900, 0))
STEP = _Compared.step


def confidence(known: ObstructionMap, route: Line, fixes: list[Fix]) -> float:
    predictor = Predictor(known, route=route)
    told: tuple[Blockage, ...] = ()
    for one in fixes:
        predictor.feed(one)
        # As often as the road ahead is asked for, the route's matching goes on.
        told = now(predictor)
    return max((blockage.confidence for blockage in told), default=0.0)


def test_a_turn_that_hardly_anybody_takes_is_predicted_if_the_route_takes_it() -> None:
    assert confidence(forked(0.01), INTO, eastwards(-900.0, 20.0)) > 0.9


def test_a_route_the_other_way_passes_nothing_ahead() -> None:
    oneway = forked(0.5)
    assert Route(INTO[::-1], oneway).passages == ()
    assert [passage.obstruction_id for passage in Route(INTO, oneway).passages] == ["t"]


def test_a_route_over_a_tunnel_is_no_passage_of_it() -> None:
    known = ObstructionMap(
        [
            Obstruction(
                "t",
                roads=(
                    Road("in", line((-2000, 0), (0, 0)), onward=(Onward("t", 1.0),)),
                    Road("t", line((0, 0), (600, 0)), covered_by="t"),
                    Road("over", line((-2000, 60), (-100, 60), (20, 3), (580, 3), (900, 60))),
                ),
            )
        ]
    )
    over = line((-2000, 60), (-100, 60), (20, 3), (580, 3), (900, 60))
    assert Route(over, known).passages == ()
    (passage,) = Route(INTO, known).passages
    assert passage.entry_m == pytest.approx(2000.0, abs=10.0)
    assert passage.exit_m == pytest.approx(2600.0, abs=10.0)


def test_who_is_seen_to_leave_the_route_is_predicted_by_the_map() -> None:
    turning = [fix(31 + s, -300 + 7 * s, 7 * s, 10.0, 45.0) for s in range(14)]
    assert confidence(forked(0.7), INTO, [*eastwards(-305.0, 20.0), *turning]) < 0.2


def test_a_route_that_passes_a_place_twice_goes_on_from_where_the_vehicle_is() -> None:
    # Out along the road that leads past the tunnel's approach, round, and back into it.
    loop = line((-1500, 0), (-400, 0), (-400, 400), (-1500, 400), (-1500, 0), (900, 0))
    route = Route(loop, MAP)
    first = route.progress(after(eastwards(-600.0, 20.0), MAP).track)
    assert first is not None
    assert first.offset_m == pytest.approx(900.0, abs=20.0)


def test_a_vehicle_that_goes_round_is_on_the_round_of_its_route_that_it_drives() -> None:
    # Three times round a block, 160 m each, and on.
    corners = [(0.0, 0.0), (40.0, 0.0), (40.0, 40.0), (0.0, 40.0)]
    route = Route(line((-300, 0), *(3 * corners), (0, 0), (0, -500)), MAP)
    round_once = [(float(x), 0.0, 90.0) for x in range(0, 40, 5)]
    round_once += [(40.0, float(y), 0.0) for y in range(0, 40, 5)]
    round_once += [(float(x), 40.0, 270.0) for x in range(40, 0, -5)]
    round_once += [(0.0, float(y), 180.0) for y in range(40, 0, -5)]
    driven = [(float(x), 0.0, 90.0) for x in range(-300, 0, 5)] + 3 * round_once
    driven += [(0.0, float(y), 180.0) for y in range(0, -100, -5)]
    predictor = Predictor(MAP)
    for second, (x, y, heading) in enumerate(driven):
        predictor.feed(fix(second, x, y, 5.0, heading))
        progress = route.progress(predictor.track)
        assert progress is not None
        assert progress.offset_m == pytest.approx(5.0 * second, abs=20.0)


def rounds(count: int, radius_m: float = 60.0) -> tuple[Line, list[Fix]]:
    """A route that goes round a circle so often, and a vehicle that does so at 10 m/s."""
    angles = [math.tau * n / 24 for n in range(24 * count)]
    ring = [(radius_m * math.sin(a), radius_m * math.cos(a)) for a in angles]
    fixes = []
    for second in range(round(count * math.tau * radius_m / 10.0)):
        angle = 10.0 * second / radius_m
        x, y = radius_m * math.sin(angle), radius_m * math.cos(angle)
        fixes.append(fix(second, x, y, 10.0, (90.0 + math.degrees(angle)) % 360.0))
    return line(*ring), fixes


def test_a_route_that_circles_is_looked_up_once_a_fix() -> None:
    ring, fixes = rounds(8)
    route, predictor = Route(ring, MAP), Predictor(MAP)
    looked = 0

    def near(place: Position, radius_m: float) -> Iterator[Foot]:
        nonlocal looked
        looked += 1
        return Route._near(route, place, radius_m)

    compared: list[int] = []

    def step(self: _Compared, place: Position, passes: Iterable[Foot]) -> None:
        compared[-1] += 1
        STEP(self, place, passes)

    with mock.patch.object(route, "_near", near), mock.patch.object(_Compared, "step", step):
        for number, one in enumerate(fixes, start=1):
            predictor.feed(one)
            compared.append(0)
            assert route.progress(predictor.track) is not None
            assert looked <= number
    # The track is compared anew only after each further 25 m, not with each fix.
    assert sorted(compared)[len(compared) // 2] < 10
    assert max(compared) < 60


def test_what_a_route_remembers_of_a_track_makes_no_difference() -> None:
    ring, fixes = rounds(6)
    route, predictor = Route(ring, MAP), Predictor(MAP)
    for one in fixes:
        predictor.feed(one)
        assert route.progress(predictor.track) == Route(ring, MAP).progress(predictor.track)


def test_a_tunnel_that_is_left_and_entered_again_at_once_is_passed_twice() -> None:
    # In, out at a side, round by a short way and in again at the same place, out at the far end.
    known = ObstructionMap(
        [
            Obstruction(
                "t",
                roads=(
                    Road("in", line((-900, 0), (0, 0)), onward=(Onward("a", 1.0),)),
                    Road(
                        "a",
                        line((0, 0), (30, 0)),
                        covered_by="t",
                        onward=(Onward("out", 0.5), Onward("b", 0.5)),
                    ),
                    Road("out", line((30, 0), (30, 15), (0, 15)), onward=(Onward("back", 1.0),)),
                    Road("back", line((0, 15), (0, 0)), onward=(Onward("a", 1.0),)),
                    Road("b", line((30, 0), (200, 0)), covered_by="t"),
                ),
            )
        ]
    )
    twice = line((-900, 0), (30, 0), (30, 15), (0, 15), (0, 0), (600, 0))
    first, second = Route(twice, known).passages
    assert first.entry_m == pytest.approx(900.0, abs=20.0)
    assert first.exit_m == pytest.approx(930.0, abs=20.0)
    assert second.entry_m == pytest.approx(990.0, abs=20.0)
    assert second.exit_m == pytest.approx(1190.0, abs=20.0)


def test_a_route_is_as_fast_as_its_own_roads() -> None:
    fast = line((-600, 0), (-500, 30), (-200, 30), (-100, 0))
    slow = line((-600, 0), (-500, -30), (-200, -30), (-100, 0))
    first = (Onward("fast", 0.8), Onward("slow", 0.2))
    join = (Onward("join", 1.0),)
    known = ObstructionMap(
        [
            Obstruction(
                "t",
                roads=(
                    Road("in", line((-2000, 0), (-600, 0)), onward=first, limit_mps=20.0),
                    Road("fast", fast, onward=join, limit_mps=20.0),
                    Road("slow", slow, onward=join, limit_mps=5.0),
                    Road(
                        "join",
                        line((-100, 0), (0, 0)),
                        onward=(Onward("t", 1.0),),
                        limit_mps=20.0,
                    ),
                    Road("t", line((0, 0), (600, 0)), covered_by="t", limit_mps=20.0),
                ),
            )
        ]
    )

    def to_entry_s(way: Line) -> float:
        route = (*line((-2000, 0)), *way, *line((900, 0)))
        predictor = Predictor(known, route=route)
        for one in eastwards(-900.0, 20.0):
            predictor.feed(one)
            told = now(predictor)
        assert predictor.track.last is not None
        return (told[0].entry_ms - predictor.track.last.time_ms) / 1000.0

    # It is 0.9 km to the tunnel by either way, half a kilometre of it at the other speed.
    assert to_entry_s(slow) - to_entry_s(fast) == pytest.approx(509.0 / 5.0 - 509.0 / 20.0, abs=8.0)


def test_what_the_map_lacks_of_a_route_is_driven_as_the_road_behind_it() -> None:
    # The map begins 300 m before the portal; the vehicle has just started, 1.2 km before that.
    roads = (
        Road("in", line((-300, 0), (0, 0)), onward=(Onward("t", 1.0),), limit_mps=20.0),
        Road("t", line((0, 0), (600, 0)), covered_by="t", limit_mps=20.0),
    )
    known = ObstructionMap([Obstruction("t", roads=roads)])

    def told(route: Line, x: float, y: float = 0.0) -> tuple[float, float]:
        predictor = Predictor(known, route=route)
        for second in range(4):
            predictor.feed(fix(second, x + 2.0 * second, y, 2.0))
            blockages = now(predictor)
        assert predictor.track.last is not None
        (one,) = blockages
        since_ms = predictor.track.last.time_ms
        return (one.entry_ms - since_ms) / 1000.0, (one.exit_ms - one.entry_ms) / 1000.0

    straight = line((-1600, 0), (900, 0))
    entry_s, lasts_s = told(straight, -1500.0)
    assert entry_s == pytest.approx(1_500.0 / 20.0 + 8.0, abs=4.0)
    assert lasts_s == pytest.approx(30.0, abs=4.0)
    # Slight bends may come from inexact drawing; a corner is real.
    wavy = line(*((x, 2.0 * (x // 100 % 2)) for x in range(-1600, -300, 100)), (-300, 0), (900, 0))
    assert told(wavy, -1500.0)[0] == pytest.approx(entry_s, abs=1.0)
    corners = line((-1600, 0), (-900, 0), (-900, 300), (-600, 300), (-600, 0), (900, 0))
    assert told(corners, -1500.0)[0] > entry_s + 600.0 / 20.0 + 20.0


def test_a_route_elsewhere_changes_nothing() -> None:
    elsewhere = ((-170.0, -80.0), (179.0, -80.0))
    for fixes in (eastwards(-600.0, 20.0), eastwards(-100.0, 20.0)):
        assert confidence(forked(0.7), elsewhere, fixes) == confidence_without(fixes)


def confidence_without(fixes: list[Fix]) -> float:
    return max(b.confidence for b in now(after(fixes, forked(0.7))))


def test_who_goes_round_enters_once_at_most() -> None:
    # A ring with one way in, an exit into the tunnel, and one that leads elsewhere.
    ring = [(0.0, -20.0), (20.0, 0.0), (0.0, 20.0), (-20.0, 0.0)]
    quarter = [line(here, there) for here, there in zip(ring, [*ring[1:], ring[0]], strict=True)]
    known = ObstructionMap(
        [
            Obstruction(
                "t",
                roads=(
                    Road("in", line((0, -900), ring[0]), onward=(Onward("r0", 1.0),)),
                    Road("r0", quarter[0], onward=(Onward("r1", 0.5), Onward("out", 0.5))),
                    Road("out", line(ring[1], (200, 0)), onward=(Onward("t", 1.0),)),
                    Road("t", line((200, 0), (500, 0)), covered_by="t"),
                    Road("r1", quarter[1], onward=(Onward("r2", 1.0),)),
                    Road("r2", quarter[2], onward=(Onward("r3", 0.5),)),
                    Road("r3", quarter[3], onward=(Onward("r0", 1.0),)),
                ),
            )
        ]
    )
    for road in ("in", "r0", "r1"):
        total = math.fsum(passage.probability for passage in known.ahead(road))
        assert total <= 1.0
    # A quarter of the traffic comes round, and divides in the same way again.
    assert math.fsum(p.probability for p in known.ahead("in")) == pytest.approx(0.5 * 1.25)


def test_a_route_that_leaps_round_the_world_costs_little_and_passes_what_it_says() -> None:
    beyond = [(120.0, -80.0), (-60.0, 80.0)] * 2_000
    route = Route((*INTO, *beyond), forked(0.5))
    # The last of its straight parts leads from the tunnel to the other side of the world.
    assert [passage.obstruction_id for passage in route.passages] == ["t"]


def test_a_long_route_is_matched_little_by_little() -> None:
    known = forked(0.5)
    asked = 0
    steps = 0

    def near(place: Position, radius_m: float) -> list[Near]:
        nonlocal steps
        steps += 1
        return ObstructionMap.near(known, place, radius_m)

    with mock.patch.object(known, "near", near):
        route = Route(INTO, known)
        while not (found := list(route.ahead(0.0))):
            asked += 1
            assert steps <= 64 * asked
    assert 1 < asked < 10
    assert found == list(Route(INTO, known).passages)


def test_until_a_route_is_matched_the_map_alone_counts() -> None:
    road = line((-4000, 0), (0, 0))
    tunnel = road_tunnel("t", line((0, 0), (600, 0)), into_start=[road])
    beside = road_tunnel("u", line((-3900, 60), (-100, 60)))
    known = ObstructionMap([tunnel, beside])
    predictor = Predictor(known, route=line((-4000, 0), (900, 0)))
    for one in eastwards(-300.0, 20.0):
        predictor.feed(one)
    # The route is near to a covered road all along: it takes several looks.
    first = now(predictor)
    assert [blockage.obstruction_id for blockage in first] == ["t"]
    for _ in range(10):
        (later,) = now(predictor)
    assert later.confidence == pytest.approx(0.98, abs=0.01)
    assert later.entry_ms == pytest.approx(first[0].entry_ms, abs=500)


def test_a_route_of_one_place_passes_nothing() -> None:
    assert Route((INTO[0], INTO[0]), forked(0.5)).passages == ()
