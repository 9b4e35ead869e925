"""When a vehicle enters an obstruction and leaves it: distributions, reported as quantiles."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

from dama.prediction.forecast import Errors
from dama.prediction.profile import ACCELERATION, Profile
from dama.prediction.speed import QUEUED, Pace

# The quantiles that are reported.
_FIRST, _LAST = 0.1, 0.9
# The quantiles 0.1, 0.3, 0.5, 0.7 and 0.9 of a normal distribution: five equally probable values.
_NORMAL = (-1.2816, -0.5244, 0.0, 0.5244, 1.2816)
# One standard deviation of the speed, as a part of it, until the drive has shown its own: how much
# drivers change their speed in half a minute where the map gives the road's speed, and elsewhere.
_SPEED_KNOWN = 0.09
_SPEED_UNKNOWN = 0.15
# One standard deviation of the vehicle's place along the road and of a tunnel's drawn ends, in m.
_PLACE_M = 8.0
# A delay that is on no map comes once in `_HELD_UP_EACH_S` of driving; `_HELD_UP` are the shares of
# the three lengths of it. `_AT_LIGHTS` gives, by the number of traffic lights on the way, how long
# they hold a vehicle up and how probably. A light is red for one vehicle in two, mostly for half a
# minute at most; of several lights in a row, several may be green.
_HELD_UP_EACH_S = 300.0
_HELD_UP = (0.4, 0.35, 0.25)
_AT_LIGHTS = (
    ((6.0, 0.0), (18.0, 0.0), (45.0, 0.0)),
    ((8.0, 0.17), (20.0, 0.18), (35.0, 0.15)),
    ((10.0, 0.25), (25.0, 0.28), (48.0, 0.22)),
    ((12.0, 0.25), (32.0, 0.32), (60.0, 0.3)),
)
_AT_NONE = [1.0 - math.fsum(part for _, part in waits) for waits in _AT_LIGHTS]
# Both together, by number of lights: how long, how probably, and what a certain further delay would
# add to that probability. The further delay is taken to be as long as a wait at lights.
_HOLDS = [
    [
        (0.0, none, -none),
        *(
            (wait_s, part, other - part)
            for (wait_s, part), other in zip(waits, _HELD_UP, strict=True)
        ),
    ]
    for waits, none in zip(_AT_LIGHTS, _AT_NONE, strict=True)
]
# A queue reaches to the portal at most, and no further than `_QUEUE_M`. It ends at one of these
# parts of that way; each comes with the beginning of the stretch that it stands for.
_QUEUED_MPS = 0.5
_QUEUE_M = 250.0
_QUEUE_ENDS = ((0.0, 0.0), (0.3, 0.15), (0.7, 0.5), (1.0, 1.0))
# Queues move unevenly: one standard deviation of the logarithm of the time that one takes.
_QUEUE_SPREAD = 0.4
# A vehicle that starts, turns or brakes is as slow as in a queue for some seconds.
_LEAST_QUEUE_S = 3.0
# A median this near to the expected times of a way belongs to that way.
_BETWEEN_S = 2.0
# How much longer a standing vehicle waits, equally probable: seconds, plus a part of the time that
# it has stood.
_WAITS = ((2.0, 0.0), (6.0, 0.05), (12.0, 0.1), (24.0, 0.5), (40.0, 1.5))


class Quantiles(NamedTuple):
    """The times by which something has come with probability 0.1, 0.5, 0.9, in s from now."""

    p10_s: float
    p50_s: float
    p90_s: float


Arrival: TypeAlias = tuple[float, float, float, bool]
"""The weight of a possible passage, its entry and exit in s from now, and whether it is foreseen.

