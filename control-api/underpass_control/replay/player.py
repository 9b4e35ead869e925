"""Plays a drive against the clock."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

from underpass_control.client import LostError
from underpass_control.replay.targets import Target
from underpass_control.replay.timeline import Moment, Timeline

# The most moments in one request; waiting ones are sent in as few requests as this allows.
_BATCH = 500
_SHORTEST_WAIT_S, _LONGEST_WAIT_S = 0.05, 10.0
# If the target is still away this long after the end of the drive, the replay gives up.
_GIVE_UP_S = 60.0
# The pause between the end of a drive and its next beginning.
_PAUSE_MS = 1_000


@dataclass
class Played:
    """The progress of a replay."""

    fixes: int = 0
    sent: int = 0
    losses: int = 0
    # How many fixes of the drive have been played in its present run.
    place: int = 0
    # Why nothing can be sent at present.
    trouble: str | None = None

    def summary(self) -> dict[str, object]:
        """Return the figures for programs."""
        return {name: value for name, value in asdict(self).items() if name != "place"}


async def play(
    timeline: Timeline,
    target: Target,
    played: Played,
    *,
    again: bool = False,
    tell: Callable[[Played], None] = lambda _: None,
) -> None:
    """Play a drive to its end, or again and again until cancelled; `played` shows the progress.

    Moments that could not be sent are sent again, with those that became due meanwhile.
    """
    await target.open()
    try:
        await _Play(timeline, target, again, played, tell).run()
    finally:
        await target.close()


class _Play:
    def __init__(
        self,
        timeline: Timeline,
        target: Target,
        again: bool,
        played: Played,
        tell: Callable[[Played], None],
    ) -> None:
        self._target = target
        self._played = played
        self._tell = tell
        self._coming = _drives(timeline, again, played)
        self._next = next(self._coming, None)
        self._waiting: deque[Moment] = deque()
        self._retry_ms = 0
        self._wait_s = 0.0

    async def run(self) -> None:
        ended_ms: int | None = None
        while self._next or self._waiting:
            now_ms = _now_ms()
            self._take(now_ms)
            if self._next is None:
                ended_ms = ended_ms or now_ms
            if self._waiting and now_ms >= self._retry_ms:
                await self._send()
                self._tell(self._played)
                if ended_ms and self._waiting and now_ms - ended_ms > _GIVE_UP_S * 1000:
                    return
                continue
            due_ms = [self._next.time_ms] if self._next else []
            due_ms += [self._retry_ms] if self._waiting else []
            if due_ms:
                await asyncio.sleep(max(min(due_ms) - now_ms, 0) / 1000)

    def _take(self, now_ms: int) -> None:
        while self._next and self._next.time_ms <= now_ms:
            self._played.fixes += self._next.fix is not None
            self._waiting.append(self._next)
            self._next = next(self._coming, None)

    async def _send(self) -> None:
        batch = [self._waiting[n] for n in range(min(len(self._waiting), _BATCH))]
        try:
            await self._target.send(batch)
        except LostError as error:
            self._played.losses += self._played.trouble is None
            self._played.trouble = str(error)
            self._wait_s = min(
                max(error.again_s, 2 * self._wait_s, _SHORTEST_WAIT_S), _LONGEST_WAIT_S
            )
            self._retry_ms = _now_ms() + round(1000 * self._wait_s)
            return
        self._played.trouble = None
        self._wait_s = 0.0
        self._played.sent += sum(one.fix is not None for one in batch)
        for _ in batch:
            self._waiting.popleft()


def _drives(timeline: Timeline, again: bool, played: Played) -> Iterator[Moment]:
    start_ms = _now_ms()
    while True:
        played.place = 0
        for moment in timeline.moments(start_ms):
            played.place += moment.fix is not None
            yield moment
        if not again:
            return
        start_ms = max(start_ms + timeline.duration_ms + _PAUSE_MS, _now_ms())


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
