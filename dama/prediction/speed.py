"""How fast a vehicle goes: its present speed and its free speed."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from dama.prediction.profile import NOMINAL_MPS

# Below this a vehicle stands: a receiver at rest reports up to some 0.5 m/s.
STANDING_MPS = 1.0
# A speed kept for `_MEANT_S` is the one that the driver intends. Less than half of the usual speed
# is a crossing, a queue or a start, and counts less.
_MEANT_S = 8.0
_HINDERED_S = 40.0
# A queue says little of how a vehicle drives on a road that is free.
_QUEUED_S = 150.0
# Slower than this part of what is driven freely, a vehicle is in a queue.
QUEUED = 0.45
# After a gap between fixes, a speed stands for these last seconds only.
KNOWN_S = 10.0
# A vehicle that starts reaches its intended speed in this time.
_STARTING_S = 10.0
_MEANT = 0.7
_HINDERED = 0.5
_RECENT_TIME_S = 1.5
# Speeds return to the usual one of some minutes. The prediction expects this part of the return,
# more where the map gives the road's speed. A speed that differs by more than `_SAME_KIND` belongs
# to another kind of road.
_USUAL_S = 90.0
_RETURN = 0.3
_RETURN_KNOWN = 0.35
_SAME_KIND = 0.35
_RATIOS = (0.4, 1.8)


@dataclass(frozen=True, slots=True)
class Pace:
    """A vehicle's speeds.

    `now_mps` is the present speed, smoothed; `cruise_mps` the last one without hindrance, and
    `usual_mps` its mean over minutes; `ratio` and `usual_ratio` are the same two as parts of the
    road's expected speed. `moved_s` is how long it has been moving, `slow_s` for how long it has
    now been as slow as in a queue, stops not counted.
    """

    now_mps: float = 0.0
    cruise_mps: float | None = None
    ratio: float = 1.0
    usual_mps: float | None = None
    usual_ratio: float = 1.0
    moved_s: float = 0.0
    slow_s: float = 0.0

    def after(self, speed_mps: float, elapsed_s: float, expected_mps: float | None) -> Pace:
        """Return the pace after a further measurement.

        `expected_mps` is the expected free speed at this place of this road, None if unknown.
        """
        now = speed_mps
        if self.moved_s:
            now = self.now_mps + (speed_mps - self.now_mps) * _part(elapsed_s, _RECENT_TIME_S)
        if now < STANDING_MPS or elapsed_s <= 0.0:
            return replace(self, now_mps=now)
        moved_s = self.moved_s + elapsed_s

        def part(time_s: float) -> float:
            # At first a plain mean: one start from a light must not count for minutes.
            return max(_part(elapsed_s, time_s), elapsed_s / moved_s)

        cruise = now if self.cruise_mps is None else self.cruise_mps
        usual = now if self.usual_mps is None else self.usual_mps
        ratio, usual_ratio = self.ratio, self.usual_ratio
        slow_s = 0.0
        if now < QUEUED * (expected_mps * ratio if expected_mps else cruise):
            slow_s = self.slow_s + min(elapsed_s, KNOWN_S)
        if now > _HINDERED * cruise:
            cruise += (now - cruise) * part(_MEANT_S)
            usual += (now - usual) * part(_USUAL_S)
        else:
            cruise += (now - cruise) * _part(elapsed_s, _HINDERED_S)
        if expected_mps:
            driven = min(max(now / expected_mps, _RATIOS[0]), _RATIOS[1])
            # Turns and starts are slower than the road, too.
            meant = driven > _MEANT * ratio
            ratio += (driven - ratio) * _part(elapsed_s, _MEANT_S if meant else _QUEUED_S)
            if meant:
                usual_ratio += (driven - usual_ratio) * _part(elapsed_s, _USUAL_S)
        return Pace(now, cruise, ratio, usual, usual_ratio, moved_s, slow_s)

    def factor(self, *, is_known: bool) -> float:
        """Return its future free speed as a part of a road's expected speed.

        Where the map does not give an expected speed, that is `NOMINAL_MPS`.
        """
        if is_known:
            return _returning(self.ratio, self.usual_ratio, _RETURN_KNOWN)
        cruise = self.cruise_mps or NOMINAL_MPS
        # A slow vehicle whose first moving fixes are recent may be starting.
        lacking = max(NOMINAL_MPS - cruise, 0.0)
        cruise += lacking * max(1.0 - self.moved_s / _STARTING_S, 0.0)
        free = max(_returning(cruise, self.usual_mps or cruise, _RETURN), 2 * STANDING_MPS)
        return free / NOMINAL_MPS


def _part(elapsed_s: float, time_s: float) -> float:
    """Return the part of a change that an average over `time_s` takes up in `elapsed_s`."""
    return -math.expm1(-elapsed_s / time_s)


def _returning(present: float, usual: float, part: float) -> float:
    away = min(max(usual - present, -_SAME_KIND * present), _SAME_KIND * present)
    return present + part * away
