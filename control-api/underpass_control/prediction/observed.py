"""The effect of an observed blockage on the expected ones, while it lasts and after."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dama.prediction import Blockage
from dama.prediction.predictor import LOST_FACTOR, OVERDUE
from dama.prediction.same import has_begun, is_told_again


@dataclass(frozen=True, slots=True)
class ObservedBlockage:
    """An observed blockage of a terminal; `exit_ms` is None while it lasts.

    `expected` is the expected blockage that it was recognised as.
    """

    entry_ms: int
    exit_ms: int | None = None
    expected: Blockage | None = None

    def overlaps(self, begin_ms: int, end_ms: int) -> bool:
        """Return whether it overlaps an interval."""
        return self.entry_ms < end_ms and (self.exit_ms is None or begin_ms < self.exit_ms)


def recognise(entry_ms: int, expected: Iterable[Blockage]) -> Blockage | None:
    """Return which of the expected blockages has begun."""
    near = [one for one in expected if has_begun(one.span, entry_ms)]
    return min(near, key=lambda one: abs(one.entry_ms - entry_ms), default=None)


def as_observed(
    expected: tuple[Blockage, ...], observed: ObservedBlockage | None, now_ms: int
) -> tuple[Blockage, ...]:
    """Return the expected blockages, corrected by the observed one.

    While a blockage lasts, it has its observed entry and its expected duration. Once it is over, it
    is no longer expected.
    """
    if observed is None:
        return expected
    others = _of_others(expected, observed)
    if observed.exit_ms is not None:
        return tuple(one for one in others if one.entry_ms >= observed.exit_ms)
    begun = observed.expected
    others = tuple(one for one in others if one.exit_ms > now_ms)
    present = None if begun is None else _present(begun, observed.entry_ms, now_ms)
    return others if present is None else (present, *others)


def _of_others(expected: tuple[Blockage, ...], observed: ObservedBlockage) -> tuple[Blockage, ...]:
    """Return the expectations that are not of the observed blockage.

    Of several passages of one obstruction, only the next one can be the observed one.
    """
    name = observed.expected and observed.expected.obstruction_id
    next_one = next((one for one in expected if name and one.obstruction_id == name), None)
    return tuple(
        one
        for one in expected
        if not _is_of(one, observed)
        or (next_one is not None and one.obstruction_id == name and one is not next_one)
    )


def _is_of(one: Blockage, observed: ObservedBlockage) -> bool:
    """Tell whether an expectation may be of the observed blockage."""
    begun, over_ms = observed.expected, observed.exit_ms
    if over_ms is None and has_begun(one.span, observed.entry_ms):
        return True
    if begun is None or not is_told_again(one.span, one.based_on_ms, begun.span):
        return False
    if over_ms is None:
        return True
    # A much shorter loss may have been a different one, before the expected blockage.
    lasting_ms = begun.exit_ms - begun.entry_ms
    return one.based_on_ms < over_ms and 2 * (over_ms - observed.entry_ms) >= lasting_ms


def _present(begun: Blockage, entry_ms: int, now_ms: int) -> Blockage | None:
    lasting_ms = begun.exit_ms - begun.entry_ms
    blocked_ms = now_ms - entry_ms
    if blocked_ms > LOST_FACTOR * lasting_ms + 60_000:
        return None
    exit_ms = entry_ms + max(lasting_ms, round((1 + OVERDUE) * blocked_ms))
    within = begun.exit_within_ms
    if within is not None:
        later_ms = exit_ms - begun.exit_ms
        within = max(within[0] + later_ms, now_ms), max(within[1] + later_ms, now_ms)
    return replace(
        begun,
        entry_ms=entry_ms,
        exit_ms=exit_ms,
        confidence=1.0,
        entry_within_ms=(entry_ms, entry_ms),
        exit_within_ms=within,
    )
