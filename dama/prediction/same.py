"""The one place that decides whether two accounts speak of the same blockage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

# Two expectations made at the same time agree if their entries are at most this far apart.
EXPECTED_MS = 10_000
# An observed entry matches an expected one that is at most this far away.
OBSERVED_MS = 30_000
# The entry that a terminal announces may be off by this part of the time to it.
_ANNOUNCED_PART = 0.25


class Span(NamedTuple):
    """What an account says of a blockage: its obstruction, if known, its entry and its exit.

    Times are UTC in milliseconds since 1970.
    """

    obstruction_id: str | None
    entry_ms: float
    exit_ms: float


def is_same(one: Span, other: Span, now_ms: int, *, within_ms: float = EXPECTED_MS) -> bool:
    """Tell whether two expectations of a terminal are of the same blockage.

    Expectations that name different obstructions never are. Two that name the same obstruction are
    while both are ahead, however long the vehicle is held up; once one has begun, the other may be
    for the way back. All others are compared by time: they are the same if they overlap, or if
    their entries are no further apart than `within_ms`.
    """
    if one.obstruction_id is not None and other.obstruction_id is not None:
        if one.obstruction_id != other.obstruction_id:
            return False
        if one.entry_ms > now_ms and other.entry_ms > now_ms:
            return True
    return _at_the_same_time(one, other, within_ms)


def is_same_passage(one: Span, other: Span) -> bool:
    """Tell whether two accounts that go back to the same prediction are of the same blockage.

    Unlike `is_same`, it tells the passages of one obstruction apart, by their times: both accounts
    have these from one prediction.
    """
    if one.obstruction_id != other.obstruction_id and None not in (
        one.obstruction_id,
        other.obstruction_id,
    ):
        return False
    return _at_the_same_time(one, other, EXPECTED_MS)


def matched(
    known: Sequence[Span], said: Sequence[Span], now_ms: int, *, within_ms: float = EXPECTED_MS
) -> dict[int, int]:
    """Match the blockages said now to a terminal's known ones; return known indices by said ones.

    Each is matched once at most. The passages of one obstruction keep their order, however the
    vehicle is delayed: of those that may be the same (see `is_same`), as many pairs as possible are
    made, and of these choices the one with the nearest times. Blockages that only their times can
    match come after them.
    """
    if len(known) < 2 and len(said) < 2:
        # The usual case, which comes each second: one blockage ahead.
        one = known and said and is_same(known[0], said[0], now_ms, within_ms=within_ms)
        return {0: 0} if one else {}
    found: dict[int, int] = {}
    by_name: dict[str, tuple[list[int], list[int]]] = {}
    for side, spans in enumerate((known, said)):
        for place in sorted(range(len(spans)), key=lambda place: spans[place].entry_ms):
            name = spans[place].obstruction_id
            if name is not None:
                by_name.setdefault(name, ([], []))[side].append(place)

    def same(one: int, other: int) -> bool:
        return is_same(known[one], said[other], now_ms, within_ms=within_ms)

    for ours, theirs in by_name.values():
        found |= {
            other: one
            for one, other in _in_order(
                ours,
                theirs,
                lambda one, other: (
                    abs(known[one].entry_ms - said[other].entry_ms) if same(one, other) else None
                ),
            )
        }
    left = sorted(set(range(len(known))) - set(found.values()))
    for other in sorted(range(len(said)), key=lambda place: said[place].entry_ms):
        near = [one for one in left if other not in found and same(one, other)]
        if near:
            nearest = min(near, key=lambda one: abs(known[one].entry_ms - said[other].entry_ms))
            left.remove(nearest)
            found[other] = nearest
    return found


def is_announced(said: Span, other: Span, now_ms: int) -> bool:
    """Tell whether what a terminal announces is another account's blockage."""
    ahead_ms = min(said.entry_ms, other.entry_ms) - now_ms
    return is_same(said, other, now_ms, within_ms=max(EXPECTED_MS, _ANNOUNCED_PART * ahead_ms))


def has_begun(expected: Span, entry_ms: int) -> bool:
    """Tell whether a blockage observed to begin at this time is the expected one."""
    return _at_the_same_time(expected, Span(None, entry_ms, entry_ms + 1), OBSERVED_MS)


def is_told_again(one: Span, based_on_ms: int, begun: Span) -> bool:
    """Tell whether an expectation is of a blockage that is known to have begun.

    `based_on_ms` is the time of the fix or announcement that the expectation goes back to. If that
    is later than the exit, an expectation of the same obstruction is of another passage.
    """
    if one.obstruction_id is not None and begun.obstruction_id is not None:
        return one.obstruction_id == begun.obstruction_id and based_on_ms <= begun.exit_ms
    return has_begun(begun, round(one.entry_ms))


def _in_order(
    ours: Sequence[int], theirs: Sequence[int], apart: Callable[[int, int], float | None]
) -> Iterator[tuple[int, int]]:
    """Yield pairs in the order of both: as many as possible, with the least distance in all.

    `apart` gives the distance of two, None where they cannot be a pair.
    """
    # By two places: the most pairs that can be made from there on, and minus their distances.
    best = [[(0, 0.0)] * (len(theirs) + 1) for _ in range(len(ours) + 1)]
    for n in reversed(range(len(ours))):
        for m in reversed(range(len(theirs))):
            best[n][m] = max(best[n + 1][m], best[n][m + 1])
            away = apart(ours[n], theirs[m])
            if away is not None:
                count, minus = best[n + 1][m + 1]
                best[n][m] = max(best[n][m], (count + 1, minus - away))
    n = m = 0
    while n < len(ours) and m < len(theirs):
        if best[n][m] == best[n + 1][m]:
            n += 1
        elif best[n][m] == best[n][m + 1]:
            m += 1
        else:
            yield ours[n], theirs[m]
            n, m = n + 1, m + 1


def _at_the_same_time(one: Span, other: Span, within_ms: float) -> bool:
    if one.entry_ms < other.exit_ms and other.entry_ms < one.exit_ms:
        return True
    return abs(one.entry_ms - other.entry_ms) <= within_ms
