"""Whether a receiver still measures, or has lost its satellites and goes on all the same.

In a tunnel many a receiver repeats its last place, with the speed that it had; others run straight
on at the last speed and course for half a minute, and call that a fix. Neither says where the
vehicle is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dama.prediction.fix import Fix
from dama.prediction.places import distance_m, heading_deg, turn_deg

# A receiver that tells at least so much does not stand; and the most by which a vehicle moves
# without another place being given, which has five decimals or more.
_DRIVES_MPS = 3.0
_RESOLVED_M = 2.5
# What is measured differs from fix to fix. A receiver of which that was seen for so long in motion,
# and that then says the same speed and course, and the places that follow from them, measures none
# of them. What is not noisy at all, as in a simulation, may well go on so. Of a gap between fixes
# only so much is counted.
_VARIED_MS = 60_000
_GAP_MS = 2_000
# Straight on for so long is near enough: roads bend.
_RUNS_MS = 15_000
# By how much places differ from what follows, in metres and as a part of the way: digits that were
# cut off.
_CUT_M = 0.5
_CUT_PART = 0.01
_CUT_DEG = 1.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """How the latest fixes of a receiver follow from one another.

    `varied_ms` is for how long fixes in motion had another speed or course each than the one
    before, up to the present run; `runs_since_ms` is the time of the fix that the run goes on from,
    None where the latest fix does not go on from the one before.
    """

    varied_ms: int = 0
    runs_since_ms: int | None = None

    def measures(self, last: Fix, fix: Fix) -> bool:
        """Tell whether a fix that follows another one says where the vehicle is."""
        return not (_stands(last, fix) or self._has_run(last, fix))

    def after(self, last: Fix, fix: Fix) -> Receiver:
        """Return what is known after a further fix, which was measured."""
        since_ms = self.runs_since_ms
        if _runs_on(last, fix):
            return Receiver(self.varied_ms, last.time_ms if since_ms is None else since_ms)
        # Who has been seen to run on for long was rightly taken for noisy before.
        noisy = since_ms is None or fix.time_ms - since_ms >= _RUNS_MS
        varied_ms = self.varied_ms if noisy else 0
        if min(fix.speed_mps or 0.0, last.speed_mps or 0.0) >= _DRIVES_MPS:
            varied_ms += min(fix.time_ms - last.time_ms, _GAP_MS)
        return Receiver(min(varied_ms, _VARIED_MS))

    def _has_run(self, last: Fix, fix: Fix) -> bool:
        since_ms = self.runs_since_ms
        if self.varied_ms < _VARIED_MS or since_ms is None or fix.time_ms - since_ms < _RUNS_MS:
            return False
        return _runs_on(last, fix)


def _stands(last: Fix, fix: Fix) -> bool:
    """Tell whether the place of the last fix, made in motion, is given again with a speed."""
    if fix.place != last.place or fix.speed_mps is None or last.speed_mps is None:
        return False
    # Some receivers hold the place of a vehicle that stands until it has moved on.
    if min(fix.speed_mps, last.speed_mps) < _DRIVES_MPS:
        return False
    return fix.speed_mps * (fix.time_ms - last.time_ms) >= 1000.0 * _RESOLVED_M


def _runs_on(last: Fix, fix: Fix) -> bool:
    """Tell whether a fix has the last one's speed and course, and the place that follows."""
    if fix.speed_mps is None or fix.heading_deg is None or fix.speed_mps < _DRIVES_MPS:
        return False
    if fix.speed_mps != last.speed_mps or fix.heading_deg != last.heading_deg:
        return False
    way_m = fix.speed_mps * (fix.time_ms - last.time_ms) / 1000.0
    cut_m = _CUT_M + _CUT_PART * way_m
    if abs(distance_m(last.place, fix.place) - way_m) > cut_m:
        return False
    turned = turn_deg(heading_deg(last.place, fix.place), fix.heading_deg)
    return turned <= _CUT_DEG + math.degrees(cut_m / max(way_m, 1.0))
