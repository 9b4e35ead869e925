"""Several passages of one obstruction on one way: each is predicted, with its own time."""

from __future__ import annotations

import math

import pytest

from dama.prediction import Obstruction, ObstructionMap, Onward, Predictor, Road
from dama.prediction.places import Line
from dama.prediction.ways_ahead import MAX_STEPS, MOST_PASSAGES
from tests.dama.prediction.test_laws import after, eastwards, fix, line, now

SPEED_MPS = 20.0


def serpentine(times: int = 2, onward: float = 1.0) -> ObstructionMap:
    """A road under one roof again and again: 200 m of it, then 400 m in the open.

    It enters the roof at x = 0, 600, 1200 …; `onward` is the part that goes on from each exit.
    """
    roads = [Road("in", line((-2000, 0), (0, 0)), onward=(Onward("t0", 1.0),), limit_mps=20.0)]
    for n in range(times):
        x = 600.0 * n
        under = line((x, 0), (x + 200, 0))
        out = (Onward(f"o{n}", onward),)
        roads.append(Road(f"t{n}", under, covered_by="t", onward=out, limit_mps=20.0))
        into = (Onward(f"t{n + 1}", 1.0),) if n + 1 < times else ()
        roads.append(Road(f"o{n}", line((x + 200, 0), (x + 600, 0)), onward=into, limit_mps=20.0))
    return ObstructionMap([Obstruction("t", roads=tuple(roads))])


def entries_s(predictor: Predictor) -> list[float]:
    last = predictor.track.last
    assert last is not None
    return [(one.entry_ms - last.time_ms) / 1000.0 for one in now(predictor)]


def test_each_passage_of_a_serpentine_is_told_with_its_own_time() -> None:
    first, second = now(after(eastwards(-400.0, SPEED_MPS), serpentine()))
    assert (first.obstruction_id, second.obstruction_id) == ("t", "t")
    assert first.duration_s == pytest.approx(10.0, abs=0.5)
    assert second.duration_s == pytest.approx(10.0, abs=0.5)
    assert second.entry_ms - first.entry_ms == pytest.approx(30_000, abs=1_000)
    assert first.entry_within_ms is not None
    assert second.entry_within_ms is not None
    # The times of later passages are less exact.
    first_ms, second_ms = (
        until - since for since, until in (first.entry_within_ms, second.entry_within_ms)
    )
    assert second_ms > first_ms
    assert first.confidence > 0.95
    assert second.confidence > 0.95


def test_each_passage_is_as_probable_as_the_way_that_leads_to_it() -> None:
    first, second = now(after(eastwards(-400.0, SPEED_MPS), serpentine(onward=0.6)))
    assert first.confidence > 0.95
    assert second.confidence == pytest.approx(0.6, abs=0.03)
    known = serpentine(4, onward=0.9)
    found = {into.number: into.probability for into in known.into("in")}
    assert found == pytest.approx({0: 1.0, 1: 0.9, 2: 0.81})


def test_no_more_passages_than_a_few_are_told() -> None:
    assert len(entries_s(after(eastwards(-100.0, SPEED_MPS), serpentine(9)))) == MOST_PASSAGES


def test_behind_the_first_passage_the_second_one_is_the_next() -> None:
    known = serpentine()
    for x in (230.0, 300.0, 400.0):
        driven = eastwards(x, SPEED_MPS)
        seen = [one for one in driven if not 0.0 <= x - 20.0 * (30 - driven.index(one)) <= 200.0]
        (comes_s,) = entries_s(after(seen, known))
        assert comes_s == pytest.approx((600.0 - x) / SPEED_MPS, abs=1.5)


def test_at_the_end_of_the_first_passage_the_second_one_is_the_next() -> None:
    # A fix under the roof's edge, 20 m before the exit: that passage counts as over.
    predictor = after(eastwards(180.0, SPEED_MPS, seconds=20), serpentine())
    (comes_s,) = entries_s(predictor)
    assert comes_s == pytest.approx(21.0, abs=1.5)


# A quarter of a kilometre at 5 m/s, with the time to brake and to speed up again.
ROUND_S = 4.0 * math.hypot(50.0, 40.0) / 5.0 + 8.7


def turning() -> tuple[ObstructionMap, Line]:
    """A road through a tunnel to a place to turn, and back; with the route that does so."""
    there, back = (Onward("out", 1.0),), (Onward("end", 1.0),)
    roads = (
        Road("in", line((-2000, 0), (0, 0)), onward=(Onward("t", 1.0),), limit_mps=20.0),
        Road("t", line((0, 0), (300, 0)), covered_by="t", onward=there, limit_mps=20.0),
        Road("out", line((300, 0), (600, 0)), onward=(Onward("ring", 0.3),), limit_mps=20.0),
        Road(
            "ring",
            line((600, 0), (650, -40), (700, 0), (650, 40), (600, 0)),
            onward=(Onward("home", 1.0),),
            limit_mps=5.0,
        ),
        Road("home", line((600, 0), (300, 0)), onward=(Onward("t'", 1.0),), limit_mps=20.0),
        Road("t'", line((300, 0), (0, 0)), covered_by="t", onward=back, limit_mps=20.0),
        Road("end", line((0, 0), (-2000, 0)), limit_mps=20.0),
    )
    ring = ((600, 0), (650, -40), (700, 0), (650, 40), (600, 0))
    route = line((-2000, 0), *ring, (-2000, 0))
    return ObstructionMap([Obstruction("t", roads=roads)]), route


