"""The database's clock: one for the plans, leases and reports of all processes."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass

# Of the last measurements the one with the shortest way counts (RFC 5905, § 10).
_KEPT = 8
# Offsets below this, and below what the measurement may be wrong by, are none.
_NOISE_MS = 20.0


@dataclass(frozen=True, slots=True)
class _Sample:
    offset_ms: float
    # By which it may be wrong.
    error_ms: float


class Clock:
    """Tells the database's time, by this machine's clock and its measured offset.

    It may be read from any thread while one measures.
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
        """Take in what the database's clock said between two times of this machine's."""
        sample = _Sample(
            database_ms - (asked_ms + answered_ms) / 2, max(0.0, answered_ms - asked_ms) / 2
        )
        best = min(self._samples, key=_error, default=sample)
        if abs(sample.offset_ms - best.offset_ms) > sample.error_ms + best.error_ms + _NOISE_MS:
            # One of the clocks has been set: what was measured before says nothing.
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
