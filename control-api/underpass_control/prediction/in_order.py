"""Fixes that come after later ones, taken in as if they had come in order."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from heapq import merge

from dama.prediction import Fix, Predictor, Track
from dama.prediction.habits import Habits
from dama.prediction.predictor import leaps

# A longer time without a fix is a gap, which late fixes may fill for `_KEPT_MS` after its end. So
# much of the time before a terminal's first fix is a gap, too.
_GAP_MS = 3_000
_KEPT_MS = 180_000
# The most gaps that can be filled, the most fixes since the first of them, and the most late ones.
_MOST_GAPS = 8
_MOST_FIXES = 256
# Late fixes are taken in by feeding the predictor again, from the gap on. Each fix that comes pays
# for so many: late fixes that come one by one wait until enough others have come.
_PAYS = 4


def _time_ms(fix: Fix) -> int:
    return fix.time_ms


@dataclass(frozen=True, slots=True)
class _Gap:
    """The predictor's state before a gap; the times of its last fix there and of the next one."""

    track: Track
    habits: Habits
    start_ms: int
    end: Fix

    def may_contain(self, fix: Fix) -> bool:
        """Tell whether a fix is of this gap, and no further from its ends than a vehicle drives."""
        if not self.start_ms < fix.time_ms < self.end.time_ms or leaps(fix, self.end):
            return False
        return self.track.last is None or not leaps(self.track.last, fix)


class InOrder:
    """Feeds a terminal's predictor; late fixes wait for `take_late`.

    A node that returns from a blockage sends its newest position first, and those of the blockage
    after it.
    """

    def __init__(self) -> None:
        self._gaps: list[_Gap] = []
        # The fixes since the end of the first gap, in order, and late ones as they came.
        self._since: list[Fix] = []
        self._late: list[Fix] = []
        # How many fixes may be fed again.
        self._paid = 0

    def feed(self, predictor: Predictor, fix: Fix) -> bool:
        """Take a fix in, or let it wait if it is late; False if it is ignored."""
        self._paid = min(self._paid + _PAYS, 2 * _MOST_FIXES)
        last = predictor.track.last
        if last is None or fix.time_ms > last.time_ms:
            return self._take(predictor, fix)
        if not self._is_useful(fix) or len(self._late) >= _MOST_FIXES:
            return False
        self._late.append(fix)
        return True

    def take_late(self, predictor: Predictor) -> bool:
        """Feed the predictor again with the late fixes in their places; tell whether it was."""
        # What is not paid for is not looked at either.
        if not self._late or len(self._late) > self._paid:
            return False
        self._late = [fix for fix in self._late if self._is_useful(fix)]
        if not self._late:
            return False
        late = sorted(self._late, key=_time_ms)
        first = max(n for n, gap in enumerate(self._gaps) if gap.start_ms < late[0].time_ms)
        gap = self._gaps[first]
        place = bisect_left(self._since, gap.end.time_ms, key=_time_ms)
        since = self._since[place:]
        if len(late) + len(since) > self._paid:
            return False
        self._paid -= len(late) + len(since)
        self._late = []
        del self._gaps[first:], self._since[place:]
        predictor.track, predictor.habits = gap.track, gap.habits
        for fix in merge(late, since, key=_time_ms):
            last = predictor.track.last
            # Late fixes may contradict one another.
            if last is None or not leaps(last, fix):
                self._take(predictor, fix)
        return True

    def _is_useful(self, late: Fix) -> bool:
        return any(gap.may_contain(late) for gap in self._gaps)

    def _take(self, predictor: Predictor, fix: Fix) -> bool:
        track, habits = predictor.track, predictor.habits
        if not predictor.feed(fix):
            return False
        start_ms = fix.time_ms - _KEPT_MS if track.last is None else track.last.time_ms
        if track.last is not None and leaps(track.last, fix):
            self._gaps = []
        elif fix.time_ms - start_ms >= _GAP_MS:
            self._gaps.append(_Gap(track, habits, start_ms, fix))
        self._since.append(fix)
        while self._gaps and (
            fix.time_ms - self._gaps[0].end.time_ms > _KEPT_MS
            or len(self._gaps) > _MOST_GAPS
            or len(self._since) > _MOST_FIXES
        ):
            del self._gaps[0]
            begin_ms = self._gaps[0].end.time_ms if self._gaps else fix.time_ms
            del self._since[: bisect_left(self._since, begin_ms, key=_time_ms)]
        if not self._gaps:
            self._since = []
        return True
