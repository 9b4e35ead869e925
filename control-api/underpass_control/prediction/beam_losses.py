"""Tells losses of link that have one cause in the whole beam from those of single places."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right, insort
from operator import attrgetter
from typing import NamedTuple

from dama.prediction.places import Position, distance_m

# Losses at the same time begin within this time of each other. Both ends of a link report each
# loss, with entries that differ by less.
_WITHIN_MS = 3_000
# Vehicles further apart do not meet the same obstruction at the same time.
_APART_M = 1_000.0
# The time over which the beam's rate of losses is counted. A shorter one, after a start, counts as
# the least.
_RATE_MS = 3_600_000
_LEAST_RATE_MS = 60_000
# Losses are shared if they exceed the expected number by so many standard deviations.
_DEVIATIONS = 3.0
_MOST_LOSSES = 20_000


class _Loss(NamedTuple):
    time_ms: int
    terminal: int
    place: Position | None


_time = attrgetter("time_ms")


class BeamLosses:
    """When and where the terminals of a beam lost their links.

    After a gateway's restart, or when the beam is out, terminals lose their links at the same time
    wherever they are. In a large fleet that happens by chance, too, in tunnels far from each other.
    So a loss is shared if more than m + 3 √m others, each more than 1 km away, began within 3 s of
    it, where m is the number to expect by the other terminals' losses in the hour before. Where m
    is below 0.09 (a loss each minute), one other loss is enough. If losses are independent, this
    takes at most 9 % of them for shared ones, and less than 5 % where m is above 0.1.

    A terminal's losses within 3 s of each other count once, so a terminal that invents losses adds
    at most 2 to m.
    """

    def __init__(self) -> None:
        # In order of time; and the times of each terminal.
        self._losses: list[_Loss] = []
        self._times: dict[int, list[int]] = {}

    def add(self, terminal: int, time_ms: int, place: Position | None) -> None:
        """Take in when and where a loss began (None: unknown); a repeated report adds nothing."""
        times = self._times.setdefault(terminal, [])
        if _between(times, time_ms - _WITHIN_MS, time_ms + _WITHIN_MS):
            return
        insort(times, time_ms)
        insort(self._losses, _Loss(time_ms, terminal, place), key=_time)
        if len(self._losses) > _MOST_LOSSES:
            del self._losses[: _MOST_LOSSES // 2]
            self._times = {}
            for loss in self._losses:
                self._times.setdefault(loss.terminal, []).append(loss.time_ms)

    def are_shared(self, terminal: int, time_ms: int, place: Position) -> bool:
        """Tell whether a terminal's loss at a place is one of many in the beam.

        Call it some seconds after the loss, when those of other terminals have been reported.
        """
        most = self._most_by_chance(terminal, time_ms)
        far: set[int] = set()
        first = bisect_left(self._losses, time_ms - _WITHIN_MS, key=_time)
        for number in range(first, len(self._losses)):
            loss = self._losses[number]
            if loss.time_ms > time_ms + _WITHIN_MS:
                break
            if loss.terminal != terminal and (
                loss.place is None or distance_m(place, loss.place) > _APART_M
            ):
                far.add(loss.terminal)
                if len(far) > most:
                    return True
        return False

    def _most_by_chance(self, terminal: int, time_ms: int) -> float:
        """Return how many other terminals may lose their links at the same time by chance."""
        until_ms = time_ms - _WITHIN_MS - 1
        since_ms = max(until_ms - _RATE_MS, self._losses[0].time_ms if self._losses else until_ms)
        first = bisect_left(self._losses, since_ms, key=_time)
        all_of_them = bisect_right(self._losses, until_ms, key=_time) - first
        others = all_of_them - _between(self._times.get(terminal, []), since_ms, until_ms)
        expected = 2.0 * _WITHIN_MS * others / max(until_ms - since_ms, _LEAST_RATE_MS)
        return expected + _DEVIATIONS * math.sqrt(expected)


def _between(times: list[int], since_ms: int, until_ms: int) -> int:
    """Return how many of some ordered times lie between two others, these included."""
    return bisect_right(times, until_ms) - bisect_left(times, since_ms)
