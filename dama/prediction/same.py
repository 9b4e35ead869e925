"""Whether two accounts speak of the same blockage: the one place where that is decided."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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


def is_same_passage(one: Span, other: Span) -> bool:
    """Tell whether two accounts that go back to the same prediction are of the same blockage.

    Other than `is_same`, it tells the passages of one obstruction apart: their times are as they
    were predicted together.
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
    """Tell which of the known blockages of a terminal each of those said now is, by their places.

    Each is one other at most. The passages of one obstruction stay in their order, whatever holds
    the vehicle up: of those that may be the same (see `is_same`), as many as can be are matched,
    the nearest ones where some are left over. Those that only times speak for come after them.
    """
    if len(known) < 2 and len(said) < 2:
        # Most have one ahead, each second.
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


def _in_order(
    ours: Sequence[int], theirs: Sequence[int], apart: Callable[[int, int], float | None]
) -> Iterator[tuple[int, int]]:
    """Yield pairs in the order of both: as many as can be, and of those the nearest together.

    `apart` tells how far two are, None where they are no pair.
    """
    # The best that can be made of what is behind two places: how many pairs, and how far apart.
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
