"""Laws of the prediction, on one straight road east of the zero meridian."""

from __future__ import annotations

import math
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from dama.prediction import Blockage, Fix, ObstructionMap, Predictor, road_tunnel
from dama.prediction.places import Line, Plane, Position
from dama.prediction.predictor import PARKED_AFTER_S
from dama.prediction.roadmap import MAX_NEAR
from dama.prediction.track import MAX_TRAIL

PLANE = Plane((7.0, 46.0))
# The road runs eastwards into a tunnel from x = 0 to x = 600.
APPROACH_M = 2_000.0
TUNNEL_M = 600.0
START_MS = 1_000_000_000


def at(x: float, y: float = 0.0) -> Position:
    return PLANE.position(x, y)


def line(*points: tuple[float, float]) -> Line:
    return tuple(at(*point) for point in points)


def tunnel(y: float = 0.0, name: str = "t") -> ObstructionMap:
    return ObstructionMap(
        [
            road_tunnel(
                name,
                line((0.0, y), (TUNNEL_M, y)),
                into_start=[line((-APPROACH_M, y), (0.0, y))],
                into_end=[line((TUNNEL_M + APPROACH_M, y), (TUNNEL_M, y))],
            )
        ]
    )


MAP = tunnel()


def fix(second: float, x: float, y: float, speed: float, heading: float | None = 90.0) -> Fix:
    lon, lat = at(x, y)
    return Fix(START_MS + round(1000 * second), lon, lat, speed, heading)


def eastwards(to_x: float, speed: float, seconds: int = 30, y: float = 0.0) -> list[Fix]:
    """Drive along the road for some seconds, ending at `to_x`."""
    return [
        fix(second, to_x - speed * (seconds - second), y, speed) for second in range(seconds + 1)
    ]


def after(fixes: Iterable[Fix], obstructions: ObstructionMap = MAP) -> Predictor:
    predictor = Predictor(obstructions)
    for given_fix in fixes:
        predictor.feed(given_fix)
    return predictor


def now(predictor: Predictor) -> tuple[Blockage, ...]:
    assert predictor.track.last is not None
    return predictor.blockages(predictor.track.last.time_ms)


speeds = st.floats(8.0, 38.0)
places = st.floats(-1_500.0, -150.0)


@given(places, speeds)
def test_entry_and_time_inside_are_distance_by_speed(x: float, speed: float) -> None:
    (blockage,) = now(after(eastwards(x, speed)))
    assert blockage.confidence > 0.9
    ahead_s = (blockage.entry_ms - START_MS) / 1000.0 - 30.0
    # A fast driver is expected to slow down to 90 km/h for the tunnel.
    assert math.isclose(ahead_s, -x / speed, rel_tol=0.02, abs_tol=4.0 if speed > 25.0 else 0.3)
    assert math.isclose(blockage.duration_s, TUNNEL_M / min(speed, 25.0), rel_tol=0.08)


@given(places, places, speeds)
def test_who_is_further_away_enters_later(one: float, other: float, speed: float) -> None:
    near, far = max(one, other), min(one, other)
    if near - far < 1.0:
        return
    (first,), (second,) = (now(after(eastwards(x, speed))) for x in (near, far))
    assert first.entry_ms < second.entry_ms


@given(places, st.integers(2, 600), st.floats(0.0, 0.9))
def test_a_parked_vehicle_is_never_predicted(x: float, seconds: int, creep: float) -> None:
    predictor = after(fix(second, x, 0.0, creep, None) for second in range(seconds))
    assert now(predictor) == ()


@given(places, speeds)
def test_who_parks_is_no_longer_predicted(x: float, speed: float) -> None:
    stop = [fix(30 + second, x, 0.0, 0.0, None) for second in range(1, 8)]
    predictor = after([*eastwards(x, speed), *stop])
    (waiting,) = now(predictor)
    assert waiting.entry_ms > stop[-1].time_ms + 10_000
    parked_ms = START_MS + round(1000 * (31 + PARKED_AFTER_S))
    assert predictor.blockages(parked_ms) == ()


@given(places, speeds)
def test_a_light_delays_the_entry_and_lowers_the_confidence(x: float, speed: float) -> None:
    moving = after(eastwards(x, speed))
    (before,) = now(moving)
    waiting = after([*eastwards(x, speed), *(fix(30 + s, x, 0.0, 0.0, None) for s in range(1, 20))])
    (during,) = now(waiting)
    assert during.entry_ms > before.entry_ms
    assert during.confidence < before.confidence
    # It drives on, so the confidence is restored.
    onwards = [fix(50 + s, x + 5.0 * s, 0.0, 5.0) for s in range(8)]
    for given_fix in onwards:
        waiting.feed(given_fix)
    (later,) = now(waiting)
    assert later.confidence > during.confidence


