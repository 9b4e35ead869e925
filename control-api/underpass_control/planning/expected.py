"""The blockages to plan with: predictions, smoothed.

Each fix of a vehicle moves its predictions by fractions of a second, or by seconds. Planning with
each newest prediction would mean a new plan each second; keeping the first would be wrong. So
entries, exits and confidences follow a running mean of some seconds, except that a leap is followed
at once. Plans do not use the medians: see `_to_plan`.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from dama.planner.request import LEAST_CONFIDENCE
from dama.prediction import Blockage, Span
from dama.prediction.same import EXPECTED_MS, is_same, matched

# The time constant of the running mean, and the largest differences from it that count as noise.
_MEAN_MS = 4_000
_LEAP_MS = 2_500
_CONFIDENCE_LEAP = 0.3
# A prediction is used in plans until it has been missing for longer than this.
_MISSING_MS = 1_500
# A blockage stays in plans until its confidence falls below this.
_KEPT_CONFIDENCE = LEAST_CONFIDENCE - 0.1
# How much entry and exit may differ from the plan's: in proportion to the time left to correct it,
# within bounds.
_TOLERATED_PART = 0.02
_LEAST_TOLERATED_MS = 750
_MOST_TOLERATED_MS = 5_000
_TOLERATED_CONFIDENCE = 0.15


@dataclass(frozen=True, slots=True)
class Expected:
    """A blockage as it is planned with, at the antenna."""

    terminal: int
    entry_ms: int
    exit_ms: int
    confidence: float
    is_lent_for: bool = True

    @property
    def span(self) -> Span:
        """The values by which it is compared with other blockages."""
        return Span(None, self.entry_ms, self.exit_ms)


@dataclass(slots=True)
class SmoothedBlockage:
    """One expected blockage of a terminal, smoothed over the predictions of it."""

    obstruction_id: str | None
    entry_ms: float
    exit_ms: float
    confidence: float
    # When it was first expected.
    first_ms: int
    updated_ms: int
    seen_ms: int

    def follow(self, said: Blockage, now_ms: int) -> None:
        """Take in the latest prediction."""
        part = 1 - math.exp(-max(0, now_ms - self.updated_ms) / _MEAN_MS)
        self.updated_ms = self.seen_ms = now_ms
        self.obstruction_id = said.obstruction_id or self.obstruction_id
        entry_ms, exit_ms = _to_plan(said, now_ms)
        self.entry_ms = _followed(self.entry_ms, entry_ms, part)
        self.exit_ms = _followed(self.exit_ms, exit_ms, part)
        if abs(said.confidence - self.confidence) > _CONFIDENCE_LEAP:
            part = 1.0
        self.confidence += (said.confidence - self.confidence) * part

    @property
    def span(self) -> Span:
        """What is compared to tell whether another is the same blockage."""
        return Span(self.obstruction_id, self.entry_ms, self.exit_ms)


class Expectations:
    """The expected blockages of a beam's terminals."""

    def __init__(self) -> None:
        self._of: dict[int, list[SmoothedBlockage]] = {}

    def take(self, terminal: int, said: Iterable[Blockage], now_ms: int) -> bool:
        """Take in all that is predicted of a terminal now.

        Tell whether to look at it again: a blockage is expected, or was a moment ago.
        """
        known, said = self._of.get(terminal, []), list(said)
        same = matched([one.span for one in known], [one.span for one in said], now_ms)
        followed = set(same.values())
        kept: list[SmoothedBlockage] = []
        for place, blockage in enumerate(said):
            if place in same:
                known[same[place]].follow(blockage, now_ms)
                kept.append(known[same[place]])
            else:
                kept.append(
                    SmoothedBlockage(
                        blockage.obstruction_id,
                        *_to_plan(blockage, now_ms),
                        blockage.confidence,
                        now_ms,
                        now_ms,
                        now_ms,
                    )
                )
        # A present blockage that is no longer predicted is over.
        kept += [
            one
            for place, one in enumerate(known)
            if place not in followed
            and one.entry_ms > now_ms
            # The difference is negative if the clock was set back.
            and abs(now_ms - one.seen_ms) <= _MISSING_MS
        ]
        if kept:
            self._of[terminal] = kept
        else:
            self._of.pop(terminal, None)
        return bool(kept)

    def recall(self, terminal: int, said: Blockage, first_ms: int, now_ms: int) -> None:
        """Take in a blockage that another process has expected since `first_ms`."""
        times = _to_plan(said, now_ms)
        known = SmoothedBlockage(
            said.obstruction_id, *times, said.confidence, first_ms, now_ms, now_ms
        )
        self._of.setdefault(terminal, []).append(known)

    def forget(self, terminal: int) -> None:
        """Forget a terminal that has left the beam."""
        self._of.pop(terminal, None)

    def blockages(
        self, now_ms: int, planned: Planned, frozen_ms: int | None = None
    ) -> list[Expected]:
        """Return the blockages to plan with, given those of the present plan.

        Nothing is lent for those first expected at `frozen_ms` or later.
        """
        found = []
        for terminal, blockages in self._of.items():
            for one in blockages:
                if one.exit_ms <= now_ms or one.confidence < _KEPT_CONFIDENCE:
                    continue
                if (
                    one.confidence < LEAST_CONFIDENCE
                    and planned.nearest(terminal, one.span, now_ms) is None
                ):
                    continue
                confidence = min(1.0, max(one.confidence, LEAST_CONFIDENCE))
                times = round(one.entry_ms), round(one.exit_ms)
                is_lent_for = frozen_ms is None or one.first_ms < frozen_ms
                found.append(Expected(terminal, *times, confidence, is_lent_for))
        return found


