"""Classes of terminals of equal terms, and their fair shares over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dama.planner.intervals import MS_PER_S, Integers, rates
from dama.planner.request import Request, Terminal
from dama.planner.shares import Terms, fair_shares
from dama.rounding import largest_remainder


@dataclass(frozen=True)
class Class:
    """Terminals of equal terms, with the fair share of all of them per column.

    Attributes:
        members: affected ones first.
        affected: how many.
        fair: bits per column of all members together; the members' parts are within a bit.
    """

    terms: Terms
    members: tuple[Terminal, ...]
    affected: int
    fair: Integers

    def fair_of(self, first: int, last: int) -> Integers:
        """Return the fair share of the members at places first to last - 1, together, by column.

        Member p's share up to a time is (all members' share + p) // members, so that sums are
        exact in every column and no member ever differs from another by more than a bit.
        """
        until = np.concatenate(([0], np.cumsum(self.fair)))
        count = self.terms.members
        rest = until % count
        shared = (last - first) * (until // count) + np.maximum(
            0, last - np.maximum(first, count - rest)
        )
        parts: Integers = shared[1:] - shared[:-1]
        return parts


def classes(
    request: Request,
    times: Sequence[int],
    capacity: Integers,
    affected: Container[str],
) -> list[Class]:
    """Put terminals of equal terms together, those whose names are in `affected` first."""
    members: dict[tuple[Fraction, Fraction, Fraction | None], list[Terminal]] = defaultdict(list)
    known: dict[tuple[object, ...], tuple[Fraction, Fraction, Fraction | None]] = {}
    for terminal in request.terminals:
        # Fractions are slow to make and to hash; terminals of equal terms are many.
        stated = (
            terminal.weight,
            terminal.minimum_bps,
            terminal.maximum_bps,
            terminal.demand_bps,
            terminal.efficiency,
        )
        key = known.get(stated)
        if key is None:
            key = known.setdefault(stated, terminal.terms)
        members[key].append(terminal)
    terms = [Terms(*key, len(group)) for key, group in members.items()]
    fair = _fair(request, times, capacity, terms)
    found = []
    for place, (class_terms, group) in enumerate(zip(terms, members.values(), strict=True)):
        group.sort(key=lambda terminal: (terminal.id not in affected, terminal.owed_bits))
        first = sum(terminal.id in affected for terminal in group)
        found.append(Class(class_terms, tuple(group), first, fair[place]))
    return found


def _fair(
    request: Request, times: Sequence[int], capacity: Integers, terms: Sequence[Terms]
) -> Integers:
    """Return the fair bits per class and column.

    Columns sum exactly, by largest remainder; what a class lost by it in one column it has as
    remainder in the next, so that its sum over time is right as well.
    """
    capacities = rates(request, times)
    shares = {rate: fair_shares(rate, terms) for rate in set(capacities)}
    fair = np.zeros((len(terms), len(capacities)), dtype=np.int64)
    carried = [Fraction()] * len(terms)
    for column, rate in enumerate(capacities):
        ms = times[column + 1] - times[column]
        exact = [
            max(share * of.members * ms / MS_PER_S + carry, Fraction())
            for share, of, carry in zip(shares[rate], terms, carried, strict=True)
        ]
        rounded = _rounded(exact, int(capacity[column]))
        carried = [part - given for part, given in zip(exact, rounded, strict=True)]
        fair[:, column] = rounded
    return fair


def _rounded(exact: Sequence[Fraction], capacity: int) -> list[int]:
    whole = sum(exact, Fraction())
    floors = sum(part.numerator // part.denominator for part in exact)
    total = min(capacity, whole.numerator // whole.denominator)
    rounded = largest_remainder(exact, max(floors, total))
    # Where a remainder below nothing was passed over, the others have to make room for it.
    for _ in range(floors - total):
        rounded[rounded.index(max(rounded))] -= 1
    return rounded
