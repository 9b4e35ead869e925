"""Fair shares: the weighted max-min fair rates at one instant, without blockages."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction


@dataclass(frozen=True, slots=True)
class Terms:
    """The common terms of the terminals of one class, per unit of capacity.

    Attributes:
        weight: of one member.
        least_bps: guaranteed to each.
        greatest_bps: the ceiling of each; None where there is none.
        members: how many.
    """

    weight: Fraction
    least_bps: Fraction
    greatest_bps: Fraction | None
    members: int


def fair_shares(capacity_bps: int, classes: Sequence[Terms]) -> list[Fraction]:
    """Return each class's rate per member: the session's R in the paper.

    The level l rises until the capacity is used up or every member has its ceiling; a member gets
    weight·l, at least its guaranteed rate and at most its ceiling (Bertsekas and Gallager, *Data
    Networks*, 6.5.2). If the guaranteed rates exceed the capacity, they shrink in proportion.
    """
    guaranteed = sum((terms.least_bps * terms.members for terms in classes), Fraction())
    if guaranteed >= capacity_bps:
        part = Fraction(capacity_bps) / guaranteed if guaranteed else Fraction(1)
        return [terms.least_bps * part for terms in classes]
    # Below `begins` a class stays at its least rate, from `ends` on at its ceiling.
    turns: list[tuple[Fraction, Fraction]] = []
    for terms in classes:
        slope = terms.weight * terms.members
        turns.append((terms.least_bps / terms.weight, slope))
        if terms.greatest_bps is not None:
            turns.append((terms.greatest_bps / terms.weight, -slope))
    turns.sort()
    level, slope, left = Fraction(), Fraction(), capacity_bps - guaranteed
    for turn, change in turns:
        taken = slope * (turn - level)
        if taken >= left:
            break
        left -= taken
        level, slope = turn, slope + change
    if slope:
        level += left / slope
    return [_at(terms, level) for terms in classes]


def _at(terms: Terms, level: Fraction) -> Fraction:
    rate = max(terms.least_bps, terms.weight * level)
    return rate if terms.greatest_bps is None else min(rate, terms.greatest_bps)
