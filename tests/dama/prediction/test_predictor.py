"""How the predictor deals with routes, areas, junctions, several tunnels and roads above them."""

from __future__ import annotations

import pytest

from dama.prediction import (
    Fix,
    FixError,
    Obstruction,
    ObstructionError,
    ObstructionMap,
    Onward,
    Predictor,
    Road,
    road_tunnel,
    ruling_time,
)
from dama.prediction.places import Line
from dama.prediction.route import Route
from tests.dama.prediction.test_laws import MAP, START_MS, after, at, eastwards, fix, line, now


def forked(straight: float) -> ObstructionMap:
    """A junction at x = -300: straight on into the tunnel, or to the north past it."""
    return ObstructionMap(
        [
            Obstruction(
                "t",
                roads=(
                    Road(
                        "a",
                        line((-2000, 0), (-300, 0)),
                        onward=(Onward("b", straight), Onward("c", 1.0 - straight)),
                    ),
                    Road("b", line((-300, 0), (0, 0)), onward=(Onward("d", 1.0),)),
                    Road("c", line((-300, 0), (-150, 150), (0, 400))),
                    Road("d", line((0, 0), (600, 0)), covered_by="t"),
                ),
            )
        ]
    )


def test_before_a_junction_the_confidence_is_the_part_of_traffic_that_goes_on() -> None:
    (blockage,) = now(after(eastwards(-600.0, 20.0), forked(0.7)))
    assert blockage.confidence == pytest.approx(0.7, abs=0.05)
    (later,) = now(after(eastwards(-100.0, 20.0), forked(0.7)))
    assert later.confidence > 0.9


def test_how_a_tunnel_branches_inside_takes_nothing_from_its_confidence() -> None:
    ends = [Road(f"e{n}", line((300, 0), (500, 10 * n)), covered_by="t") for n in range(40)]
    hall = tuple(Onward(end.id, 1.0 / len(ends)) for end in ends)
    roads = (
        Road("in", line((-900, 0), (0, 0)), onward=(Onward("a", 0.5), Onward("b", 0.5))),
        Road("a", line((0, 0), (300, 0)), covered_by="t", onward=hall),
        Road("b", line((0, 0), (300, 90)), covered_by="t", onward=(Onward("e0", 0.97),)),
        *ends,
    )
    passages = ObstructionMap([Obstruction("t", roads=roads)]).ahead("in")
    assert sum(passage.probability for passage in passages) == pytest.approx(1.0)


def test_who_turns_off_is_no_longer_predicted() -> None:
    turning = [fix(31 + s, -300 + 7 * s, 7 * s, 10.0, 45.0) for s in range(12)]
    assert now(after([*eastwards(-305.0, 20.0), *turning], forked(0.7))) == ()


def test_a_route_decides_at_the_junction() -> None:
    into, past = line((-2000, 0), (900, 0)), line((-2000, 0), (-300, 0), (-150, 150), (0, 400))
    for route, sure in ((into, True), (past, False)):
        predictor = Predictor(forked(0.5), route=route)
        for given_fix in eastwards(-600.0, 20.0):
            predictor.feed(given_fix)
            confidences = [blockage.confidence for blockage in now(predictor)]
        assert (confidences > [0.9]) is sure
        assert all(blockage.by_route is sure for blockage in now(predictor))


def test_who_has_come_along_unseen_and_stands_is_looked_for_anew() -> None:
    beyond = Road("out", line((600, 0), (2000, 0)))
    into = Road("in", line((-2000, 0), (0, 0)), onward=(Onward("t", 1.0),))
    inside = Road("t", line((0, 0), (600, 0)), covered_by="t", onward=(Onward("out", 1.0),))
    predictor = after(
        eastwards(-50.0, 15.0), ObstructionMap([Obstruction("t", roads=(into, inside, beyond))])
    )
    assert len(now(predictor)) == 1
    for second in range(60, 70):
        predictor.feed(fix(second, 700.0, 0.0, 0.0, None))
    assert predictor.track.hypotheses[0].road_id == "out"
    assert predictor.blockages(START_MS + 70_000) == ()


