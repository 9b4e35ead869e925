"""Rounding that keeps sums, by the largest remainder method."""

from __future__ import annotations

from collections.abc import Sequence


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
