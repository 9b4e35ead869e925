"""How long a way takes: speeds by limits, kinds of road and bends, with time to speed up and brake.

A profile belongs to the map and is worked out once, for some factors of speed; a vehicle looks its
own up between them.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from dama.prediction.places import Course

# A comfortable driver's speeding up, braking, and going round a bend, in m/s².
ACCELERATION = 1.2
BRAKING = 1.4
_SIDEWAYS = 2.0
# Nobody drives more slowly than this, whatever is posted: times stay finite.
_CRAWL_MPS = 0.5
# The least speed in a bend. A vertex of a line stands for a bend over half of each of its two
# segments, of which at most `_BEND_M` count; a turn of less than `_STRAIGHT_RAD` is no bend.
_LEAST_BEND_MPS = 5.0
_BEND_M = 25.0
_STRAIGHT_RAD = math.radians(4.0)
# The expected speed where nothing is known of the road; there, factors are parts of this.
NOMINAL_MPS = 13.9
# The highest speed expected in a tunnel of which nothing is known: most have a limit of 80 to
# 100 km/h, and drivers slow down before the portal.
_COVERED_MPS = 25.0
# Profiles are computed for these factors; between two of them, time is nearly linear in the factor.
_FACTORS = np.array([0.5, 0.75, 1.0, 1.4, 2.0, 3.0])
# A segment is divided into steps of this length, at most this many of them.
_STEP_M = 50.0
_MOST_STEPS = 16
# Lights this near to each other belong to one crossing.
_LIGHT_M = 30.0


@dataclass(frozen=True, slots=True)
class Shape:
    """A road as it is driven: steps in metres with the speed at which each may begin.

    `expected_mps` is None where nothing is known of it; `light_m` is where a traffic light stands.
    """

    steps_m: NDArray[np.float64]
    begins_mps: NDArray[np.float64]
    expected_mps: float | None
    first: tuple[float, float]
    last: tuple[float, float]
    light_m: float | None = None

    @staticmethod
    def of(course: Course, expected_mps: float | None, light_m: float | None = None) -> Shape:
        """Return the shape of a course."""
        steps, begins = [], []
        before: tuple[float, float] | None = None
        segments = list(course.segments())
        for segment in segments:
            length_m = segment[0]
            count = min(max(math.ceil(length_m / _STEP_M), 1), _MOST_STEPS)
            steps += [length_m / count] * count
            begins.append(math.inf if before is None else bend_mps(before, segment))
            begins += [math.inf] * (count - 1)
            before = segment
        return Shape(
            np.array(steps), np.array(begins), expected_mps, segments[0], segments[-1], light_m
        )


def bend_mps(before: tuple[float, float], after: tuple[float, float]) -> float:
    """Return the speed in the bend between two segments: lengths in m, headings in degrees."""
    turned = abs(math.remainder(math.radians(after[1] - before[1]), math.tau))
    if turned < _STRAIGHT_RAD:
        return math.inf
    length_m = (min(before[0], _BEND_M) + min(after[0], _BEND_M)) / 2.0
    return max(math.sqrt(_SIDEWAYS * length_m / turned), _LEAST_BEND_MPS)


class Profile:
    """The time along a way into an obstruction and through it, from each place of its first road.

    `approach_m` are the metres from the first road's beginning to the portal, `inside_m` those from
    there to the exit; `is_known` tells whether the map gives the speed on the way to the portal.
    """

    __slots__ = (
        "_approach",
        "_inside",
        "_lights_m",
        "_tables",
        "approach_m",
        "inside_m",
        "is_known",
        "lights_inside",
    )

    def __init__(
        self, approach: Sequence[Shape], inside: Sequence[Shape], approach_m: float, inside_m: float
    ) -> None:
        self._approach, self._inside = tuple(approach), tuple(inside)
        self.approach_m, self.inside_m = approach_m, inside_m
        before = approach or inside
        self.is_known = bool(before) and all(shape.expected_mps is not None for shape in before)
        self._tables: _Tables | None = None
        lights = [*_lights_m((*approach, *inside))]
        # A vehicle that waits at a portal stands in front of it.
        self._lights_m = tuple(at_m for at_m in lights if at_m <= approach_m)
        self.lights_inside = len(lights) - len(self._lights_m)

    def lights_after(self, offset_m: float) -> int:
        """Return how many traffic lights stand between a place and the portal."""
        return sum(at_m > offset_m for at_m in self._lights_m) if self._lights_m else 0

    @staticmethod
    def of_lengths(approach_m: float, inside_m: float) -> Profile:
        """Return the profile of an approach and an inside of which only the lengths are known."""
        made = Profile((), (), approach_m, inside_m)
        free = [NOMINAL_MPS * factor for factor in _FACTOR_LIST]
        entries = [approach_m / speed for speed in free]
        throughs = [inside_m / min(speed, _COVERED_MPS) for speed in free]
        exits = [entry_s + through_s for entry_s, through_s in zip(entries, throughs, strict=True)]
        made._tables = _Tables(
            [0.0, max(approach_m or inside_m, 0.01)],
            [[0.0, seconds] for seconds in (entries if approach_m else exits)],
            [[speed, speed] for speed in free],
            entries,
            exits,
        )
        return made

    def times(self, offset_m: float, factor: float) -> tuple[float, float, float]:
        """Return the seconds from a place to the portal, from there to the exit, and its speed.

        The place is on the first road; the speed is the free speed there. All are for a vehicle
        that drives at this factor of the expected speed.
        """
        if self._tables is None:
            self._tables = _tables(self._approach, self._inside, is_known=self.is_known)
        return self._tables.times(offset_m, factor)


def _lights_m(shapes: Iterable[Shape]) -> Iterator[float]:
    """Yield where lights stand on a way, in metres from its beginning."""
    begins_m, last_m = 0.0, -math.inf
    for shape in shapes:
        if shape.light_m is not None and begins_m + shape.light_m > last_m + _LIGHT_M:
            # The two lights of one crossing, one on each side, count as one.
            last_m = begins_m + shape.light_m
            yield last_m
        begins_m += float(shape.steps_m.sum())


@dataclass(frozen=True, slots=True)
class _Tables:
    """Along the first road, by factor: the time since its beginning, and the speed."""

    at_m: list[float]
    since_s: list[list[float]]
    speed_mps: list[list[float]]
    entry_s: list[float]
    exit_s: list[float]

    def times(self, offset_m: float, factor: float) -> tuple[float, float, float]:
        n = min(max(bisect_right(self.at_m, offset_m), 1), len(self.at_m) - 1)
        begins, ends = self.at_m[n - 1], self.at_m[n]
        part = min(max((offset_m - begins) / (ends - begins), 0.0), 1.0) if ends > begins else 1.0
        # Outside the table, time is inversely proportional to the factor.
        k = min(max(bisect_right(_FACTOR_LIST, factor), 1), len(_FACTOR_LIST) - 1)
        low, high = _FACTOR_LIST[k - 1], _FACTOR_LIST[k]
        share = min(max((factor - low) / (high - low), 0.0), 1.0)
        found = [0.0, 0.0, 0.0]
        for row, weight in ((k - 1, 1.0 - share), (k, share)):
            scale = weight * _FACTOR_LIST[row] / factor
            since = self.since_s[row][n - 1]
            since += part * (self.since_s[row][n] - since)
            found[0] += scale * max(self.entry_s[row] - since, 0.0)
            found[1] += scale * (self.exit_s[row] - max(self.entry_s[row], since))
            speeds = self.speed_mps[row]
            speed = speeds[n - 1] + part * (speeds[n] - speeds[n - 1])
            found[2] += weight * speed * factor / _FACTOR_LIST[row]
        return found[0], max(found[1], 0.0), found[2]


_FACTOR_LIST = [float(factor) for factor in _FACTORS]


def _tables(approach: Sequence[Shape], inside: Sequence[Shape], *, is_known: bool) -> _Tables:
    shapes = [*approach, *inside]
    steps = np.concatenate([shape.steps_m for shape in shapes])
    begins = np.concatenate([shape.begins_mps for shape in shapes])
    at = np.concatenate([[0.0], np.cumsum(steps)])
    expected = [shape.expected_mps for shape in shapes]
    most = [math.inf] * len(shapes)
    for n in range(len(approach), len(shapes)):
        if not is_known or expected[n] is None:
            # The speed before the portal goes on inside, up to the expected speed there.
            most[n] = expected[n] or _COVERED_MPS
            expected[n] = expected[n - 1] if n and is_known else None
    free = np.concatenate(
        [
            np.minimum(
                np.full(
                    (len(_FACTORS), len(shape.steps_m)),
                    (expected[n] if is_known else None) or NOMINAL_MPS,
                )
                * _FACTORS[:, None],
                most[n],
            )
            for n, shape in enumerate(shapes)
        ],
        axis=1,
    )
    junction = 0
    for before, after in pairwise(shapes):
        junction += len(before.steps_m)
        begins[junction] = min(begins[junction], bend_mps(before.last, after.first))
    if not is_known:
        # Lines without known speeds are drawn by hand or from fixes: their corners are no bends.
        begins[:] = math.inf
    seconds, speeds = _driven(steps, free, np.append(begins, math.inf), at)
    since = np.concatenate([np.zeros((len(_FACTORS), 1)), np.cumsum(seconds, axis=1)], axis=1)
    first = len(shapes[0].steps_m) + 1
    portal = sum(len(shape.steps_m) for shape in approach)
    return _Tables(
        at[:first].tolist(),
        since[:, :first].tolist(),
        speeds[:, :first].tolist(),
        since[:, portal].tolist(),
        since[:, -1].tolist(),
    )


def _driven(
    steps_m: NDArray[np.float64],
    free_mps: NDArray[np.float64],
    most_mps: NDArray[np.float64],
    at_m: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the time of each step, and the speed at each of their ends, for each row of speeds.

    Steps (n) are driven at their free speeds (rows, n), and at their ends at no more than
    `most_mps` (n + 1), within the limits of acceleration and braking.
    """
    free_mps = np.maximum(free_mps, _CRAWL_MPS)
    ends = np.pad(free_mps, ((0, 0), (1, 1)), constant_values=math.inf)
    square = np.minimum(np.minimum(ends[:, :-1], ends[:, 1:]), most_mps) ** 2
    up, down = 2.0 * ACCELERATION * at_m, 2.0 * BRAKING * at_m
    after = np.minimum.accumulate(square - up, axis=1) + up
    before = np.minimum.accumulate((square + down)[:, ::-1], axis=1)[:, ::-1] - down
    # Over a long way, small squares lose their precision in sums with large numbers.
    square = np.maximum(np.minimum(after, before), _CRAWL_MPS**2)
    first, last = square[:, :-1], square[:, 1:]
    # In each step the vehicle accelerates to a top speed, keeps it, and brakes in time.
    highest = 2.0 * ACCELERATION * BRAKING * steps_m + BRAKING * first + ACCELERATION * last
    top = np.minimum(free_mps, np.sqrt(highest / (ACCELERATION + BRAKING)))
    up_m = (top**2 - first) / (2.0 * ACCELERATION)
    down_m = (top**2 - last) / (2.0 * BRAKING)
    steady_s = np.maximum(steps_m - up_m - down_m, 0.0) / top
    speeds = np.sqrt(square)
    slow_s = (top - speeds[:, :-1]) / ACCELERATION + (top - speeds[:, 1:]) / BRAKING
    return slow_s + steady_s, speeds
