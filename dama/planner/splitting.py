"""How the members of a row share its bits, exactly up to any time."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import numpy as np

from dama.planner.intervals import Integers


def equal_parts(bits: Integers, count: int, first: int, last: int) -> Integers:
    """Return the bits per column of the members at places first to last - 1 of `count` equal ones.

    Member p has (all bits + p) // count up to any time, so sums are exact in every column and
    members never differ by more than a bit.
    """
    until = np.concatenate(([0], np.cumsum(bits)))
    rest = until % count
    shared = (last - first) * (until // count) + np.maximum(
        0, last - np.maximum(first, count - rest)
    )
    parts: Integers = shared[1:] - shared[:-1]
    return parts


def entitled_parts(bits: Integers, entitlements: Sequence[int], place: int) -> Integers:
    """Return the bits per column of one member, in proportion to its entitlement."""
    whole = sum(entitlements)
    before = sum(entitlements[:place])
    after = before + entitlements[place]
    until = itertools.accumulate(bits.tolist(), initial=0)
    parts = [amount * after // whole - amount * before // whole for amount in until]
    return np.array([late - early for early, late in itertools.pairwise(parts)], dtype=np.int64)


def equal_until(bits: int, count: int, first: int, last: int) -> int:
    """Return the part of these members in the bits up to one time, as `equal_parts` splits them."""
    each, rest = divmod(bits, count)
    return (last - first) * each + max(0, last - max(first, count - rest))


def equal_at(bits: int, count: int) -> list[int]:
    """Return the part of each of `count` equal members in the bits up to one time."""
    parts: list[int] = ((bits + np.arange(count, dtype=np.int64)) // count).tolist()
    return parts


def entitled_at(bits: int, entitlements: Sequence[int]) -> list[int]:
    """Return each member's part in the bits up to one time, in proportion to entitlements."""
    whole = sum(entitlements)
    until = [bits * part // whole for part in itertools.accumulate(entitlements, initial=0)]
    return [late - early for early, late in itertools.pairwise(until)]