def test_a_route_that_turns_round_passes_a_tunnel_there_and_back() -> None:
    known, route = turning()
    predictor = Predictor(known, route=route)
    for one in eastwards(-400.0, SPEED_MPS):
        predictor.feed(one)
        now(predictor)
    first_s, second_s = entries_s(predictor)
    assert first_s == pytest.approx(20.0, abs=1.5)
    # 300 m of tunnel and 300 m each way, and round.
    assert second_s - first_s == pytest.approx(45.0 + ROUND_S, abs=4.0)
    assert min(one.confidence for one in now(predictor)) > 0.9


def test_by_the_map_the_way_back_is_told_as_probably_as_vehicles_turn() -> None:
    known, _ = turning()
    told = now(after(eastwards(-400.0, SPEED_MPS), known))
    assert [one.confidence for one in told] == pytest.approx([1.0, 0.3], abs=0.03)


def test_who_may_turn_round_at_a_dead_end_is_not_told_to_come_back() -> None:
    back = (Onward("back", 0.5),)
    roads = (
        Road("in", line((-2000, 0), (0, 0)), onward=(Onward("t", 1.0),)),
        Road("t", line((0, 0), (300, 0)), covered_by="t", onward=(Onward("end", 1.0),)),
        Road("end", line((300, 0), (600, 0)), onward=back),
        Road("back", line((600, 0), (300, 0)), onward=(Onward("t'", 1.0),)),
        Road("t'", line((300, 0), (0, 0)), covered_by="t"),
    )
    known = ObstructionMap([Obstruction("t", roads=roads)])
    assert len(now(after(eastwards(-400.0, SPEED_MPS), known))) == 1
    # Before the first passage, only the map is known: half of the traffic turns round.
    (passage,) = known.ahead("end")
    assert (passage.number, passage.probability) == (0, 0.5)


def test_a_remembered_drive_that_turned_round_tells_both_passages() -> None:
    known, _ = turning()
    first = Predictor(known)
    first.track = after(eastwards(-400.0, SPEED_MPS), known).track
    drive = ("in", "t", "out", "ring", "home", "t'", "end")
    passages = known.along(drive)
    assert [passage.number for passage in passages] == [0, 1]
    first.habits = first.habits.after(drive, 0).after(drive, 1)
    told = now(first)
    assert len(told) == 2
    assert told[1].confidence > 0.6


def test_a_predictor_made_again_between_two_passages_goes_on() -> None:
    known, route = turning()
    fixes = [*eastwards(-20.0, SPEED_MPS), *(fix(50 + s, 320 + 20 * s, 0, 20.0) for s in range(6))]
    first = Predictor(known, route=route)
    for one in fixes:
        first.feed(one)
        now(first)
    again = Predictor(known, first.track, route)
    for _ in range(20):
        # As often as the road ahead is asked for, the route's matching goes on; until it is done,
        # the map alone counts.
        (blockage,) = again.blockages(fixes[-1].time_ms)
        assert blockage.obstruction_id == "t"
    assert now(again) == now(first)
    (back_s,) = entries_s(first)
    assert back_s == pytest.approx((180.0 + 300.0) / SPEED_MPS + ROUND_S, abs=4.0)


def test_ways_that_lead_back_in_without_end_are_bounded() -> None:
    hall = tuple(Onward(f"o{n}", 0.25) for n in range(4))
    roads = [
        Road("in", line((-900, 0), (0, 0)), onward=(Onward("t", 1.0),)),
        Road("t", line((0, 0), (50, 0)), covered_by="t", onward=hall),
    ]
    for n in range(4):
        y = 50.0 * (n + 1)
        out = line((50, 0), (400 + y, y), (-90, y + 20), (0, y))
        roads.append(Road(f"o{n}", out, onward=(Onward(f"u{n}", 1.0),)))
        roads.append(Road(f"u{n}", line((0, y), (50, y)), covered_by="t", onward=hall))
    known = ObstructionMap([Obstruction("t", roads=tuple(roads))])
    found = known.ahead("in")
    assert {one.number for one in found} == set(range(MOST_PASSAGES))
    for number in range(MOST_PASSAGES):
        of = [one.probability for one in found if one.number == number]
        assert math.fsum(of) <= 1.0 + 1e-9
    assert len(found) <= MAX_STEPS