def test_the_road_above_a_tunnel_is_not_the_tunnel() -> None:
    def driven(y: float, lifted: float) -> Obstruction:
        return Obstruction(
            "t",
            roads=(
                Road("in", line((-2000, y), (0, y)), onward=(Onward("t", 1.0),)),
                Road("t", line((0, y), (600, y)), covered_by="t"),
                Road(
                    "above",
                    line((-2000, lifted), (-200, lifted), (50, y + 2), (550, y + 2), (900, lifted)),
                ),
            ),
        )

    obstructions = ObstructionMap([driven(0.0, 40.0)])
    predictor = Predictor(obstructions)
    for second in range(110):
        x = -1200.0 + 15.0 * second
        y = 40.0 if x < -200 else max(40.0 - (x + 200) * 38 / 250, 2.0) if x < 550 else 20.0
        predictor.feed(fix(second, x, y, 15.0))
        assert all(blockage.confidence < 0.5 for blockage in now(predictor)), x


def test_the_same_road_drawn_for_two_tunnels_halves_neither() -> None:
    both = ObstructionMap(
        [
            road_tunnel("near", line((0, 0), (200, 0)), into_start=[line((-2000, 0), (0, 0))]),
            road_tunnel("far", line((900, 0), (1200, 0)), into_start=[line((-2000, 0), (900, 0))]),
        ]
    )
    near, far = now(after(eastwards(-600.0, 20.0), both))
    assert (near.obstruction_id, far.obstruction_id) == ("near", "far")
    assert min(near.confidence, far.confidence) > 0.9
    assert far.entry_ms - near.entry_ms == pytest.approx(45_000, abs=1_000)


def test_an_area_ahead_is_predicted_and_one_beside_is_not() -> None:
    def square(x: float, y: float, name: str) -> Obstruction:
        ring = line((x, y - 50), (x + 100, y - 50), (x + 100, y + 50), (x, y + 50), (x, y - 50))
        return Obstruction(name, kind="area", area=(ring,))

    areas = ObstructionMap([square(0.0, 0.0, "ahead"), square(0.0, 400.0, "beside")])
    (blockage,) = now(after(eastwards(-300.0, 15.0), areas))
    assert blockage.obstruction_id == "ahead"
    assert (blockage.entry_ms - START_MS) / 1000 - 30.0 == pytest.approx(20.0, abs=0.5)
    assert blockage.duration_s == pytest.approx(100 / 15, rel=0.1)
    assert now(after(eastwards(300.0, 15.0), areas)) == ()


def crossed(*holes: Line) -> ObstructionMap:
    """Return an area whose outer ring crosses itself, as a figure of eight does, ahead of x = 0."""
    eight = line((0, -60), (100, 60), (100, -60), (0, 60), (0, -60))
    return ObstructionMap([Obstruction("eight", kind="area", area=(eight, *holes))])


@pytest.mark.parametrize("holes", [(), (line((20, -90), (80, -90), (80, 9), (20, 9), (20, -90)),)])
def test_an_area_whose_rings_cross_is_what_they_enclose(holes: tuple[Line, ...]) -> None:
    known = crossed(*holes)
    (blockage,) = now(after(eastwards(-300.0, 15.0, y=20.0), known))
    assert blockage.obstruction_id == "eight"
    assert (blockage.entry_ms - START_MS) / 1000 - 30.0 == pytest.approx(20.0, abs=1.0)
    assert Route(line((-900, 20), (900, 20)), known).passages != ()


def test_who_stays_dark_longer_is_believed_inside_and_then_lost() -> None:
    predictor = after(eastwards(-200.0, 20.0))
    (blockage,) = now(predictor)
    (overdue,) = predictor.blockages(blockage.exit_ms + 20_000)
    assert overdue.entry_ms == blockage.entry_ms
    assert overdue.exit_ms > blockage.exit_ms + 20_000
    assert predictor.blockages(blockage.exit_ms + 300_000) == ()


def test_out_of_the_tunnel_nothing_is_predicted() -> None:
    predictor = after(eastwards(-20.0, 20.0))
    for second in range(6):
        predictor.feed(fix(62 + second, 600.0 + 20.0 * (second + 0.2), 0.0, 20.0))
        assert now(predictor) == ()


