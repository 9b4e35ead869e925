"""Max-min fair amounts of the rows: water-filling over maximum flow.

The level rises for all rows; a row has weight·level, at least its lower and at most its upper
amount. Where that can no longer flow, the minimum cut names the rows that compete for the same
columns; they share what there is for them, and the rest rises on. So the amounts are the
lexicographically largest (Megiddo 1974; the amounts that flow are a polymatroid, in which
water-filling is exact), and each level is found by Newton's method on cuts (Radzik 1998), exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from dama.planner.flow import Room, grow
from dama.planner.network import Flags, Integers


def max_min(
    flow: Integers,
    lower: Integers,
    upper: Integers,
    weights: Sequence[Fraction],
    room: Room,
) -> Integers:
    """Return the weighted max-min fair amounts of the rows.

    Args:
        flow: bits per cell, near what is looked for; it is used up.
        lower: bits that each row has at least; these can flow together.
        upper: bits that each row has at most.
        weights: of each row, above 0.
        room: the bounds of the flow.

    Returns:
        Bits per row. They can flow together; no row can have more without another having less
        that has, per weight, no more (to the bit).
    """
    amounts = lower.copy()
    rising = lower < upper
    while rising.any():
        everything = int(room.capacity.sum()) - int(amounts[~rising].sum())
        level = _level(rising, lower, upper, weights, everything)
        bottleneck: Flags | None = None
        available = 0
        while True:
            wanted = _at(level, amounts, rising, lower, upper, weights)
            trim(flow, wanted, room)
            cut = grow(flow, wanted, room)
            if cut is None:
                break
            bottleneck, available = cut.rows, cut.available(room)
            settled = int(amounts[cut.rows & ~rising].sum())
            level = _level(cut.rows & rising, lower, upper, weights, available - settled)
        settling = rising if bottleneck is None else rising & bottleneck
        left = (
            everything
            if bottleneck is None
            else available - int(amounts[bottleneck & ~rising].sum())
        )
        amounts[settling] = wanted[settling]
        _last_bits(flow, amounts, settling, wanted, upper, weights, level, left, room)
        rising = rising & ~settling
    return amounts


def trim(flow: Integers, wanted: Integers, room: Room) -> None:
    """Take from each row, in place, what it has beyond `wanted`, in proportion to what can go."""
    excess = flow.sum(axis=1) - wanted
    for row in np.flatnonzero(excess > 0).tolist():
        over = int(excess[row])
        spare = flow[row] - room.least[row]
        whole = int(spare.sum())
        part = np.floor(spare * (over / whole)).astype(np.int64) if whole else spare
        part = np.minimum(part, spare)
        flow[row] -= part
        over -= int(part.sum())
        for column in np.argsort(-flow[row]).tolist():
            if over <= 0:
                break
            less = min(over, int(flow[row, column] - room.least[row, column]))
            flow[row, column] -= less
            over -= less


def _at(
    level: Fraction,
    amounts: Integers,
    rising: Flags,
    lower: Integers,
    upper: Integers,
    weights: Sequence[Fraction],
) -> Integers:
    """Return what each row has at a level, in whole bits."""
    wanted = amounts.copy()
    for row in np.flatnonzero(rising).tolist():
        bits = weights[row] * level
        whole = bits.numerator // bits.denominator
        wanted[row] = min(max(whole, int(lower[row])), int(upper[row]))
    return wanted


def _level(
    rows: Flags,
    lower: Integers,
    upper: Integers,
    weights: Sequence[Fraction],
    amount: int,
) -> Fraction:
    """Return the level at which these rows together have `amount`, or all have their upper."""
    turns: list[tuple[Fraction, Fraction]] = []
    left = Fraction(amount)
    for row in np.flatnonzero(rows).tolist():
        weight = weights[row]
        turns.append((int(lower[row]) / weight, weight))
        turns.append((int(upper[row]) / weight, -weight))
        left -= int(lower[row])
    turns.sort()
    level, slope = turns[0][0], Fraction()
    for turn, change in turns:
        taken = slope * (turn - level)
        if slope and taken >= left:
            break
        left -= taken
        level, slope = turn, slope + change
    return level + max(left, Fraction()) / slope if slope > 0 else level


def _last_bits(
    flow: Integers,
    amounts: Integers,
    settling: Flags,
    wanted: Integers,
    upper: Integers,
    weights: Sequence[Fraction],
    level: Fraction,
    left: int,
    room: Room,
) -> None:
    """Give the bits that rounding left to the largest remainders, as far as they flow.

    `left` is what all settling rows can have together; `amounts` and `wanted` grow in place.
    """
    rows = np.flatnonzero(settling).tolist()
    left -= int(amounts[settling].sum())
    by_remainder = sorted(
        (row for row in rows if amounts[row] < upper[row]),
        key=lambda row: (int(amounts[row]) - weights[row] * level, row),
    )
    for row in by_remainder:
        if left <= 0 or amounts[row] > weights[row] * level:
            break
        wanted[row] += 1
        if grow(flow, wanted, room) is None:
            amounts[row] += 1
            left -= 1
        else:
            wanted[row] -= 1
