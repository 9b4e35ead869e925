"""Rounding that keeps sums: the largest remainder method, and an exact split of counters."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction


def largest_remainder(parts: Sequence[Fraction], total: int) -> list[int]:
    """Round non-negative parts to integers that sum to `total`.

    Each becomes the integer below it, and the largest remainders (of equal ones the first) are
    rounded up until the sum is right, so every part is within 1 of what it was.

    Raises:
        ValueError: if the parts cannot sum to `total` with each within 1 of what it was.
    """
    rounded = [part.numerator // part.denominator for part in parts]
    missing = total - sum(rounded)
    if not 0 <= missing <= len(parts):
        raise ValueError(f"{len(parts)} parts cannot be rounded to a sum of {total}")
    by_remainder = sorted(
        range(len(parts)), key=lambda place: (rounded[place] - parts[place], place)
    )
    for place in by_remainder[:missing]:
        rounded[place] += 1
    return rounded


def apportion(amounts: Sequence[int], total: int) -> list[int]:
    """Share `total` in proportion to non-negative integer amounts, at most each amount.

    Raises:
        ValueError: if `total` is negative or more than the amounts together.
    """
    whole = sum(amounts)
    if not 0 <= total <= whole:
        raise ValueError(f"{total} cannot be taken from {whole}")
    if total == whole:
        return list(amounts)
    shared = [amount * total // whole for amount in amounts]
    remainders = [(-(amount * total % whole), place) for place, amount in enumerate(amounts)]
    for _, place in sorted(remainders)[: total - sum(shared)]:
        shared[place] += 1
    return shared
