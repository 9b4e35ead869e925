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
# Losses are kept for this long before the newest one: an hour back, the hour before is known, too.
_KEPT_MS = 2 * _RATE_MS
# The most losses that are kept, of each terminal and of all: their latest ones.
_MOST_OF_TERMINAL = 256
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

    A terminal's losses within 3 s of each other count once, and only its last 256 of two hours are
    kept. So a terminal that invents losses adds at most 2 to m, and 0.5 once an hour is counted.
    Losses of more than two hours before the newest one are not kept.
    """

    def __init__(self) -> None:
        # In order of time; and the times of each terminal.
        self._losses: list[_Loss] = []
        self._times: dict[int, list[int]] = {}
        # Losses before this time are not known.
        self._known_since_ms = 0
        # The first loss that was reported: one dated back does not make the time counted longer.
        self._counted_since_ms: int | None = None

    def add(self, terminal: int, time_ms: int, place: Position | None) -> None:
        """Take in when and where a loss began (None: unknown); a repeated report adds nothing."""
        if time_ms < self._known_since_ms:
            return
        times = self._times.get(terminal, [])
        if _between(times, time_ms - _WITHIN_MS, time_ms + _WITHIN_MS):
            return
        if len(times) >= _MOST_OF_TERMINAL:
            if time_ms < times[0]:
                return
            self._remove_first_of(terminal)
        if self._counted_since_ms is None:
            self._counted_since_ms = time_ms
        insort(self._times.setdefault(terminal, times), time_ms)
        insort(self._losses, _Loss(time_ms, terminal, place), key=_time)
        self._remove_old()

    def has_of(self, terminal: int, since_ms: int, until_ms: int) -> bool:
        """Tell whether a terminal has lost its link between two times, these included."""
        return _between(self._times.get(terminal, []), since_ms, until_ms) > 0

    def _remove_first_of(self, terminal: int) -> None:
        time_ms = self._times[terminal].pop(0)
        number = bisect_left(self._losses, time_ms, key=_time)
        while self._losses[number].terminal != terminal:
            number += 1
        del self._losses[number]

    def _remove_old(self) -> None:
        """Remove the losses that are too old, or too many."""
        since_ms = max(self._known_since_ms, self._losses[-1].time_ms - _KEPT_MS)
        if len(self._losses) > _MOST_LOSSES:
            since_ms = max(since_ms, self._losses[-_MOST_LOSSES - 1].time_ms + 1)
        self._known_since_ms = since_ms
        old = bisect_left(self._losses, since_ms, key=_time)
        for loss in self._losses[:old]:
            times = self._times[loss.terminal]
            del times[0]
            if not times:
                del self._times[loss.terminal]
        del self._losses[:old]

    def are_shared(self, terminal: int, time_ms: int, place: Position) -> bool:
        """Tell whether a terminal's loss at a place is one of many in the beam.

        Call it some seconds after the loss, when those of other terminals have been reported. A
        loss from before all that are kept counts as shared: whether it was is not known.
        """
        if time_ms < self._known_since_ms:
            return True
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
        known_since_ms = max(self._known_since_ms, self._counted_since_ms or 0)
        # Before a loss that is dated before the first reported one, none are counted.
        since_ms = min(max(until_ms - _RATE_MS, known_since_ms), until_ms + 1)
        first = bisect_left(self._losses, since_ms, key=_time)
        all_of_them = bisect_right(self._losses, until_ms, key=_time) - first
        others = all_of_them - _between(self._times.get(terminal, []), since_ms, until_ms)
        expected = 2.0 * _WITHIN_MS * others / max(until_ms - since_ms, _LEAST_RATE_MS)
        return expected + _DEVIATIONS * math.sqrt(expected)


def _between(times: list[int], since_ms: int, until_ms: int) -> int:
    """Return how many of some ordered times lie between two others, these included."""
    return bisect_right(times, until_ms) - bisect_left(times, since_ms)