It is not foreseen where something unpredictable holds the vehicle up.
"""


def arrivals(
    pace: Pace,
    errors: Errors,
    profile: Profile,
    offset_m: float,
    stood_s: float | None,
    weight: float = 1.0,
) -> list[Arrival]:
    """Return the possible times of a passage, with weights that add up to `weight`.

    `offset_m` is how far along the profile's first road the vehicle is; `stood_s` is how long it
    has been standing, None while it moves.
    """
    away_m = max(profile.approach_m - offset_m, 0.0)
    factor = pace.factor(is_known=profile.is_known)
    entry_s, inside_s, here_mps = profile.times(offset_m, factor)
    now_mps = pace.now_mps
    if away_m > 0.0 and now_mps < here_mps:
        entry_s = _sped_up(now_mps, here_mps, away_m, entry_s)
    spread = errors.spread(_SPEED_KNOWN if profile.is_known else _SPEED_UNKNOWN)
    place_s = _PLACE_M / max(here_mps, now_mps, 1.0)
    holds: list[tuple[float, float]]
    # How uneven the queue is, and the time at its pace for the uncertainty of the place.
    queue_spread = queue_place_s = 0.0
    if stood_s is not None:
        holds = [(wait_s + part * stood_s, 1.0 / len(_WAITS)) for wait_s, part in _WAITS]
    elif away_m == 0.0:
        holds = [(0.0, 1.0)]
        place_s = 0.0
    elif now_mps < QUEUED * here_mps:
        queued_s = min(away_m, _QUEUE_M) / max(now_mps, _QUEUED_MPS)
        more_s = max(queued_s - min(entry_s, queued_s), 0.0)
        holds = [(part * more_s, share) for part, share in _queue_ends(pace.slow_s, queued_s)]
        queue_spread, queue_place_s = _QUEUE_SPREAD, _PLACE_M / max(now_mps, _QUEUED_MPS)
    else:
        held = -math.expm1(-entry_s / _HELD_UP_EACH_S)
        lights = profile.lights_after(offset_m)
        ways = _HOLDS[lights if lights < len(_HOLDS) else -1]
        holds = [(wait_s, part + held * more) for wait_s, part, more in ways]
    is_free = stood_s is None and away_m > 0.0 and now_mps >= QUEUED * here_mps
    foreseen = 1 if is_free else len(holds)
    spread_s = math.hypot(spread * entry_s, place_s)
    each = weight / len(_NORMAL)
    # In the last case the queue reaches the portal: the vehicle has the queue's pace up to there.
    later = [
        (
            wait_s,
            queue_place_s if number == len(holds) - 1 else 0.0,
            each * part,
            number < foreseen,
        )
        for number, (wait_s, part) in enumerate(holds)
    ]
    found = []
    for deviation in _NORMAL:
        # Half the speed costs more time than twice the speed saves.
        comes_s = entry_s + spread_s * math.expm1(spread * deviation) / spread
        through_s = inside_s * math.exp(spread * deviation)
        slowed = math.exp(queue_spread * deviation)
        # Only the queue's present pace counts as foreseen.
        is_steady = not queue_spread or deviation == 0.0
        for wait_s, unsure_s, part, is_foreseen in later:
            enters_s = comes_s + wait_s * slowed + deviation * unsure_s
            if enters_s < 0.0:
                enters_s = 0.0
            found.append((part, enters_s, enters_s + through_s, is_foreseen and is_steady))
    return list(_held_inside(found, profile.lights_inside)) if profile.lights_inside else found


def _held_inside(points: Iterable[Arrival], lights: int) -> Iterator[Arrival]:
    """Yield the possible times of a passage with this many lights behind the portal."""
    lights = min(lights, len(_AT_LIGHTS) - 1)
    at_lights, through = _AT_LIGHTS[lights], _AT_NONE[lights]
    for weight, entry_s, exit_s, is_foreseen in points:
        if not is_foreseen:
            # A vehicle held up before the portal leaves late anyway; more points only cost sorting.
            yield weight, entry_s, exit_s, is_foreseen
            continue
        yield weight * through, entry_s, exit_s, is_foreseen
        for wait_s, part in at_lights:
            yield weight * part, entry_s, exit_s + wait_s, False


Moment: TypeAlias = tuple[float, float, bool]
"""When something may come, in seconds from now, with its weight, and whether it is foreseen."""


def median_and_range(moments: Iterable[Moment]) -> Quantiles:
    """Return the quantiles of weighted moments; each stands for the times around it.

    The median is that of the foreseen moments alone, kept between the first and last quantile.
    """
    ordered = sorted(moments)
    first, last = _quantiles(ordered, (_FIRST, _LAST))
    (median,) = _quantiles([moment for moment in ordered if moment[2]], (0.5,))
    return Quantiles(first, min(max(median, first), last), last)


def of_ways(by_way: Sequence[Sequence[Moment]]) -> Quantiles:
    """Return the quantiles of the moments of several ways.

    Where one way is short and the other long, no vehicle comes at a time between them. A median
    that falls there is replaced by the median of the nearest way.
    """
    found = median_and_range(itertools.chain.from_iterable(by_way))
    if len(by_way) == 1:
        return found
    nearest, least_s = found.p50_s, math.inf
    for moments in by_way:
        foreseen = [moment[0] for moment in moments if moment[2]]
        first_s, last_s = min(foreseen), max(foreseen)
        away_s = max(first_s - found.p50_s, found.p50_s - last_s)
        if away_s <= _BETWEEN_S:
            return found
        if away_s < least_s:
            least_s = away_s
            nearest = median_and_range(moments).p50_s
    return found._replace(p50_s=min(max(nearest, found.p10_s), found.p90_s))


def _quantiles(
    ordered: Sequence[tuple[float, float, bool]], wanted: Sequence[float]
) -> list[float]:
    total = sum([weight for _, weight, _ in ordered])
    found: list[float] = []
    before_s, before, passed = ordered[0][0], 0.0, 0.0
    goal = wanted[0] * total
    for seconds, weight, _ in ordered:
        middle = passed + 0.5 * weight
        while goal <= middle:
            part = (goal - before) / (middle - before) if middle > before else 1.0
            found.append(before_s + part * (seconds - before_s))
            if len(found) == len(wanted):
                return found
            goal = wanted[len(found)] * total
        before_s, before = seconds, middle
        passed += weight
    return found + [before_s] * (len(wanted) - len(found))


def _queue_ends(slow_s: float, queued_s: float) -> Iterator[tuple[float, float]]:
    """Yield the parts of the way to a portal at which a queue may end, each with its probability.

    A queue that has lasted for t s lasts for another x s with probability t / (t + x).
    """
    lasted_s = max(slow_s, _LEAST_QUEUE_S)

    def lasts(part: float) -> float:
        return lasted_s / (lasted_s + part * queued_s)

    for (part, begins), (_, ends) in pairwise(_QUEUE_ENDS):
        yield part, lasts(begins) - lasts(ends)
    yield 1.0, lasts(1.0)


def _sped_up(now_mps: float, free_mps: float, away_m: float, free_s: float) -> float:
    """Return the time to a place for a vehicle that is slower than its free speed."""
    if free_mps**2 - now_mps**2 > 2.0 * ACCELERATION * away_m:
        final = math.sqrt(now_mps**2 + 2.0 * ACCELERATION * away_m)
        return max((final - now_mps) / ACCELERATION, free_s)
    return free_s + (free_mps - now_mps) ** 2 / (2.0 * ACCELERATION * free_mps)
