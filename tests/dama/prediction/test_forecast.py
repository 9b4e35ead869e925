"""How far the times of a drive are from the expected ones, and how that changes predictions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest

from dama.prediction import Blockage, Fix, Obstruction, ObstructionMap, Onward, Predictor, Road
from dama.prediction.forecast import Errors
from tests.dama.prediction.test_laws import START_MS, fix, line

# Roads of 280 m that lead into a tunnel; each takes 20 s at its posted limit.
_ROADS = 14
_LENGTH_M = 280.0
_MPS = 14.0


def test_before_anything_has_come_times_are_as_far_off_as_usual() -> None:
    assert Errors().spread(0.09) == pytest.approx(0.09)


def test_what_has_come_late_or_early_makes_times_less_sure() -> None:
    errors = Errors()
    for taken_s in (26.0, 15.0, 27.0, 14.0, 26.0):
        errors = errors.after(20.0, taken_s)
    assert 0.2 < errors.spread(0.09) < 0.3
    for _ in range(60):
        errors = errors.after(20.0, 20.2)
    assert errors.spread(0.09) == 0.09


@pytest.mark.parametrize("taken_s", [0.0, -3.0, 1.0, 300.0, math.inf])
def test_the_time_of_another_way_says_nothing(taken_s: float) -> None:
    assert Errors().after(20.0, taken_s) == Errors()
    assert Errors().after(0.0, taken_s) == Errors()


def _road(number: int) -> Road:
    return Road(
        f"r{number}",
        line((number * _LENGTH_M, 0), ((number + 1) * _LENGTH_M, 0)),
        covered_by="t" if number == _ROADS else None,
        limit_mps=_MPS,
        onward=(Onward(f"r{number + 1}", 1.0),) if number < _ROADS else (),
    )


def _driven(paces: Sequence[float]) -> list[Fix]:
    """Return the fixes of a drive with a pace for each road, steady within it."""
    fixes, at_m, second = [], 0.0, 0
    while at_m < (_ROADS - 2) * _LENGTH_M:
        speed = _MPS * paces[int(at_m // _LENGTH_M)]
        fixes.append(fix(second, at_m, 0.0, speed))
        at_m, second = at_m + speed, second + 1
    return fixes


def _told(fixes: Sequence[Fix]) -> Blockage:
    known = ObstructionMap([Obstruction("t", roads=tuple(map(_road, range(_ROADS + 1))))])
    predictor = Predictor(known)
    for one in fixes:
        predictor.feed(one)
    (blockage,) = predictor.blockages(fixes[-1].time_ms)
    return blockage


def _width_s(blockage: Blockage) -> float:
    within = blockage.entry_within_ms
    assert within is not None
    return (within[1] - within[0]) / 1000.0


def test_where_roads_are_driven_as_nobody_knew_before_an_entry_is_told_less_surely() -> None:
    steady = _told(_driven([1.0] * _ROADS))
    slow = (3, 5, 8, 10)
    changing = _told(_driven([0.6 if number in slow else 1.0 for number in range(_ROADS)]))
    assert _width_s(changing) > 1.5 * _width_s(steady)
    # The speed on the way ahead is known no better and no worse.
    assert changing.exit_ms - changing.entry_ms == pytest.approx(
        steady.exit_ms - steady.entry_ms, rel=0.15
    )


def test_what_holds_a_vehicle_up_is_no_error_of_its_speed() -> None:
    driven = _driven([1.0] * _ROADS)
    last = driven[60]
    waits = [Fix(last.time_ms + 1_000 * second, last.lon, last.lat, 0.0) for second in range(1, 31)]
    later = [
        Fix(one.time_ms + 30_000, one.lon, one.lat, one.speed_mps, one.heading_deg)
        for one in driven[61:]
    ]
    stopped = _told([*driven[:61], *waits, *later])
    assert _width_s(stopped) == pytest.approx(_width_s(_told(driven)), rel=0.2)
    assert driven[0].time_ms == START_MS