class _OfTerminal:
    """The blockages that a terminal's plan was made with, in order of their entries."""

    def __init__(self, blockages: Iterable[Expected]) -> None:
        self.all = sorted(blockages, key=lambda one: one.entry_ms)
        self._spans = [one.span for one in self.all]
        self._entries = [one.entry_ms for one in self.all]
        # The last exit of each and all before it.
        self._exits = list(itertools.accumulate((one.exit_ms for one in self.all), max))

    def same(self, span: Span, now_ms: int) -> list[int]:
        """Return the places of those that may be the same, comparing few others."""
        # They have no names, so `is_same` requires that they overlap or begin together.
        first = min(
            bisect_left(self._entries, span.entry_ms - EXPECTED_MS),
            bisect_right(self._exits, span.entry_ms),
        )
        behind = bisect_right(self._entries, max(span.exit_ms, span.entry_ms + EXPECTED_MS))
        return [
            place for place in range(first, behind) if is_same(self._spans[place], span, now_ms)
        ]


class Planned:
    """The blockages that the present plan of a link was made with."""

    def __init__(self, blockages: Iterable[Expected] = ()) -> None:
        by_terminal: dict[int, list[Expected]] = {}
        for one in blockages:
            by_terminal.setdefault(one.terminal, []).append(one)
        self._of = {terminal: _OfTerminal(ones) for terminal, ones in by_terminal.items()}

    def nearest(self, terminal: int, span: Span, now_ms: int) -> Expected | None:
        """Return the one that is a terminal's blockage at about that time."""
        of = self._of.get(terminal)
        if of is None:
            return None
        near = (of.all[place] for place in of.same(span, now_ms))
        return min(near, key=lambda one: abs(one.entry_ms - span.entry_ms), default=None)

    def appeared_or_vanished(self, now: Iterable[Expected], now_ms: int) -> bool:
        """Return whether a blockage is new, or one of the plan is gone."""
        left = {
            terminal: {place for place, one in enumerate(of.all) if one.exit_ms > now_ms}
            for terminal, of in self._of.items()
        }
        for one in sorted(now, key=lambda one: one.entry_ms):
            of = self._of.get(one.terminal)
            if of is None:
                return True
            same = of.same(one.span, now_ms)
            # Short blockages follow each other closely: each needs its own one in the plan.
            free = [place for place in same if place in left[one.terminal]]
            if free:
                nearest = min(free, key=lambda place: abs(of.all[place].entry_ms - one.entry_ms))
                left[one.terminal].remove(nearest)
            elif all(of.all[place].exit_ms > now_ms for place in same):
                return True
        return any(left.values())

    def moved(self, now: Iterable[Expected], now_ms: int) -> bool:
        """Return whether a blockage has moved by more than the tolerance."""
        for one in now:
            known = self.nearest(one.terminal, one.span, now_ms)
            if known is None:
                continue
            if _apart(known.entry_ms, one.entry_ms, now_ms):
                return True
            if _apart(known.exit_ms, one.exit_ms, now_ms):
                return True
            if abs(known.confidence - one.confidence) > _TOLERATED_CONFIDENCE:
                return True
        return False


def _apart(planned_ms: int, expected_ms: int, now_ms: int) -> bool:
    # Times in the past make no difference.
    planned_ms, expected_ms = max(planned_ms, now_ms), max(expected_ms, now_ms)
    ahead_ms = min(planned_ms, expected_ms) - now_ms
    tolerated = min(max(_TOLERATED_PART * ahead_ms, _LEAST_TOLERATED_MS), _MOST_TOLERATED_MS)
    return abs(planned_ms - expected_ms) > tolerated


def _to_plan(said: Blockage, now_ms: int) -> tuple[int, int]:
    """Return the entry and the exit to plan with: an early entry and a late exit.

    If the vehicle is blocked outside of the planned blockage, bits are lost. If it has line of
    sight inside of it, bits only come later: the ledger has them repaid. So entry and exit are the
    quantiles at which both errors cost the same (the newsvendor's critical ratio, Arrow, Harris and
    Marschak 1951): the 0.1 and 0.9 quantiles of the prediction, if a lost bit costs as much as nine
    late ones.

    A delay on the way moves entry and exit together. So until the entry the planned duration is the
    one from the latest entry to the latest exit; and the planned entry is at most that long before
    the median one, so that a short shadow does not cost a long wait.
    """
    if said.entry_within_ms is None or said.exit_within_ms is None:
        return said.entry_ms, said.exit_ms
    earliest_ms, latest_entry_ms = said.entry_within_ms
    latest_exit_ms = said.exit_within_ms[1]
    lasting_ms = max(said.exit_ms - said.entry_ms, latest_exit_ms - latest_entry_ms)
    entry_ms = max(earliest_ms, said.entry_ms - lasting_ms)
    if entry_ms <= now_ms:
        return entry_ms, max(latest_exit_ms, said.exit_ms)
    return entry_ms, max(entry_ms + lasting_ms, said.exit_ms)


def _followed(mean_ms: float, said_ms: int, part: float) -> float:
    if abs(said_ms - mean_ms) > _LEAP_MS:
        return float(said_ms)
    return mean_ms + (said_ms - mean_ms) * part
