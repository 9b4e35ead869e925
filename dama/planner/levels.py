"""Max-min fair amounts of the rows: water-filling over maximum flow.

The level rises for all rows; a row has weight·level less its offset, at least its lower and at
most its upper amount. Where that can no longer flow, the minimum cut names the rows that compete
for the same columns; they share what there is for them, and the rest rises on. So the amounts are
the lexicographically largest (Megiddo 1974; the amounts that flow are a polymatroid, in which
water-filling is exact), and each level is found by Newton's method on cuts (Radzik 1998), exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dama.planner.flow import Room, grow
from dama.planner.intervals import Flags, Integers

# A flow that lacks more than this part of what is wanted is not near it.
_FAR = 1e-3


@dataclass(frozen=True)
class Claims:
    """What rows compete for.

    Attributes:
        lower: bits that each row has at least; these can flow together.
        upper: bits that each row has at most.
        weights: of each row, above 0.
        offsets: bits that count as if the row had them already, so that its level is
            (amount + offset) / weight; or, negative, that it is owed first.
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
        flow: bits per cell, near what is looked for if that is little; it is used up.
        claims: of the rows.
        room: the bounds of the flow.
        near: makes a flow, within these, of nearly so many bits per row.

    Returns:
        Bits per row. They can flow together; no row can have more without another having less
        whose level is no higher (to the bit).
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
                # Each way by which a flow grows is looked for: far from it, that takes long.
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


def _at(level: Fraction, amounts: Integers, rising: Flags, claims: Claims) -> Integers:
    """Return what each row has at a level, in whole bits."""
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
    """Give the bits that rounding left to the largest remainders, as far as they flow.

    `left` is what all settling rows can have together; `amounts` and `wanted` grow in place.
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
