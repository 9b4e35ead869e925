"""The transportation network of a request: rows of terminals, columns of intervals.

Everything is counted in *bits of capacity*: what the beam carries at efficiency 1. In them a
terminal's efficiency is but a factor of its weight and bounds, and all is integer.

A column is an interval in which neither capacity nor any blockage changes. A row is one terminal
that a blockage affects, or a group of unaffected ones of equal terms, so the network's size
follows the blockages. What a terminal that cannot use more than its fair share gets is no
question: it has no row.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dama.planner.request import Blockage, Request, Terminal
from dama.planner.shares import Terms, fair_shares
from dama.rounding import largest_remainder

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_MS_PER_S = 1000
# Members of a group owe or are owed alike, to this part of their fair share.
_BALANCE_STEP = Fraction(1, 100)


@dataclass(frozen=True)
class Row:
    """One affected terminal, or a group of unaffected ones.

    Attributes:
        members: the terminals.
        entitlements: what each is due over the horizon, in their order; it is how the row's
            capacity is split among them.
        weight: of all members together, per unit of capacity.
        first: the place of the first member in its class, by which fair shares are rounded.
        of: the members' class.
    """

    members: tuple[Terminal, ...]
    entitlements: tuple[int, ...]
    weight: Fraction
    first: int
    of: int


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


@dataclass(frozen=True)
class Network:
    """The network: bounds of each cell, of each column, and what each row is due.

    Attributes:
        times_ms: the columns' bounds, one more than columns.
        capacity: bits per column that the rows share.
        fair: bits of each cell that are the row's fair share, blockages apart.
        least: bits of each cell that are guaranteed.
        greatest: bits of each cell that the row can use; none while blocked.
        blocked: the cells in which the row is blocked.
        due: bits that each row is to have over the horizon: its fair share, less what blockages
            of less than full confidence leave it without, and its balance settled.
        floor: bits that each row has in any case.
    """

    times_ms: tuple[int, ...]
    classes: tuple[Class, ...]
    rows: tuple[Row, ...]
    capacity: Integers
    fair: Integers
    least: Integers
    greatest: Integers
    blocked: Flags
    due: Integers
    floor: Integers

    @property
    def weights(self) -> list[Fraction]:
        """Each row's weight per unit of capacity."""
        return [row.weight for row in self.rows]


