"""Least and greatest bits per interval of a class's members, alone and together."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dama.planner.classes import Class
from dama.planner.intervals import MS_PER_S, Integers
from dama.planner.request import MOST_BITS

# Members of different balances share a row only if their bounds leave this part of a fair share
# free on both sides.
_ROOM = 0.05


class Bounds:
    """The least and the greatest bits per column of a class's members."""

    def __init__(self, group: Class, times: Sequence[int], capacity: Integers) -> None:
        terms = group.terms
        bounds = np.array(times, dtype=np.int64)
        durations: Integers = bounds[1:] - bounds[:-1]
        self._members = terms.members
        self._capacity = capacity
        self._least = _bits(terms.least_bps, durations)
        self._greatest = capacity
        if terms.greatest_bps is not None:
            self._greatest = np.minimum(_bits(terms.greatest_bps, durations), capacity)

    def of(self, fair: Integers, members: int) -> tuple[Integers, Integers]:
        """Return the bounds of this many members; they always include the fair share."""
        least = _together(self._least, members, fair)
        return least, np.maximum(_together(self._greatest, members, self._capacity), fair)

    def apart(self, fair: Integers) -> bool:
        """Tell whether the class's fair share leaves its members some room on both sides.

        If so, members that get slightly different amounts stay within their bounds.
        """
        own = fair[fair > 0] / self._members
        least, greatest = self._least[fair > 0], self._greatest[fair > 0]
        return bool((least < own * (1 - _ROOM)).all() and (greatest > own * (1 + _ROOM)).all())

    def of_unequal(self, fair: Integers, entitlements: Sequence[int]) -> tuple[Integers, Integers]:
        """Return the bounds of members that split in proportion to their entitlements.

        The bounds of the most and of the least entitled member limit the row. A split is exact to
        one bit up to any time, so to two bits within an interval.
        """
        whole, most, fewest = sum(entitlements), max(entitlements), min(entitlements)
        least = [-(-(bits + 2) * whole // fewest) for bits in self._least.tolist()]
        greatest = [max(bits - 2, 0) * whole // most for bits in self._greatest.tolist()]
        return (
            np.minimum(np.array(least, dtype=np.int64), fair),
            np.maximum(np.minimum(np.array(greatest, dtype=np.int64), self._capacity), fair),
        )


def _together(bits: Integers, members: int, most: Integers) -> Integers:
    """Return the bits of this many members, at most `most`; more might overflow."""
    return np.where(bits > most // members, most, bits * members)


def _bits(rate_bps: Fraction, durations_ms: Integers) -> Integers:
    """Return the whole bits that a rate gives in each duration."""
    whole, part = divmod(rate_bps.numerator, rate_bps.denominator)
    # A rate beyond the greatest capacity is no bound; cutting it avoids an overflow.
    whole = min(whole, MOST_BITS * MS_PER_S // max(1, int(durations_ms.sum())))
    thousandths = durations_ms * whole
    if part:
        thousandths += np.array(
            [ms * part // rate_bps.denominator for ms in durations_ms.tolist()], dtype=np.int64
        )
    return thousandths // MS_PER_S
