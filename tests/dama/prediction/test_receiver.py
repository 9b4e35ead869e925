"""Reports of a receiver that has lost its satellites, which must not change predictions."""

from __future__ import annotations

from dama.prediction import Fix, Predictor
from tests.dama.prediction.test_laws import START_MS, after, eastwards, fix, now


def measured(to_x: float, speed: float, seconds: int = 70) -> list[Fix]:
    """Drive along the road as a receiver sees it: speed and course differ from fix to fix."""
    return [
        fix(
            second,
            to_x - speed * (seconds - second),
            0.4 * (second % 3),
            speed + 0.05 * (second % 3),
            90.0 + 0.3 * (second % 5),
        )
        for second in range(seconds + 1)
    ]


def stands(predictor: Predictor) -> bool:
    return predictor.track.standing_since_ms is not None


def test_a_receiver_that_freezes_changes_nothing_and_one_that_stands_does() -> None:
    driven = eastwards(-200.0, 20.0)
    known = after(driven)
    before, track = now(known), known.track
    for second in range(31, 50):
        assert not known.feed(fix(second, -200.0, 0.0, 20.0))
    assert known.track == track
    assert known.blockages(START_MS + 35_000)[0].entry_ms == before[0].entry_ms
    # The fix is back 400 m further on, and measured fixes follow from there.
    assert known.feed(fix(50, 200.0, 3.0, 20.0))
    standing = after(driven)
    assert standing.feed(fix(31, -200.0, 0.0, 0.4))
    assert stands(standing)
    # The vehicle starts, and is known to move before the receiver releases the held place.
    assert standing.feed(fix(32, -200.0, 0.0, 4.0))
    assert not stands(standing)
    # At ten fixes a second, a place rounded to a metre stays the same for a while.
    quick = after(driven)
    assert quick.feed(fix(30.1, -200.0, 0.0, 20.0))


def test_a_receiver_that_runs_on_is_believed_for_fifteen_seconds() -> None:
    driven = [*measured(-200.0, 20.0), fix(71, -180.0, 0.3, 20.17, 90.2)]
    last = fix(72, -160.0, 0.0, 20.1, 90.0)
    known = after([*driven, last])
    run = [fix(72 + n, -160.0 + 20.1 * n, 0.0, 20.1, 90.0) for n in range(1, 31)]
    assert [known.feed(one) for one in run] == [True] * 14 + [False] * 16
    track = known.track
    assert track.last == run[13]
    # It has come back.
    assert known.feed(fix(103, 600.0, 80.0, 22.0, 70.0))
    assert known.track.receiver.runs_since_ms is None


def test_fixes_without_noise_are_all_taken() -> None:
    known = after([])
    driven = eastwards(-200.0, 20.0, seconds=60)
    assert all(known.feed(one) for one in driven)
    # A stop or a start does not count as noise either.
    waits = [fix(60 + s, -200.0, 0.0, 0.0, None) for s in range(1, 40)]
    starts = [fix(100 + s, -200.0 + s * s, 0.0, 2.0 * s) for s in range(11)]
    goes_on = [fix(110 + s, -100.0 + 20.0 * s, 0.0, 20.0) for s in range(1, 60)]
    assert all(known.feed(one) for one in (*waits, *starts, *goes_on))
    # A receiver that rounds often repeats speeds and courses.
    coarse = after([])
    for n, one in enumerate(eastwards(-200.0, 20.0, seconds=60)):
        speed = 20.0 + (n // 3 % 2)
        rounded = Fix(one.time_ms, one.lon, one.lat, speed, 90.0)
        assert coarse.feed(rounded)


def test_a_vehicle_that_keeps_its_speed_is_seen_again_once_it_does_not() -> None:
    known = after(measured(-400.0, 20.0))
    last = known.track.last
    assert last is not None
    assert last.speed_mps is not None
    speed, begins = last.speed_mps, -400.0
    steady = [fix(70 + n, begins + speed * n, 0.4, speed, last.heading_deg) for n in range(1, 18)]
    taken = [known.feed(one) for one in steady]
    assert taken == [True] * 14 + [False] * 3
    assert known.feed(fix(88, begins + speed * 18, 0.0, speed - 0.1, 90.3))
    (blockage,) = now(known)
    assert blockage.obstruction_id == "t"