def network(request: Request) -> Network:
    """Make the network of a checked request."""
    blockages = _by_terminal(request)
    times = _times(request, blockages)
    capacity = _capacity(request, times)
    classes = _classes(request, times, capacity, blockages)
    rows: list[Row] = []
    cells: list[tuple[Integers, Integers, Integers, Flags]] = []
    frozen = np.zeros(len(times) - 1, dtype=np.int64)
    due: list[int] = []
    floor: list[int] = []
    for number, group in enumerate(classes):
        bounds = _Bounds(group, times, capacity)
        for place, terminal in enumerate(group.members[: group.affected]):
            fair = group.fair_of(place, place + 1)
            certainty = _certainty(blockages[terminal.id], times)
            blocked = certainty > 0
            least, greatest = bounds.of(fair, 1)
            least[blocked] = greatest[blocked] = 0
            doubt = int(sum(fair * np.where(blocked, 1000 - certainty, 0)) // 1000)
            wish = int(fair.sum()) - doubt + terminal.owed_bits
            entitled = min(max(wish, int(least.sum())), int(greatest.sum()))
            rows.append(Row((terminal,), (entitled,), group.terms.weight, place, number))
            cells.append((fair, least, greatest, blocked))
            due.append(entitled)
            floor.append(max(int(least.sum()), min(entitled, int(fair[~blocked].sum()))))
        for first, members in _alike(group):
            fair = group.fair_of(first, first + len(members))
            owed = sum(member.owed_bits for member in members)
            least, greatest = bounds.of(fair, len(members))
            if owed >= 0 and not (greatest > fair).any():
                frozen += fair
                continue
            own = int(fair.sum()) // len(members)
            entitlements = tuple(max(own + member.owed_bits, 1) for member in members)
            if len(set(entitlements)) > 1:
                least, greatest = bounds.of_unequal(fair, entitlements)
            entitled = min(max(int(fair.sum()) + owed, int(least.sum())), int(greatest.sum()))
            weight = group.terms.weight * len(members)
            rows.append(Row(members, entitlements, weight, first, number))
            cells.append((fair, least, greatest, np.zeros(len(fair), dtype=np.bool_)))
            due.append(entitled)
            floor.append(min(entitled, int(fair.sum())))
    shape = (len(rows), len(times) - 1)
    return Network(
        times_ms=tuple(times),
        classes=tuple(classes),
        rows=tuple(rows),
        capacity=capacity - frozen,
        fair=_stack([cell[0] for cell in cells], shape),
        least=_stack([cell[1] for cell in cells], shape),
        greatest=_stack([cell[2] for cell in cells], shape),
        blocked=_stack([cell[3] for cell in cells], shape).astype(np.bool_),
        due=np.array(due, dtype=np.int64),
        floor=np.array(floor, dtype=np.int64),
    )


def _stack(lines: list[Integers] | list[Flags], shape: tuple[int, int]) -> Integers:
    return np.array(lines, dtype=np.int64).reshape(shape)


def _by_terminal(request: Request) -> dict[str, list[Blockage]]:
    """Return the blockages that count, in the sender's time, within the horizon."""
    found: dict[str, list[Blockage]] = defaultdict(list)
    for blockage in request.blockages:
        entry = max(blockage.entry_ms - request.shift_ms, request.start_ms)
        leave = min(blockage.exit_ms - request.shift_ms, request.end_ms)
        if blockage.confidence >= request.least_confidence and entry < leave:
            found[blockage.terminal].append(
                Blockage(blockage.terminal, entry, leave, blockage.confidence)
            )
    return found


def _times(request: Request, blockages: dict[str, list[Blockage]]) -> list[int]:
    times = {request.start_ms, request.end_ms}
    times.update(
        step.from_ms
        for step in request.capacity
        if request.start_ms < step.from_ms < request.end_ms
    )
    for blockage in itertools.chain.from_iterable(blockages.values()):
        times.update((blockage.entry_ms, blockage.exit_ms))
    return sorted(times)


def _rates(request: Request, times: Sequence[int]) -> list[int]:
    """Return the capacity in bit/s of each column."""
    rates: list[int] = []
    steps = list(request.capacity)
    for begin in times[:-1]:
        while len(steps) > 1 and steps[1].from_ms <= begin:
            steps.pop(0)
        rates.append(steps[0].rate_bps)
    return rates


def _capacity(request: Request, times: Sequence[int]) -> Integers:
    """Return the bits of each column, so that those up to any time are right to the bit."""
    durations = [end - begin for begin, end in itertools.pairwise(times)]
    rates = _rates(request, times)
    amounts = (rate * ms for rate, ms in zip(rates, durations, strict=True))
    until = [amount // _MS_PER_S for amount in itertools.accumulate(amounts, initial=0)]
    return np.array([late - early for early, late in itertools.pairwise(until)], dtype=np.int64)


def _certainty(blockages: Sequence[Blockage], times: Sequence[int]) -> Integers:
    """Return the confidence per mille that each column is blocked; 0 where it is not."""
    certainty = np.zeros(len(times) - 1, dtype=np.int64)
    for blockage in blockages:
        first, last = np.searchsorted(times, (blockage.entry_ms, blockage.exit_ms))
        sure = max(1, round(blockage.confidence * 1000))
        certainty[first:last] = np.maximum(certainty[first:last], sure)
    return certainty


def _classes(
    request: Request,
    times: Sequence[int],
    capacity: Integers,
    blockages: dict[str, list[Blockage]],
) -> list[Class]:
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
    classes = []
    for place, (class_terms, group) in enumerate(zip(terms, members.values(), strict=True)):
        group.sort(key=lambda terminal: (terminal.id not in blockages, terminal.owed_bits))
        affected = sum(terminal.id in blockages for terminal in group)
        classes.append(Class(class_terms, tuple(group), affected, fair[place]))
    return classes


def _fair(
    request: Request, times: Sequence[int], capacity: Integers, classes: Sequence[Terms]
) -> Integers:
    """Return the fair bits per class and column.

    Columns sum exactly, by largest remainder; what a class lost by it in one column it has as
    remainder in the next, so that its sum over time is right as well.
    """
    rates = _rates(request, times)
    shares = {rate: fair_shares(rate, classes) for rate in set(rates)}
    fair = np.zeros((len(classes), len(rates)), dtype=np.int64)
    carried = [Fraction()] * len(classes)
    for column, rate in enumerate(rates):
        ms = times[column + 1] - times[column]
        exact = [
            max(share * terms.members * ms / _MS_PER_S + carry, Fraction())
            for share, terms, carry in zip(shares[rate], classes, carried, strict=True)
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


class _Bounds:
    """The least and the greatest bits per column of a class's members."""

    def __init__(self, group: Class, times: Sequence[int], capacity: Integers) -> None:
        terms = group.terms
        durations = [end - begin for begin, end in itertools.pairwise(times)]
        self._capacity = capacity
        self._least = np.array([_bits(terms.least_bps, ms) for ms in durations], dtype=np.int64)
        self._greatest: Integers = capacity
        if terms.greatest_bps is not None:
            ceilings = [_bits(terms.greatest_bps, ms) for ms in durations]
            self._greatest = np.array(
                [min(a, int(b)) for a, b in zip(ceilings, capacity, strict=True)], dtype=np.int64
            )

    def of(self, fair: Integers, members: int) -> tuple[Integers, Integers]:
        """Return those of so many members; rounding never takes the fair share out of them."""
        least = np.minimum(self._least * members, fair)
        return least, np.maximum(np.minimum(self._greatest * members, self._capacity), fair)

    def of_unequal(self, fair: Integers, entitlements: Sequence[int]) -> tuple[Integers, Integers]:
        """Return those of members that split in proportion to their entitlements.

        The row keeps to what its most and its least entitled members can bear.
        """
        whole = sum(entitlements)
        most, fewest = max(entitlements), min(entitlements)
        least = [
            min(-(-bits * whole // fewest), int(own))
            for bits, own in zip(self._least.tolist(), fair, strict=True)
        ]
        greatest = [
            max(min(max(bits - 1, 0) * whole // most, int(all_)), int(own))
            for bits, all_, own in zip(self._greatest.tolist(), self._capacity, fair, strict=True)
        ]
        return np.array(least, dtype=np.int64), np.array(greatest, dtype=np.int64)


def _bits(rate_bps: Fraction, ms: int) -> int:
    """Return the whole bits that a rate gives in a time."""
    return rate_bps.numerator * ms // (rate_bps.denominator * _MS_PER_S)


def _alike(group: Class) -> list[tuple[int, tuple[Terminal, ...]]]:
    """Split the unaffected members where their balances differ, with the place of the first."""
    members = group.members[group.affected :]
    if not members:
        return []
    if members[0].owed_bits == members[-1].owed_bits:
        return [(group.affected, members)]
    step = max(1, int(sum(group.fair) * _BALANCE_STEP / group.terms.members))
    found = []
    place = group.affected
    for _, alike in itertools.groupby(members, lambda member: member.owed_bits // step):
        together = tuple(alike)
        found.append((place, together))
        place += len(together)
    return found
