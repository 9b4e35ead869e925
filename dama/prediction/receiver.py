"""Whether a receiver still measures, or reports positions although it has lost its satellites.

In a tunnel some receivers repeat their last place and speed; others extrapolate the last speed and
course for half a minute and call that a fix. Neither tells where the vehicle is.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from dama.prediction.fix import Fix
from dama.prediction.places import distance_m, heading_deg, turn_deg

# A receiver that reports this speed or more is moving; and the most that a vehicle moves without a
# change of the reported place, which has five decimals or more.
_DRIVES_MPS = 3.0
_RESOLVED_M = 2.5
# Measured values vary from fix to fix. If a receiver's values have varied for `_VARIED_MS` in
# motion, and it then repeats the same speed and course with the places that follow from them, it
# extrapolates. A source without noise, such as a simulation, is not judged by this. A gap between
# fixes counts as `_GAP_MS` at most.
_VARIED_MS = 60_000
_GAP_MS = 2_000
# An extrapolation shorter than this is near enough to the truth; after longer, roads bend.
_RUNS_MS = 15_000
# How far places may be from the extrapolated ones, in metres, as a part of the way, and in degrees
# of course: receivers cut digits off.
_CUT_M = 0.5
_CUT_PART = 0.01
_CUT_DEG = 1.0


@dataclass(frozen=True, slots=True)
class Receiver:
    """How the latest fixes of a receiver follow from one another.

    A *run* is a series of fixes each of which extrapolates the one before. `varied_ms` is for how
    long fixes in motion differed from the one before in speed or course, up to the present run;
    `runs_since_ms` is the time of the fix before the run, None outside a run.
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
        # A run as long as this was an extrapolation: the receiver is still known to be noisy.
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