@given(st.floats(-1_200.0, -300.0), st.floats(8.0, 30.0))
def test_a_u_turn_withdraws_the_prediction(x: float, speed: float) -> None:
    predictor = after(eastwards(x, speed))
    assert now(predictor)
    for second in range(1, 8):
        predictor.feed(fix(33 + second, x - speed * second, 6.0, speed, 270.0))
    assert now(predictor) == ()


@settings(max_examples=50)
@given(places, st.floats(10.0, 25.0), st.lists(st.floats(-6.0, 6.0), min_size=62, max_size=62))
def test_noise_below_a_bound_changes_little(x: float, speed: float, noise: list[float]) -> None:
    exact = eastwards(x, speed)
    noisy = []
    for given_fix, (east, north) in zip(
        exact, zip(noise[::2], noise[1::2], strict=True), strict=True
    ):
        px, py = PLANE.xy(given_fix.place)
        lon, lat = at(px + east, py + north)
        noisy.append(Fix(given_fix.time_ms, lon, lat, speed, given_fix.heading_deg))
    (blockage,), (reference,) = now(after(noisy)), now(after(exact))
    assert abs(blockage.entry_ms - reference.entry_ms) <= 1000 * 2 * 6.0 / speed
    assert blockage.confidence > 0.8


@given(places, speeds, st.integers(1, 20))
def test_a_gap_changes_nothing_but_the_time_left(x: float, speed: float, gap: int) -> None:
    predictor = after(eastwards(x, speed))
    (before,) = now(predictor)
    later = predictor.blockages(START_MS + 30_000 + 1000 * gap)
    assert [(b.entry_ms, b.confidence) for b in later] == [(before.entry_ms, before.confidence)]
    back_x = x + speed * gap
    if back_x < -10.0:
        predictor.feed(fix(30 + gap, back_x, 0.0, speed))
        (after_gap,) = now(predictor)
        # A vehicle that does not slow down for the tunnel as expected comes earlier.
        assert abs(after_gap.entry_ms - before.entry_ms) < (4_000 if speed > 25.0 else 1_500)


@given(places, speeds, st.integers(1, 29))
def test_a_track_taken_up_again_goes_on_the_same(x: float, speed: float, cut: int) -> None:
    fixes = eastwards(x, speed)
    whole = after(fixes)
    first = after(fixes[:cut])
    second = Predictor(MAP, first.track)
    for given_fix in fixes[cut:]:
        second.feed(given_fix)
    assert second.track == whole.track
    assert now(second) == now(whole)


@given(st.lists(st.integers(0, 60), min_size=1, max_size=60))
def test_late_and_repeated_reports_change_nothing(seconds: list[int]) -> None:
    predictor = Predictor(MAP)
    newest = -1
    for second in seconds:
        before = predictor.track
        taken = predictor.feed(fix(second, -900.0 + 15.0 * second, 0.0, 15.0))
        assert taken == (second > newest)
        if not taken:
            assert predictor.track == before
        newest = max(newest, second)


@given(
    st.lists(
        st.tuples(
            st.integers(0, 10**13),
            st.floats(-180.0, 180.0),
            st.floats(-90.0, 90.0),
            st.none() | st.floats(0.0, 150.0),
            st.none() | st.floats(0.0, 360.0),
            st.none() | st.floats(0.0, 1e6),
        ),
        max_size=30,
    )
)
def test_no_track_however_wild_breaks_the_predictor(
    reports: list[tuple[int, float, float, float | None, float | None, float | None]],
) -> None:
    predictor = Predictor(MAP)
    for report in reports:
        predictor.feed(Fix(*report))
        for blockage in predictor.blockages(report[0]):
            assert blockage.exit_ms > blockage.entry_ms
            assert 0.0 < blockage.confidence <= 1.0
        assert len(predictor.track.trail) <= MAX_TRAIL
        assert len(predictor.track.hypotheses) <= MAX_NEAR


@given(st.floats(30.0, 100.0), places, speeds)
def test_a_road_beside_is_no_approach(y: float, x: float, speed: float) -> None:
    predictor = after(eastwards(x, speed, y=y))
    assert all(blockage.confidence < 0.5 for blockage in now(predictor))


@given(speeds)
def test_the_opposite_direction_leads_out(speed: float) -> None:
    away = [fix(s, -100.0 - speed * s, 0.0, speed, 270.0) for s in range(20)]
    assert now(after(away)) == ()
