"""Whether the positions of one terminal leap so often that they are those of several vehicles."""

from __future__ import annotations

from dataclasses import dataclass

# A receiver leaps now and then. So many leaps within so long are those of two vehicles that report
# under one number; they are told again after so long.
_MANY = 10
_WITHIN_MS = 300_000
_AGAIN_MS = 3_600_000


@dataclass(slots=True)
class Leaps:
    """The leaps of a terminal's positions; times are those of the positions, in ms."""

    count: int = 0
    since_ms: int = 0
    told_ms: int | None = None

    def leapt(self, time_ms: int) -> bool:
        """Count a leap; tell whether somebody ought to know now."""
        if not 0 <= time_ms - self.since_ms < _WITHIN_MS:
            self.count, self.since_ms = 0, time_ms
        self.count += 1
        if self.count < _MANY:
            return False
        if self.told_ms is not None and 0 <= time_ms - self.told_ms < _AGAIN_MS:
            return False
        self.told_ms = time_ms
        return True
