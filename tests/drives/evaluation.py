"""How well blockages are predicted: entry time, what is missed, what is false.

A blockage counts as predicted while its confidence is at least a half. Its entry is the last fix
before the loss, and the error is that of the prediction held 30 s before. An entry that is not
predicted 10 s before is *missed*; one that is not yet predicted 30 s before is *unseen* then: the
vehicle had still to turn into the road, or round on it. A prediction that no entry follows is
*false* if it was still held 10 s before its own entry, *withdrawn* if it was held 30 s before but
given up by then: the vehicle turned off, or stopped for long.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from dama.prediction import Blockage, Fix, ObstructionMap, Predictor
from dama.prediction.places import Line

AHEAD_MS = 30_000
LATEST_MS = 10_000
CONFIDENCE = 0.5
# A prediction that was silent for so long, and comes again, is a new one.
_SILENCE_MS = 20_000
# An entry so long after the prediction was last held still belongs to it.
_GRACE_MS = 15_000


@dataclass(frozen=True)
class Entry:
    """A true entry: into which obstruction, and the last fix before it."""

    obstruction_id: str
    time_ms: int


@dataclass(frozen=True)
class Held:
    """A prediction as it was held at a time."""

    time_ms: int
    blockage: Blockage


@dataclass
class Score:
    """What came of one drive or of many."""

    errors_s: list[float] = field(default_factory=list)
    missed: list[Entry] = field(default_factory=list)
    unseen: list[Entry] = field(default_factory=list)
    predicted: int = 0
    false: list[Held] = field(default_factory=list)
    withdrawn: list[Held] = field(default_factory=list)
    # Entries less than 30 s after the drive began, and predictions open when it ended.
    too_early: int = 0
    undecided: int = 0

    def add(self, other: Score) -> None:
        """Count another drive in."""
        self.errors_s += other.errors_s
        self.missed += other.missed
        self.unseen += other.unseen
        self.predicted += other.predicted
        self.false += other.false
        self.withdrawn += other.withdrawn
        self.too_early += other.too_early
        self.undecided += other.undecided

    @property
    def false_percent(self) -> float:
        """Which part of the predictions was false."""
        return 100.0 * len(self.false) / self.predicted if self.predicted else 0.0

    @property
    def withdrawn_percent(self) -> float:
        """Which part of the predictions was given up in time."""
        return 100.0 * len(self.withdrawn) / self.predicted if self.predicted else 0.0


def held_along(predictor: Predictor, fixes: Iterable[Fix]) -> list[Held]:
    """Feed a drive's fixes, and return what was predicted after each."""
    held = []
    for fix in fixes:
        predictor.feed(fix)
        held += [
            Held(fix.time_ms, blockage)
            for blockage in predictor.blockages(fix.time_ms)
            if blockage.confidence >= CONFIDENCE
        ]
    return held


def score(
    obstructions: ObstructionMap,
    fixes: Sequence[Fix],
    entries: Sequence[Entry],
    route: Line | None = None,
) -> Score:
    """Score one drive, with its route known or not."""
    result = Score()
    held = held_along(Predictor(obstructions, route=route), fixes)
    times = [fix.time_ms for fix in fixes]
    for entry in entries:
        if times[0] > entry.time_ms - AHEAD_MS:
            result.too_early += 1
            continue
        if _held_at(held, times, entry, LATEST_MS) is None:
            result.missed.append(entry)
        known = _held_at(held, times, entry, AHEAD_MS)
        if known is None:
            result.unseen.append(entry)
        else:
            result.errors_s.append(abs(known.entry_ms - entry.time_ms) / 1000.0)
    for episode in _episodes(held):
        entered = any(_follows(entry, episode) for entry in entries)
        if not entered and episode[-1].time_ms >= times[-1] - 1_000:
            result.undecided += 1
            continue
        result.predicted += 1
        if not entered:
            nearest = min(episode, key=_ahead_ms)
            late = _ahead_ms(nearest) <= LATEST_MS
            (result.false if late else result.withdrawn).append(nearest)
    return result


def _held_at(
    held: Iterable[Held], times: Iterable[int], entry: Entry, before_ms: int
) -> Blockage | None:
    """Return what was predicted of an entry so long before, at the last fix until then."""
    at_ms = max(time for time in times if time <= entry.time_ms - before_ms)
    for item in held:
        if item.time_ms == at_ms and item.blockage.obstruction_id == entry.obstruction_id:
            return item.blockage
    return None


def _ahead_ms(item: Held) -> int:
    return item.blockage.entry_ms - item.time_ms


def _episodes(held: Iterable[Held]) -> list[list[Held]]:
    """Group the predictions within 30 s of their entry, by obstruction and without silence."""
    open_episodes: dict[str | None, list[Held]] = {}
    episodes = []
    for item in held:
        if _ahead_ms(item) > AHEAD_MS:
            continue
        known = open_episodes.get(item.blockage.obstruction_id)
        if known is None or item.time_ms - known[-1].time_ms > _SILENCE_MS:
            known = []
            open_episodes[item.blockage.obstruction_id] = known
            episodes.append(known)
        known.append(item)
    return episodes


def _follows(entry: Entry, episode: Sequence[Held]) -> bool:
    return (
        entry.obstruction_id == episode[0].blockage.obstruction_id
        and episode[0].time_ms - 2_000 <= entry.time_ms <= episode[-1].time_ms + _GRACE_MS
    )
