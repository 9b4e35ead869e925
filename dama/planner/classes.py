"""Classes of terminals of equal terms, and their fair shares over time."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dama.planner.intervals import MS_PER_S, Integers, rates
from dama.planner.request import Request, Terminal
from dama.planner.shares import Terms, fair_shares
from dama.planner.splitting import equal_parts


@dataclass(frozen=True)
class Class:
    """Terminals of equal terms, with the fair share of all of them per column.

    Attributes:
        members: affected ones first.
        affected: how many.
        fair: bits per column of all members together; their parts differ by at most a bit.
        content: the fair share is at the ceiling at any capacity: no member can use more.
    """

    terms: Terms
    members: tuple[Terminal, ...]
    affected: int
    fair: Integers
    content: bool

    def fair_of(self, first: int, last: int) -> Integers:
        """Return the fair share of the members at places first to last - 1, together, by column.

        Sums are exact in every column, and members never differ by more than a bit.
        """
        return equal_parts(self.fair, self.terms.members, first, last)


def classes(
    request: Request,
    times: Sequence[int],
    capacity: Integers,
    affected: Container[str],
) -> list[Class]:
    """Put terminals of equal terms together, those whose names are in `affected` first."""
    members = _by_terms(request.terminals)
    terms = [Terms(*key, len(group)) for key, group in members.items()]
    capacities = rates(request, times)
    shares = {rate: fair_shares(rate, terms) for rate in set(capacities)}
    fair = _fair(times, capacity, terms, [shares[rate] for rate in capacities])
    found = []
    for place, (class_terms, group) in enumerate(zip(terms, members.values(), strict=True)):
        group.sort(key=lambda terminal: (terminal.id not in affected, terminal.owed_bits))
        first = sum(terminal.id in affected for terminal in group)
        content = all(share[place] == class_terms.greatest_bps for share in shares.values())
        found.append(Class(class_terms, tuple(group), first, fair[place], content))
    return found


def fair_rates(capacity_bps: int, terminals: Sequence[Terminal]) -> dict[str, Fraction]:
    """Return each terminal's fair share at one instant, in bit/s of capacity, without blockages."""
    members = _by_terms(terminals)
    shares = fair_shares(capacity_bps, [Terms(*key, len(of)) for key, of in members.items()])
    return {
        terminal.id: share
        for share, of in zip(shares, members.values(), strict=True)
        for terminal in of
    }


def _by_terms(
    terminals: Sequence[Terminal],
) -> dict[tuple[Fraction, Fraction, Fraction | None], list[Terminal]]:
    members: dict[tuple[Fraction, Fraction, Fraction | None], list[Terminal]] = defaultdict(list)
    known: dict[tuple[object, ...], tuple[Fraction, Fraction, Fraction | None]] = {}
    for terminal in terminals:
        # Fractions are slow to make and to hash, and many terminals have equal terms.
        stated = (
            terminal.weight,
            terminal.minimum_bps,
            terminal.floor_bps,
            terminal.maximum_bps,
            terminal.demand_bps,
            terminal.efficiency,
            terminal.fair_share,
        )
        key = known.get(stated)
        if key is None:
            key = known.setdefault(stated, terminal.terms)
        members[key].append(terminal)
    return members


def _fair(
    times: Sequence[int],
    capacity: Integers,
    terms: Sequence[Terms],
    shares: Sequence[Sequence[Fraction]],
) -> Integers:
    """Return the fair bits per class and column, of shares by column and class.

    Each column sums exactly to the sum of the shares. Within a column classes are rounded by
    largest remainder. The amount that a class loses by rounding is added to its next column, so
    that its sum over time is right as well. Remainders are doubles: they only decide who is rounded
    up.
    """
    counts = np.array([of.members for of in terms], dtype=np.float64)
    rates_bps: dict[int, tuple[Fraction, npt.NDArray[np.float64]]] = {}
    fair = np.zeros((len(terms), len(shares)), dtype=np.int64)
    carried = np.zeros(len(terms))
    exact_until, given = Fraction(), 0
    for column, share in enumerate(shares):
        if id(share) not in rates_bps:
            whole = sum(
                (one * of.members for one, of in zip(share, terms, strict=True)), Fraction()
            )
            rates_bps[id(share)] = whole, np.array([float(one) for one in share]) * counts
        whole, each_bps = rates_bps[id(share)]
        ms = times[column + 1] - times[column]
        exact_until += whole * ms / MS_PER_S
        total = min(int(capacity[column]), int(exact_until) - given)
        exact = each_bps * ms / MS_PER_S + carried
        fair[:, column] = _rounded(exact, total)
        carried = exact - fair[:, column]
        given += total
    return fair


def _rounded(exact: npt.NDArray[np.float64], total: int) -> Integers:
    """Round to whole numbers, none below 0, that sum to `total`; the largest remainders go up."""
    rounded = np.maximum(np.floor(exact), 0).astype(np.int64)
    missing = total - int(rounded.sum())
    order = np.argsort(rounded - exact, kind="stable")
    while missing > 0 and len(order):
        more = min(missing, len(order))
        rounded[order[:more]] += 1
        missing -= more
    while missing < 0:
        most = int(rounded.argmax())
        less = min(-missing, max(1, int(rounded[most]) // 2))
        rounded[most] -= less
        missing += less
    return rounded
