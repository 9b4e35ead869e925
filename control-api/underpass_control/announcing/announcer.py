"""The announcements that a terminal makes of blockages ahead, and when it repeats them."""

from __future__ import annotations

from collections.abc import Iterable

from dama.prediction import Announcement, Blockage, Fix, ObstructionMap, Predictor
from dama.prediction.announcement import MAX_AHEAD_MS, MAX_DURATION_MS
from dama.prediction.fix import CLOCK_TOLERANCE_MS
from dama.prediction.places import Line

# Smaller changes are noise of the receiver and not worth a bundle: of entry and duration by this
# many ms, or by this part of the time left or of the duration; of the confidence.
_SHIFT_MS = 2_000
_SHIFT_PART = 0.1
_CONFIDENCE = 0.15
# The times of two receivers of one machine differ by less: each is near to the machine's clock.
_SET_BACK_MS = 2 * CLOCK_TOLERANCE_MS


class Announcer:
    """Predicts as the control service does, and compares with what has been announced.

    It takes fixes and the time, and returns announcements; all by one clock, in ms since the Unix
    epoch.
    """

    def __init__(self, obstructions: ObstructionMap) -> None:
        self._predictor = Predictor(obstructions)
        self._route: Line | None = None
        self._said: dict[str | None, Announcement] = {}

    def set_map(self, obstructions: ObstructionMap) -> None:
        """Continue with another map."""
        before = self._predictor
        self._predictor = Predictor(obstructions, before.track, self._route, before.habits)

    def set_route(self, route: Line | None) -> None:
        """Continue with the line that the terminal will drive; None: it is not known."""
        if route != self._route:
            self._route = route
            self.set_map(self._predictor.map)

    def feed(self, fix: Fix) -> None:
        """Take a fix in; one that is a little older than the last changes nothing.

        Fixes come in order. So one that is much older shows that the clock has been set back, and
        the track begins anew: otherwise nothing would count until the clock is there again.
        """
        last = self._predictor.track.last
        if last is not None and fix.time_ms < last.time_ms - _SET_BACK_MS:
            before = self._predictor
            before.end_drive()
            self._predictor = Predictor(before.map, None, self._route, before.habits)
        self._predictor.feed(fix)

    def due(self, now_ms: int) -> list[Announcement]:
        """Return the announcements due now; pass each to `said` once it is made.

        A blockage that is no longer expected is withdrawn with confidence 0. One that has begun is
        not corrected: inside, a terminal has no fix to go by.
        """
        # One that was made before the clock was set back may be too far ahead to be withdrawn.
        self._said = {
            name: said
            for name, said in self._said.items()
            if said.blockage.exit_ms > now_ms and said.entry_ms <= now_ms + MAX_AHEAD_MS
        }
        ahead: dict[str | None, Blockage] = {}
        for one in self._predictor.blockages(now_ms):
            # An announcement names an obstruction, not a passage of it: announce the next passage.
            ahead.setdefault(one.obstruction_id, one)
        found = [_announcement(one, now_ms) for one in ahead.values() if self._is_news(one, now_ms)]
        return [*found, *self._withdrawn(ahead, now_ms)]

    def said(self, announcement: Announcement) -> None:
        """Remember what has been announced."""
        if announcement.confidence > 0.0:
            self._said[announcement.obstruction_id] = announcement
        else:
            self._said.pop(announcement.obstruction_id, None)

    def _is_news(self, blockage: Blockage, now_ms: int) -> bool:
        said = self._said.get(blockage.obstruction_id)
        if said is None:
            return blockage.exit_ms > now_ms
        if said.entry_ms <= now_ms:
            # By the announcement it has begun: only an entry still ahead shows that it has not.
            return blockage.entry_ms > now_ms + _SHIFT_MS
        ahead_ms = max(blockage.entry_ms - now_ms, 0)
        duration_ms = blockage.exit_ms - blockage.entry_ms
        return (
            _differ(blockage.entry_ms, said.entry_ms, ahead_ms)
            or _differ(duration_ms, said.duration_ms, duration_ms)
            or abs(blockage.confidence - said.confidence) > _CONFIDENCE
        )

    def _withdrawn(self, ahead: Iterable[str | None], now_ms: int) -> Iterable[Announcement]:
        for name, said in self._said.items():
            if name not in ahead and said.entry_ms > now_ms:
                yield Announcement(now_ms, said.entry_ms, said.duration_ms, 0.0, name)


def _differ(one_ms: int, other_ms: int, of_ms: int) -> bool:
    return abs(one_ms - other_ms) > max(_SHIFT_MS, _SHIFT_PART * of_ms)


def _announcement(blockage: Blockage, now_ms: int) -> Announcement:
    return Announcement(
        announced_ms=now_ms,
        entry_ms=blockage.entry_ms,
        duration_ms=min(blockage.exit_ms - blockage.entry_ms, MAX_DURATION_MS),
        confidence=round(blockage.confidence, 3),
        obstruction_id=blockage.obstruction_id,
    )
