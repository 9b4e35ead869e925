"""The transportation network of a request: rows of terminals, columns of intervals.

All amounts are *bits of capacity*: bits that the beam carries at efficiency 1. In this unit a
terminal's efficiency is only a factor of its weight and bounds, and all amounts are integers.

A column is an interval in which neither capacity nor any blockage changes. A row is one terminal
that a blockage affects, or a group of unaffected ones of equal terms, so the network's size
depends on the number of blockages. Unaffected terminals that can use no more than their fair share,
and owe nothing, always get that share and have no row.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from dama.planner.bounds import Bounds
from dama.planner.classes import Class, classes
from dama.planner.intervals import (
    CERTAIN,
    Flags,
    Integers,
    by_terminal,
    capacity,
    certainty,
    times,
)
from dama.planner.plan import Plan
from dama.planner.request import Blockage, Request, Terminal

# Members of a class with more different balances than this may share a row with others of similar
# balance, which differ by at most this part of a fair share. They are paid over the whole horizon,
# though, each in proportion to what it is due: a later plan settles what remains.
_MOST_BALANCES = 64
_BALANCE_STEP = Fraction(1, 100)


@dataclass(frozen=True)
class Row:
    """One affected terminal, or a group of unaffected ones.

    Attributes:
        group: the number of its terminals' class.
        first: the place of the first of them among the class's members; the others follow.
        entitlements: the bits due to each over the horizon, in their order; where they differ, the
            row's capacity is split in proportion to them.
        weight: of all members together, per unit of capacity.
        fair: bits per column of its fair share without blockages.
        least: bits per column that are guaranteed.
        greatest: bits per column that it can use; none while blocked.
        blocked: the columns in which it is blocked.
        doubt: bits of its fair share that it is not lent, since its blockages may not come.
        owed: bits that others owe it; if negative, that it owes them.
    """

    group: int
    first: int
    entitlements: tuple[int, ...]
    weight: Fraction
    fair: Integers
    least: Integers
    greatest: Integers
    blocked: Flags
    doubt: int
    owed: int

    @property
    def due(self) -> int:
        """The bits due to it over the horizon, within its bounds."""
        wish = int(self.fair.sum()) - self.doubt + self.owed
        return min(max(wish, int(self.least.sum())), int(self.greatest.sum()))

    @property
    def floor(self) -> int:
        """The bits that it has in any case: as many as without any lending."""
        alone = int(np.minimum(self.fair, self.greatest).sum())
        return max(min(self.due, alone), int(self.least.sum()))


@dataclass(frozen=True)
class Network:
    """The network: a matrix of cells, a row each for `rows`, with the bounds of the columns.

    Attributes:
        times_ms: the columns' bounds, one more than columns.
        classes: all terminals, with their fair shares.
        rows: the terminals that the plan decides about; all others have their fair share.
        capacity: bits per column that the rows share.
    """

    times_ms: tuple[int, ...]
    classes: tuple[Class, ...]
    rows: tuple[Row, ...]
    capacity: Integers

    def cells(self, lines: list[Integers] | list[Flags]) -> Integers:
        """Make a matrix of one line per row."""
        return np.array(lines, dtype=np.int64).reshape(len(self.rows), len(self.capacity))


def network(request: Request, otherwise: Plan | None = None) -> Network:
    """Make the network of a checked request.

    `otherwise` is the plan without the blockages that are not lent for, if there are any.
    """
    blockages = by_terminal(request)
    bounds_ms = times(request, blockages)
    whole = capacity(request, bounds_ms)
    groups = classes(request, bounds_ms, whole, blockages)
    left = whole.copy()
    rows: list[Row] = []
    for number, group in enumerate(groups):
        if group.content and not group.affected and group.members[0].owed_bits >= 0:
            left -= group.fair
            continue
        bounds = Bounds(group, bounds_ms, whole)
        for place, terminal in enumerate(group.members[: group.affected]):
            sure = certainty(blockages[terminal.id], bounds_ms)
            row = _affected(number, group, bounds, place, sure)
            if otherwise is not None:
                _borrow_nothing(row, terminal.id, blockages[terminal.id], bounds_ms, otherwise)
            rows.append(row)
        for row in _unaffected(number, group, bounds):
            if group.content and row.owed >= 0:
                left -= row.fair
            else:
                rows.append(row)
    if request.settle_ms is not None:
        _end_lending(rows, bisect_left(bounds_ms, request.settle_ms))
    return Network(tuple(bounds_ms), tuple(groups), tuple(rows), left)


def _borrow_nothing(
    row: Row, terminal: str, blockages: Iterable[Blockage], bounds_ms: Sequence[int], given: Plan
) -> None:
    """Bound a terminal, until its last blockage that is not lent for, by the plan without those."""
    entries_ms = [one.entry_ms for one in blockages if not one.is_lent_for]
    columns = bisect_left(bounds_ms, max(entries_ms, default=bounds_ms[0]))
    bits = np.diff(given.given(terminal, bounds_ms[: columns + 1]))
    row.greatest[:columns] = np.minimum(row.greatest[:columns], bits)
    row.least[:columns] = np.minimum(row.least[:columns], bits)


def _end_lending(rows: Iterable[Row], column: int) -> None:
    """From a column on, give each row exactly its fair share where it is not blocked."""
    for row in rows:
        fair = np.where(row.blocked, 0, row.fair)[column:]
        row.least[column:] = fair
        row.greatest[column:] = fair


def _affected(number: int, group: Class, bounds: Bounds, place: int, sure: Integers) -> Row:
    fair = group.fair_of(place, place + 1)
    blocked = sure > 0
    least, greatest = bounds.of(fair, 1)
    least[blocked] = greatest[blocked] = 0
    doubt = int((fair * (CERTAIN - sure))[blocked].sum()) // CERTAIN
    weight = group.terms.weight
    owed = group.members[place].owed_bits
    return Row(number, place, (1,), weight, fair, least, greatest, blocked, doubt, owed)


def _unaffected(number: int, group: Class, bounds: Bounds) -> Iterator[Row]:
    """Group the unaffected members of a class by equal or nearly equal balances."""
    members = group.members[group.affected :]
    if not members:
        return
    own = int(group.fair.sum()) // group.terms.members
    step = 1
    if len({member.owed_bits for member in members}) > _MOST_BALANCES and bounds.apart(group.fair):
        step = max(1, int(own * _BALANCE_STEP))
    first = group.affected
    for _, together in itertools.groupby(members, lambda member: _balance(member, own, step)):
        alike = tuple(together)
        fair = group.fair_of(first, first + len(alike))
        least, greatest = bounds.of(fair, len(alike))
        entitlements = tuple(own + member.owed_bits for member in alike)
        if entitlements[0] != entitlements[-1]:
            least, greatest = bounds.of_unequal(fair, entitlements)
        yield Row(
            group=number,
            first=first,
            entitlements=entitlements,
            weight=group.terms.weight * len(alike),
            fair=fair,
            least=least,
            greatest=greatest,
            blocked=np.zeros(len(fair), dtype=np.bool_),
            doubt=0,
            owed=sum(member.owed_bits for member in alike),
        )
        first += len(alike)


def _balance(terminal: Terminal, own: int, step: int) -> tuple[bool, int]:
    """Return the key by which members are grouped.

    Members that owe much are grouped only with members of equal balance.
    """
    if step == 1 or 2 * terminal.owed_bits < -own:
        return False, terminal.owed_bits
    return True, terminal.owed_bits // step
