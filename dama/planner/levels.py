"""Max-min fair amounts of the rows: water-filling over maximum flow.

The level rises for all rows; a row has weight·level less its offset, at least its lower and at
most its upper amount. When these amounts can no longer flow, the minimum cut names the rows that
compete for the same columns. These rows share the capacity of the cut, and the level of the others
rises further. So the amounts are the lexicographically largest (Megiddo 1974; the amounts that can
flow are a polymatroid, in which water-filling is exact). Each level is found exactly, by Newton's
method on cuts (Radzik 1998).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dama.planner.flow import Room, grow
from dama.planner.intervals import Flags, Integers

# A flow that lacks more than this part of the wanted bits is made anew.
_FAR = 1e-3


@dataclass(frozen=True)
class Claims:
    """The terms on which rows compete.

    Attributes:
        lower: bits that each row has at least; these can flow together.
        upper: bits that each row has at most.
        weights: of each row, above 0.
        offsets: bits that count as if the row had them already, so that its level is
            (amount + offset) / weight; if negative, bits that it is owed first.
    """

    lower: Integers
    upper: Integers
    weights: Sequence[Fraction]
    offsets: Integers


def max_min(
    flow: Integers, claims: Claims, room: Room, near: Callable[[Integers], Integers]
) -> Integers:
    """Return the max-min fair amounts of the rows.

    Args:
        flow: bits per cell to start from; it is overwritten.
        claims: of the rows.
        room: the bounds of the flow.
        near: makes a flow within these bounds that has nearly the given bits per row.

    Returns:
        Bits per row. They can flow together. No row can have more, to the bit, unless another row
        has less whose level is no higher.
    """
    amounts = claims.lower.copy()
    rising = claims.lower < claims.upper
    while rising.any():
        # At first all rows compete for everything.
        rows, available = np.ones_like(rising), int(room.capacity.sum())
        while True:
            left = available - int(amounts[rows & ~rising].sum())
            level = _level(rows & rising, claims, left)
            wanted = _at(level, amounts, rising, claims)
            lacking = np.maximum(wanted - flow.sum(axis=1), 0).sum()
            if lacking > _FAR * wanted.sum():
                # Growing a flow searches for each path, which takes long if much is lacking.
                flow = near(wanted)
            trim(flow, wanted, room)
            cut = grow(flow, wanted, room)
            if cut is None:
                break
            rows, available = cut.rows, cut.available(room)
        settling = rows & rising
        amounts[settling] = wanted[settling]
        _last_bits(flow, amounts, settling, wanted, claims, level, left, room)
        rising = rising & ~settling
    return amounts


def trim(flow: Integers, wanted: Integers, room: Room) -> None:
    """Take from each row, in place, its bits beyond `wanted`, in proportion to its cells' spare."""
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


def _at(level: Fraction, amounts: Integers, rising: Flags, claims: Claims) -> Integers:
    """Return the amount of each row at a level, in whole bits."""
    wanted = amounts.copy()
    for row in np.flatnonzero(rising).tolist():
        bits = claims.weights[row] * level - int(claims.offsets[row])
        whole = bits.numerator // bits.denominator
        wanted[row] = min(max(whole, int(claims.lower[row])), int(claims.upper[row]))
    return wanted


def _level(rows: Flags, claims: Claims, amount: int) -> Fraction:
    """Return the level at which these rows together have `amount`, or all have their upper."""
    turns: list[tuple[Fraction, Fraction]] = []
    left = Fraction(amount)
    for row in np.flatnonzero(rows).tolist():
        weight, offset = claims.weights[row], int(claims.offsets[row])
        turns.append(((int(claims.lower[row]) + offset) / weight, weight))
        turns.append(((int(claims.upper[row]) + offset) / weight, -weight))
        left -= int(claims.lower[row])
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
    claims: Claims,
    level: Fraction,
    left: int,
    room: Room,
) -> None:
    """Give the bits left by rounding to the rows of the largest remainders, as far as they flow.

    `left` is the amount that all settling rows can have together; `amounts` and `wanted` grow in
    place.
    """
    left -= int(amounts[settling].sum())
    remainders = {
        row: claims.weights[row] * level - int(claims.offsets[row]) - int(amounts[row])
        for row in np.flatnonzero(settling & (amounts < claims.upper)).tolist()
    }
    for row in sorted(remainders, key=lambda row: (-remainders[row], row)):
        if left <= 0 or remainders[row] < 0:
            break
        wanted[row] += 1
        if grow(flow, wanted, room) is None:
            amounts[row] += 1
            left -= 1
        else:
            wanted[row] -= 1
