"""When each fix of a recorded drive is replayed, and with which time; it has no clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from dama.prediction import Fix
from dama.prediction.fix import MAX_SPEED_MPS

# Without a fix, a receiver says so each second.
_TELL_EVERY_MS = 1_000
# Between fixes further apart than this, the receiver had lost its fix.
_LOST_AFTER_MS = 2_500
# Fixes further apart than any tunnel takes are of two drives, or the receiver's clock was wrong.
# The later ones then follow after `_PAUSE_MS`.
_APART_MS = 30 * 60_000
_PAUSE_MS = 60_000
# This many fixes in a row that fall back in time are another drive; fewer are errors.
_ANOTHER = 10


@dataclass(frozen=True, slots=True)
class Moment:
    """A receiver's output at a time (ms since the Unix epoch): a fix, or None for no fix."""

    time_ms: int
    fix: Fix | None


class Timeline:
    """The fixes of a recording, one drive after the other, without those that fall back in time.

    `left_out` counts the fixes that were left out.

    Raises:
        ValueError: There are none, or `speed` is not positive.
    """

    def __init__(self, fixes: Iterable[Fix], speed: float = 1.0) -> None:
        """Take the recorded fixes, and how many times faster they are replayed."""
        if not speed > 0.0:
            raise ValueError("the speed is not positive")
        self._speed = speed
        # Each fix, with how long (ms, as recorded) after the first one it is replayed.
        self._fixes: list[tuple[int, Fix]] = []
        self.left_out = 0
        behind: list[Fix] = []
        for fix in fixes:
            if not self._fixes or fix.time_ms > self._fixes[-1][1].time_ms:
                self.left_out += len(behind)
                behind.clear()
                self._add(fix)
            elif fix.time_ms == self._fixes[-1][1].time_ms or (
                behind and fix.time_ms <= behind[-1].time_ms
            ):
                self.left_out += 1
            else:
                behind.append(fix)
                if len(behind) == _ANOTHER:
                    for earlier in behind:
                        self._add(earlier)
                    behind.clear()
        self.left_out += len(behind)
        if not self._fixes:
            raise ValueError("there is no fix with a time in it")

    def _add(self, fix: Fix) -> None:
        if not self._fixes:
            self._fixes.append((0, fix))
            return
        after_ms, last = self._fixes[-1]
        further_ms = fix.time_ms - last.time_ms
        if not 0 < further_ms <= _APART_MS:
            further_ms = _PAUSE_MS
        self._fixes.append((after_ms + further_ms, fix))

    def __len__(self) -> int:
        return len(self._fixes)

    @property
    def duration_ms(self) -> int:
        """How long the replay takes."""
        return self._scaled(self._fixes[-1][0])

    def moments(self, start_ms: int) -> Iterator[Moment]:
        """Yield the moments in order; the first fix has the time `start_ms`.

        In a faster replay the vehicle's speeds rise as the times shrink.
        """
        last: Fix | None = None
        for after_ms, fix in self._fixes:
            time_ms = start_ms + self._scaled(after_ms)
            if last is not None:
                if time_ms == last.time_ms:
                    continue
                if time_ms - last.time_ms > _LOST_AFTER_MS:
                    for lost_ms in range(last.time_ms + _TELL_EVERY_MS, time_ms, _TELL_EVERY_MS):
                        yield Moment(lost_ms, None)
            last = replace(fix, time_ms=time_ms, speed_mps=self._faster(fix.speed_mps))
            yield Moment(time_ms, last)

    def _scaled(self, after_ms: int) -> int:
        return round(after_ms / self._speed)

    def _faster(self, speed_mps: float | None) -> float | None:
        if speed_mps is None or speed_mps * self._speed > MAX_SPEED_MPS:
            return None
        return speed_mps * self._speed