def test_an_area_that_encloses_nothing_is_no_error() -> None:
    place, hole = line((100, 0)), line((50, -50), (150, 0), (50, 50), (50, -50))
    areas = ObstructionMap([Obstruction("none", kind="area", area=(place * 4, hole))])
    assert now(after(eastwards(-100.0, 15.0), areas)) == ()
    route = line((-1000, 0), (1000, 0))
    assert Route(route, areas).passages == ()


def test_a_leap_forgets_what_was_known() -> None:
    predictor = after(eastwards(-500.0, 20.0))
    predictor.feed(fix(31, 80_000.0, 0.0, 20.0))
    assert now(predictor) == ()
    assert len(predictor.track.trail) == 1


def test_a_vehicle_that_stands_where_the_map_has_lost_its_road_is_no_error() -> None:
    driven = eastwards(-500.0, 20.0)
    before, last = after(driven), driven[-1]
    elsewhere = Predictor(ObstructionMap([]), before.track)
    assert elsewhere.feed(Fix(last.time_ms + 1_000, last.lon, last.lat, 0.0))
    assert elsewhere.blockages(last.time_ms + 1_000) == ()


def test_without_speed_and_heading_the_way_tells_them() -> None:
    exact = eastwards(-500.0, 20.0)
    bare = [Fix(f.time_ms, f.lon, f.lat) for f in exact]
    (blockage,) = now(after(bare))
    (reference,) = now(after(exact))
    assert abs(blockage.entry_ms - reference.entry_ms) < 1_000


def test_a_map_without_the_roads_of_a_track_forgets_them() -> None:
    track = after(eastwards(-500.0, 20.0)).track
    predictor = Predictor(ObstructionMap([]), track)
    assert predictor.blockages(START_MS + 30_000) == ()
    assert predictor.feed(fix(31, -480.0, 0.0, 20.0))


@pytest.mark.parametrize(
    ("lon", "lat", "speed", "heading", "accuracy"),
    [
        (float("nan"), 0.0, None, None, None),
        (181.0, 0.0, None, None, None),
        (0.0, float("inf"), None, None, None),
        (0.0, 0.0, float("nan"), None, None),
        (0.0, 0.0, -1.0, None, None),
        (0.0, 0.0, 151.0, None, None),
        (0.0, 0.0, 1.0, 361.0, None),
        (0.0, 0.0, 1.0, float("nan"), None),
        (0.0, 0.0, 1.0, 1.0, float("inf")),
    ],
)
def test_impossible_fixes_are_refused(
    lon: float, lat: float, speed: float | None, heading: float | None, accuracy: float | None
) -> None:
    with pytest.raises(FixError):
        Fix(0, lon, lat, speed, heading, accuracy)


def test_of_two_clocks_that_differ_the_synchronised_one_rules() -> None:
    assert ruling_time(10_000, 12_000, synchronised=True) == (10_000, False)
    assert ruling_time(10_000, 12_001, synchronised=True) == (12_001, True)
    assert ruling_time(10_000, 12_001, synchronised=False) == (10_000, True)


def test_contradictory_obstructions_are_refused() -> None:
    road = Road("a", line((0, 0), (1, 0)))
    for roads in ((), (road,), (Road("a", line((0, 0), (1, 0)), covered_by="other"),)):
        with pytest.raises(ObstructionError):
            Obstruction("t", roads=roads)
    with pytest.raises(ObstructionError):
        Obstruction("t", area=(line((0, 0), (1, 0), (1, 1), (0, 1)),))
    with pytest.raises(ObstructionError):
        road_tunnel("t", (at(0, 0),))
    with pytest.raises(ObstructionError):
        Obstruction(
            "t",
            roads=(Road("a", road.line, "t", None, (Onward("b", 0.7), Onward("c", 0.7))),),
        )


def test_cost_does_not_grow_with_what_is_far_away() -> None:
    many = [
        road_tunnel(f"far:{n}", line((20_000 + 10 * n, n), (20_005 + 10 * n, n)), oneway=True)
        for n in range(2_000)
    ]
    crowded = ObstructionMap([*MAP.obstructions.values(), *many])
    assert [near.road_id for near in crowded.near(at(-500, 0), 60.0)] == [
        near.road_id for near in MAP.near(at(-500, 0), 60.0)
    ]
