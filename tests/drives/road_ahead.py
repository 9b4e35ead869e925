"""Predictions of the road ahead, compared with the entries that came.

A blockage is predicted with a confidence. It *came* if the vehicle entered that obstruction by a
minute after the predicted entry. An entry is *knowable* if a perfect matcher, which knows the
vehicle's road and the map's turn statistics, gives it a half or more 10 s before; a vehicle that is
then on a road that the map lacks cannot be matched.

In a few hundred drives, the share of predictions that come is a matter of chance. So each predicted
blockage also has its *chance*: the part of drivers on the vehicle's road who reach it, by the
choices from which the drives are made. It measures the same, exactly.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from dama.prediction import Blockage, Fix, ObstructionMap, Predictor
from dama.prediction.habits import Habits
from dama.prediction.network import Edge
from dama.prediction.places import Course, turn_deg
from tests.drives.drive import Drive
from tests.drives.evaluation import AHEAD_MS, LATEST_MS
from tests.drives.extract import Extract, round_of
from tests.drives.kinds import KnownDrive, again

# A blockage counts as predicted, and as certain, from these confidences on.
TOLD = 0.5
CERTAIN = 0.9
_GRACE_MS = 60_000
# Two entries into one obstruction that are so far apart are told separately.
_AGAIN_MS = 20_000
# A vehicle that is slower on the way is held up by a light, or in a jam.
_HELD_UP_MPS = 3.0
# How far a perfect matcher looks ahead, and the least branch that it follows.
_PERFECT_M = 1_000.0
_PERFECT_LEAST = 1e-3


@dataclass(frozen=True)
class _Entry:
    obstruction_id: str
    time_ms: int
    exit_ms: int
    # The last fix before it, in the open.
    last_fix_ms: int


class Told(NamedTuple):
    """A blockage that was told: how surely, whether it came, and what chance it had."""

    confidence: float
    came: bool
    chance: float


class Tenth(NamedTuple):
    """The blockages that were told within a tenth of confidence: means, and how many."""

    told: float
    came: float
    chance: float
    blockages: int


@dataclass
class Outcome:
    """What came of drives."""

    drives: int = 0
    entries: int = 0
    free_s: list[float] = field(default_factory=list)
    held_up_s: list[float] = field(default_factory=list)
    exits_s: list[float] = field(default_factory=list)
    # Where the true entries and exits were, of what was told: below, within, above.
    entered: Counter[str] = field(default_factory=Counter)
    left: Counter[str] = field(default_factory=Counter)
    untold: int = 0
    knowable: int = 0
    knowable_untold: int = 0
    # Blockages told 10 s before their entry, and 30 s before.
    told: list[Told] = field(default_factory=list)
    told_early: list[Told] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Count others in."""
        for name in ("drives", "entries", "untold", "knowable", "knowable_untold"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in ("free_s", "held_up_s", "exits_s", "told", "told_early"):
            getattr(self, name).extend(getattr(other, name))
        self.entered += other.entered
        self.left += other.left

    @staticmethod
    def within_percent(places: Counter[str]) -> float:
        """Return which part lay within what was told."""
        return 100.0 * places["within"] / places.total() if places else 0.0

    @property
    def errors_s(self) -> list[float]:
        """Errors of the entry, 30 s ahead, whether held up on the way or not."""
        return self.free_s + self.held_up_s

    def false_percent(self, least: float) -> float:
        """Return which part did not come of what was told with at least this confidence."""
        came = [one.came for one in self.told if one.confidence >= least]
        return 100.0 * came.count(False) / len(came) if came else 0.0

    def reliability(self) -> list[Tenth]:
        """Return what was told, and what came of it, by tenths of confidence."""
        return [
            Tenth(
                math.fsum(one.confidence for one in told) / len(told),
                sum(one.came for one in told) / len(told),
                math.fsum(one.chance for one in told) / len(told),
                len(told),
            )
            for told in self._tenths()
        ]

    def unreliability(self) -> float:
        """Return how far, on average, what came is from what was told, by tenths of confidence."""
        return self._mean((abs(one.told - one.came), one.blockages) for one in self.reliability())

    def unreliability_by_chance(self) -> float:
        """Return what the same would be on average if each came as probably as it was told.

        A few blockages never come exactly as often as predicted: this is the mean distance of a
        normal distribution with their variance.
        """
        return self._mean(
            (
                math.sqrt(math.fsum(one.confidence * (1.0 - one.confidence) for one in told))
                * math.sqrt(2.0 / math.pi)
                / len(told),
                len(told),
            )
            for told in self._tenths()
        )

    def miscalibration(self) -> float:
        """Return how far, on average, the chances are from what was told, by tenths."""
        return self._mean((abs(one.told - one.chance), one.blockages) for one in self.reliability())

    def _tenths(self) -> list[list[Told]]:
        tenths: defaultdict[int, list[Told]] = defaultdict(list)
        for one in self.told + self.told_early:
            tenths[min(int(one.confidence * 10), 9)].append(one)
        return [told for _, told in sorted(tenths.items())]

    @staticmethod
    def _mean(weighed: Iterable[tuple[float, int]]) -> float:
        values = list(weighed)
        total = sum(count for _, count in values)
        return math.fsum(value * count for value, count in values) / total if total else 0.0


def judge(
    extract: Extract, made: KnownDrive, *, with_route: bool = False, before: Sequence[Drive] = ()
) -> Outcome:
    """Predict along a drive, and compare with what came; the vehicle has made others before."""
    predictor = Predictor(made.known, route=made.route if with_route else None)
    predictor.habits = habits_of(made.known, before)
    entries = _entries(extract, made)
    told = [
        (fix.time_ms, predictor.blockages(fix.time_ms))
        for fix in made.drive.fixes
        if predictor.feed(fix)
    ]
    result = Outcome(drives=1)
    begins_ms = told[0][0]
    times = [time for time, _ in told]
    for entry in entries:
        if entry.last_fix_ms - AHEAD_MS < begins_ms:
            continue
        result.entries += 1
        early = _told_of(entry, entries, told, times, entry.last_fix_ms - AHEAD_MS)
        if early is not None and early.confidence >= TOLD:
            result.entered[_place(entry.time_ms, early.entry_within_ms)] += 1
            error = abs(early.entry_ms - entry.time_ms) / 1000.0
            held_up = _is_held_up(made.drive.fixes, entry.last_fix_ms)
            (result.held_up_s if held_up else result.free_s).append(error)
            # The exit is judged by the prediction at the portal, where the last fix is.
            last = _told_of(entry, entries, told, times, entry.last_fix_ms)
            if last is not None:
                result.exits_s.append(abs(last.exit_ms - entry.exit_ms) / 1000.0)
                result.left[_place(entry.exit_ms, last.exit_within_ms)] += 1
        late = _told_of(entry, entries, told, times, entry.last_fix_ms - LATEST_MS)
        untold = late is None or late.confidence < TOLD
        knowable = _perfect(extract, made, entry, entry.last_fix_ms - LATEST_MS) >= TOLD
        result.untold += untold
        result.knowable += knowable
        result.knowable_untold += untold and knowable

    def samples(ahead_ms: int) -> list[Told]:
        return [
            Told(blockage.confidence, came, _chance_of(extract, made, blockage, now_ms))
            for now_ms, blockage, came in _samples(told, entries, ahead_ms)
        ]

    result.told, result.told_early = samples(LATEST_MS), samples(AHEAD_MS)
    return result


def habits_of(known: ObstructionMap, drives: Iterable[Drive]) -> Habits:
    """Return what a predictor remembers of drives."""
    habits = Habits()
    for drive in drives:
        predictor = Predictor(known, habits=habits)
        for fix in drive.fixes:
            predictor.feed(fix)
        predictor.end_drive()
        habits = predictor.habits
    return habits


def _entries(extract: Extract, made: KnownDrive) -> list[_Entry]:
    covers = {edge.way.id: extract.cover(edge) for edge in made.edges if extract.cover(edge)}
    found: list[_Entry] = []
    for stay in made.drive.covered:
        cover = covers.get(stay.way_id)
        if cover is None:
            continue
        entry = _Entry(cover, stay.entry_ms, stay.exit_ms, stay.last_fix_ms)
        before = found[-1] if found else None
        if before and (before.obstruction_id, before.last_fix_ms) == (cover, stay.last_fix_ms):
            # No fix came in the gap, so it is observed as one passage.
            found[-1] = replace(before, exit_ms=stay.exit_ms)
        else:
            found.append(entry)
    return found


def _told_of(
    entry: _Entry,
    entries: Sequence[_Entry],
    told: Sequence[tuple[int, tuple[Blockage, ...]]],
    times: Sequence[int],
    at_ms: int,
) -> Blockage | None:
    """Return what was told of an entry: of several into one obstruction, in their order."""
    place = bisect_right(times, at_ms) - 1
    if place < 0:
        return None
    now_ms, blockages = told[place]
    of = [one for one in blockages if one.obstruction_id == entry.obstruction_id]
    others = [other for other in entries if other.obstruction_id == entry.obstruction_id]
    before = sum(now_ms < other.time_ms < entry.time_ms for other in others)
    if of and of[0].entry_ms <= now_ms:
        before += any(other.time_ms <= now_ms < other.exit_ms for other in others)
    return of[before] if before < len(of) else None


def _place(moment_ms: int, told_ms: tuple[int, int] | None) -> str:
    """Return where a moment lies, of an interval that was told."""
    if told_ms is None:
        return "untold"
    return "below" if moment_ms < told_ms[0] else "above" if moment_ms > told_ms[1] else "within"


def _is_held_up(fixes: Iterable[Fix], last_ms: int) -> bool:
    return any(
        last_ms - AHEAD_MS <= fix.time_ms <= last_ms and (fix.speed_mps or 0.0) < _HELD_UP_MPS
        for fix in fixes
    )


def _samples(
    told: Sequence[tuple[int, tuple[Blockage, ...]]], entries: Sequence[_Entry], ahead_ms: int
) -> Iterator[tuple[int, Blockage, bool]]:
    """Yield each blockage once, as it is told when its entry is first so near ahead.

    Before it comes when that is, behind it whether it came.
    """
    ends_ms = told[-1][0]
    near: dict[tuple[str | None, int], int] = {}
    for now_ms, blockages in told:
        passed: Counter[str | None] = Counter()
        for blockage in blockages:
            name = blockage.obstruction_id
            which = name, passed[name]
            passed[name] += 1
            if not 0 <= blockage.entry_ms - now_ms <= ahead_ms:
                continue
            before = near.get(which)
            near[which] = now_ms
            if before is not None and now_ms - before < _AGAIN_MS:
                continue
            until_ms = blockage.entry_ms + _GRACE_MS
            come = [
                entry
                for entry in entries
                if entry.obstruction_id == name
                and entry.exit_ms > now_ms - 2_000
                and entry.time_ms <= until_ms
            ]
            came = len(come) > which[1]
            # What is open when the drive ends is not known to be false.
            if came or ends_ms > blockage.entry_ms + LATEST_MS:
                yield now_ms, blockage, came


def _perfect(extract: Extract, made: KnownDrive, entry: _Entry, at_ms: int) -> float:
    """Return the probability of an entry for a matcher that knows where the vehicle is."""
    edge = _edge_at(made, _fix_at(made, at_ms))
    if edge.id not in made.known:
        return 0.0
    return _chance(
        extract, [edge], entry.obstruction_id, lambda driven: extract.network.onward(driven[-1])
    )


def _chance_of(extract: Extract, made: KnownDrive, blockage: Blockage, at_ms: int) -> float:
    """Return which part of the drivers who are where the vehicle is come to a blockage."""
    edge = _edge_at(made, _fix_at(made, at_ms))
    driven = made.edges[: made.edges.index(edge) + 1]
    return _chance(extract, driven, blockage.obstruction_id, extract.shares)


def _fix_at(made: KnownDrive, at_ms: int) -> Fix:
    """Return the last fix until then, or else the first."""
    fixes = made.drive.fixes
    return fixes[max(bisect_right(fixes, at_ms, key=lambda fix: fix.time_ms) - 1, 0)]


def _chance(
    extract: Extract,
    driven: Sequence[Edge],
    obstruction_id: str | None,
    onward: Callable[[Sequence[Edge]], Iterable[tuple[Edge, float]]],
) -> float:
    """Return how probably an obstruction is come to on a drive, by what goes on to what."""
    total, todo = 0.0, [(tuple(driven), 0.0, 1.0)]
    while todo:
        ways, done_m, probability = todo.pop()
        here = ways[-1]
        if extract.cover(here) == obstruction_id:
            total += probability
            continue
        if done_m > _PERFECT_M:
            continue
        for step, part in onward(ways):
            if probability * part >= _PERFECT_LEAST:
                # What lies before a roundabout makes no difference behind it.
                since = ways if round_of(ways) else ()
                todo.append(((*since, step), done_m + here.length_m, probability * part))
    return total


def _edge_at(made: KnownDrive, fix: Fix) -> Edge:
    """Return the edge of the drive that a fix was made on: the nearest one in its direction."""

    def away(edge: Edge) -> float:
        foot = Course(edge.line).foot(fix.place, 0, len(edge.line) - 1)
        turned = 0.0 if fix.heading_deg is None else turn_deg(foot.heading_deg, fix.heading_deg)
        return foot.lateral_m + turned

    return min(made.edges, key=away)


def judge_all(
    extract: Extract,
    drives: Iterable[KnownDrive],
    *,
    with_route: bool = False,
    driven_before: int = 0,
) -> dict[str, Outcome]:
    """Judge drives, by their kinds and, under an empty name, all together.

    Each was driven before so many times, over the same roads.
    """
    found: dict[str, Outcome] = {"": Outcome()}
    for made in drives:
        before = [again(extract, made, number) for number in range(driven_before)]
        outcome = judge(extract, made, with_route=with_route, before=before)
        found.setdefault(made.kind.removesuffix(" again"), Outcome()).add(outcome)
        found[""].add(outcome)
    return found
