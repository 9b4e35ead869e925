"""The database's clock, which plans, leases and reports of all processes share."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

# Of this many last measurements, the one with the shortest delay counts (RFC 5905, § 10).
_KEPT = 8
# Offsets below this plus the error of the measurement count as 0.
_NOISE_MS = 20.0


@dataclass(frozen=True, slots=True)
class _Sample:
    offset_ms: float
    # Half of the delay: the most that the offset may be wrong by.
    error_ms: float


class Clock:
    """Gives the database's time, from this machine's clock and its measured offset.

    Any thread may read it while one thread measures.
    """

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque(maxlen=_KEPT)
        self._offset_ms = 0.0

    @property
    def offset_ms(self) -> float:
        """How far the database's clock is ahead of this machine's."""
        return self._offset_ms

    def now_ms(self) -> int:
        """Return the time, UTC in ms since the Unix epoch."""
        return round(host_ms() + self._offset_ms)

    def measured(self, asked_ms: float, database_ms: float, answered_ms: float) -> None:
        """Take in the database's time, read between two times of this machine's clock."""
        sample = _Sample(
            database_ms - (asked_ms + answered_ms) / 2, max(0.0, answered_ms - asked_ms) / 2
        )
        best = min(self._samples, key=_error, default=sample)
        if abs(sample.offset_ms - best.offset_ms) > sample.error_ms + best.error_ms + _NOISE_MS:
            # One of the clocks has been set: earlier measurements no longer count.
            self._samples.clear()
        self._samples.append(sample)
        best = min(self._samples, key=_error)
        is_noise = abs(best.offset_ms) <= best.error_ms + _NOISE_MS
        self._offset_ms = 0.0 if is_noise else best.offset_ms


def host_ms() -> float:
    """Return the time by this machine's clock, in ms since the Unix epoch."""
    return time.time_ns() / 1e6


def _error(sample: _Sample) -> float:
    return sample.error_ms
