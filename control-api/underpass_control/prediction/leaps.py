"""Whether the positions of one terminal seem to be those of several vehicles."""

from __future__ import annotations

from dataclasses import dataclass

from dama.prediction import Fix
from dama.prediction.predictor import leaps

# A receiver leaps now and then. This many leaps within this time show two vehicles that report
# under one number; the warning is repeated after `_AGAIN_MS`.
_MANY = 10
_WITHIN_MS = 300_000
_AGAIN_MS = 3_600_000
# Of two vehicles with different clocks one is always late, by the difference of the clocks. After a
# blockage, reports are late by less and less: their lateness does not stay within `_STEADY_MS`.
_LATE_MS = 10_000
_STEADY_MS = 60_000


@dataclass(slots=True)
class Leaps:
    """Counts leaps and late reports among a terminal's positions; times are theirs, in ms."""

    count: int = 0
    since_ms: int = 0
    told_ms: int | None = None
    # How late steadily late reports are, since when and how often; and when the last one came.
    late_ms: int = 0
    late_since_ms: int = 0
    late_count: int = 0
    late_last_ms: int = 0

    def leapt(self, time_ms: int) -> bool:
        """Count a leap; tell whether to warn now."""
        if not 0 <= time_ms - self.since_ms < _WITHIN_MS:
            self.count, self.since_ms = 0, time_ms
        self.count += 1
        return self.count >= _MANY and self._is_news(time_ms)

    def came_late(self, last: Fix, fix: Fix) -> bool:
        """Count a position that came after a later one; tell whether to warn now.

        Of many at once, as after a blockage, one counts.
        """
        now_ms, before_ms = last.time_ms, self.late_last_ms
        if now_ms == before_ms:
            return False
        self.late_last_ms = now_ms
        if leaps(fix, last):
            return self.leapt(now_ms)
        late_ms = now_ms - fix.time_ms
        # None comes during a blockage: late ones of two blockages are further apart than late.
        steady = now_ms - before_ms < late_ms and abs(late_ms - self.late_ms) <= _STEADY_MS
        if late_ms < _LATE_MS or not steady:
            self.late_ms, self.late_since_ms, self.late_count = late_ms, now_ms, 0
        self.late_count += 1
        for_long = now_ms - self.late_since_ms >= _WITHIN_MS
        return self.late_count >= _MANY and for_long and self._is_news(now_ms)

    def _is_news(self, time_ms: int) -> bool:
        if self.told_ms is not None and 0 <= time_ms - self.told_ms < _AGAIN_MS:
            return False
        self.told_ms = time_ms
        return True
