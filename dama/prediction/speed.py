"""How fast a vehicle will go: what it drives now, what it drives freely, and what is allowed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from dama.prediction.roadmap import Stretch

# Below this a vehicle stands: a receiver at rest shows up to some 0.5 m/s.
STANDING_MPS = 1.0
# A comfortable driver's speeding up and braking, m/s².
_ACCELERATION = 1.2
_BRAKING = 1.0
# What a driver does over so many seconds is what is meant; less than half of the usual speed is a
# crossing, a queue or a start, and counts less.
_MEANT_S = 8.0
_HINDERED_S = 40.0
_HINDERED = 0.5
_RECENT_TIME_S = 1.5
# Speeds come back to what was usual over some minutes; this part of the way is expected within
# the time that is predicted. What differs by more belongs to another kind of road.
_USUAL_S = 180.0
_RETURN = 0.3
_SAME_KIND = 0.35
# The fastest that is expected in a tunnel where no limit is known: most are posted for 80 to
# 100 km/h, and drivers slow down before the portal.
_COVERED_MPS = 25.0
# What is expected where a vehicle never drove freely, and nothing is posted.
_FIRST_CRUISE_MPS = 13.9
_RATIOS = (0.6, 1.3)


@dataclass(frozen=True, slots=True)
class Pace:
    """A vehicle's speeds.

    `now_mps` is the present speed, smoothed; `cruise_mps` the one it last kept when nothing
    hindered it, `usual_mps` its mean over minutes; `ratio` and `usual_ratio` are the same as parts
    of the limit where one is posted. `moved_s` is how long it has been moving.
    """

    now_mps: float = 0.0
    cruise_mps: float | None = None
    ratio: float = 1.0
    usual_mps: float | None = None
    usual_ratio: float = 1.0
    moved_s: float = 0.0

    def after(self, speed_mps: float, elapsed_s: float, limit_mps: float | None) -> Pace:
        """Return the pace after a further measurement."""
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
        if now > _HINDERED * cruise:
            cruise += (now - cruise) * part(_MEANT_S)
            usual += (now - usual) * part(_USUAL_S)
        else:
            cruise += (now - cruise) * _part(elapsed_s, _HINDERED_S)
        if limit_mps and now > _HINDERED * limit_mps:
            driven = min(max(now / limit_mps, _RATIOS[0]), _RATIOS[1])
            ratio += (driven - ratio) * _part(elapsed_s, _MEANT_S)
            usual_ratio += (driven - usual_ratio) * _part(elapsed_s, _USUAL_S)
        return Pace(now, cruise, ratio, usual, usual_ratio, moved_s)

    def drive(self, approach: Sequence[Stretch], inside: Sequence[Stretch]) -> tuple[float, float]:
        """Return the seconds to the portal, and those from there to the exit."""
        free = [self._free_mps(stretch.limit_mps) for stretch in approach]
        below = [
            self._free_mps(stretch.limit_mps)
            if stretch.limit_mps
            else min(self._free_mps(None), _COVERED_MPS)
            for stretch in inside
        ]
        lengths = [stretch.length_m for stretch in (*approach, *inside)]
        times = _times([*free, *below], lengths, self.now_mps)
        return math.fsum(times[: len(approach)]), math.fsum(times[len(approach) :])

    def _free_mps(self, limit_mps: float | None) -> float:
        if limit_mps is None:
            cruise = self.cruise_mps or _FIRST_CRUISE_MPS
            return max(_returning(cruise, self.usual_mps or cruise), 2 * STANDING_MPS)
        return _returning(self.ratio, self.usual_ratio) * limit_mps


def _part(elapsed_s: float, time_s: float) -> float:
    """Return how much of a change an average over `time_s` takes up."""
    return -math.expm1(-elapsed_s / time_s)


def _returning(present: float, usual: float) -> float:
    away = min(max(usual - present, -_SAME_KIND * present), _SAME_KIND * present)
    return present + _RETURN * away


def _times(free: list[float], lengths: list[float], speed: float) -> list[float]:
    """Return the time of each length, driven at its free speed where speeding up and braking for
    the next allow it.
    """
    # The speed at the end of each length, by braking in time for all that follow.
    final = [math.inf] * len(free)
    for n in range(len(free) - 2, -1, -1):
        ahead = math.sqrt(final[n + 1] ** 2 + 2.0 * _BRAKING * lengths[n + 1])
        final[n] = min(free[n + 1], ahead)
    times = []
    for allowed, length_m, end in zip(free, lengths, final, strict=True):
        taken, speed = _time(speed, allowed, min(end, allowed), length_m)
        times.append(taken)
    return times


def _time(speed: float, free: float, end: float, length_m: float) -> tuple[float, float]:
    """Return time and final speed of one length, driven so as to end it at `end` at most.

    The vehicle speeds up to a top speed, keeps it, and brakes in time: the quickest way.
    """
    if speed > free:
        # A vehicle that is too fast brakes first; the rest of the length is driven as any other.
        taken_s, reached, left_m = _brake(speed, free, length_m)
        if left_m <= 0.0:
            return taken_s, reached
        more_s, final = _time(free, free, end, left_m)
        return taken_s + more_s, final
    if speed**2 + 2.0 * _ACCELERATION * length_m <= end**2:
        final = math.sqrt(speed**2 + 2.0 * _ACCELERATION * length_m)
        return (final - speed) / _ACCELERATION, final
    if speed**2 - 2.0 * _BRAKING * length_m >= end**2:
        taken_s, final, _ = _brake(speed, end, length_m)
        return taken_s, final
    highest = (
        2.0 * _ACCELERATION * _BRAKING * length_m + _BRAKING * speed**2 + _ACCELERATION * end**2
    ) / (_ACCELERATION + _BRAKING)
    top = min(free, math.sqrt(highest))
    up_m = (top**2 - speed**2) / (2.0 * _ACCELERATION)
    down_m = (top**2 - end**2) / (2.0 * _BRAKING)
    steady_s = max(length_m - up_m - down_m, 0.0) / top if top > 0.0 else 0.0
    return (top - speed) / _ACCELERATION + steady_s + (top - end) / _BRAKING, end


def _brake(speed: float, wanted: float, length_m: float) -> tuple[float, float, float]:
    """Return the time that braking takes, the speed then, and the metres left."""
    needed_m = (speed**2 - wanted**2) / (2.0 * _BRAKING)
    if needed_m <= length_m:
        return (speed - wanted) / _BRAKING, wanted, length_m - needed_m
    final = math.sqrt(speed**2 - 2.0 * _BRAKING * length_m)
    return (speed - final) / _BRAKING, final, 0.0
