"""Whether two accounts speak of the same blockage: the one place where that is decided."""

from __future__ import annotations

from typing import NamedTuple

# Two that are expected at the same moment have entries at most so far apart.
EXPECTED_MS = 10_000
# An observed entry and the expected one are at most so far apart.
OBSERVED_MS = 30_000
# What a terminal announces itself may be off by this part of the time to the entry.
_ANNOUNCED_PART = 0.25


class Span(NamedTuple):
    """What an account says: by which obstruction, if that is known, from when until when.

    Times are UTC in milliseconds since 1970.
    """

    obstruction_id: str | None
    entry_ms: float
    exit_ms: float


def is_same(one: Span, other: Span, now_ms: int, *, within_ms: float = EXPECTED_MS) -> bool:
    """Tell whether two expectations of a terminal are of the same blockage.

    Those that name different obstructions never are. Those that name the same one are while both
    are ahead, however long the vehicle is held up on its way; once one has begun, the other may be
    of the way back. All others go by time: they are if they overlap, or if their entries are no
    further apart than `within_ms`.
    """
    if one.obstruction_id is not None and other.obstruction_id is not None:
        if one.obstruction_id != other.obstruction_id:
            return False
        if one.entry_ms > now_ms and other.entry_ms > now_ms:
            return True
    return _at_the_same_time(one, other, within_ms)


def is_announced(said: Span, other: Span, now_ms: int) -> bool:
    """Tell whether what a terminal announces is another account's blockage."""
    ahead_ms = min(said.entry_ms, other.entry_ms) - now_ms
    return is_same(said, other, now_ms, within_ms=max(EXPECTED_MS, _ANNOUNCED_PART * ahead_ms))


def has_begun(expected: Span, entry_ms: int) -> bool:
    """Tell whether what was observed to begin at a time is what was expected."""
    return _at_the_same_time(expected, Span(None, entry_ms, entry_ms + 1), OBSERVED_MS)


def is_told_again(one: Span, based_on_ms: int, begun: Span) -> bool:
    """Tell whether an expectation is of a blockage that is known to have begun.

    `based_on_ms` is what the expectation goes back to: of the same obstruction, what is later than
    the exit is of another passage.
    """
    if one.obstruction_id is not None and begun.obstruction_id is not None:
        return one.obstruction_id == begun.obstruction_id and based_on_ms <= begun.exit_ms
    return has_begun(begun, round(one.entry_ms))


def _at_the_same_time(one: Span, other: Span, within_ms: float) -> bool:
    if one.entry_ms < other.exit_ms and other.entry_ms < one.exit_ms:
        return True
    return abs(one.entry_ms - other.entry_ms) <= within_ms
