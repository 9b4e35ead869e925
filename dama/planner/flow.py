"""Exact maximum flow through the network: what rows can have together, and what limits them.

Bits flow from rows to the columns in which they are sent. A flow is a matrix of bits per cell,
between the cells' least and greatest, that keeps to the columns' capacity. It grows along shortest
augmenting paths (Edmonds and Karp 1972), many per search as in Dinic's layers; each search handles
whole rows and columns at once. It costs little to grow a flow that is nearly right, so callers
start from one.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dama.planner.intervals import Flags, Integers

_NOBODY = -1


@dataclass(frozen=True)
class Room:
    """The bounds that a flow keeps to: of its cells and of its columns, in bits."""

    least: Integers
    greatest: Integers
    capacity: Integers


@dataclass(frozen=True)
class Cut:
    """A minimum cut: these rows have all the capacity that they can get, and it is too little.

    Attributes:
        rows: the rows that compete.
        columns: the columns that they fill; in all others they are at their greatest.
    """

    rows: Flags
    columns: Flags

    def available(self, room: Room) -> int:
        """Return the most bits that the rows can have together."""
        others = room.least[np.ix_(~self.rows, self.columns)].sum()
        filled = room.capacity[self.columns].sum() - others
        return int(filled + room.greatest[np.ix_(self.rows, ~self.columns)].sum())


def grow(flow: Integers, wanted: Integers, room: Room) -> Cut | None:
    """Grow a flow in place until each row has its wanted bits, or as nearly as possible.

    No row loses anything. A row that has more than its wanted bits keeps them.

    Args:
        flow: bits per cell; within `room` before and after.
        wanted: bits per row.
        room: the bounds.

    Returns:
        None if every row has its wanted bits; otherwise the cut that prevents it.
    """
    _fill(flow, wanted, room)
    # A scan of all cells takes longer than most searches, so it is done once.
    need = wanted - flow.sum(axis=1)
    free = room.capacity - flow.sum(axis=0)
    forward, backward = flow < room.greatest, flow > room.least
    while True:
        hungry = need > 0
        if not hungry.any():
            return None
        search = _search(forward, backward, hungry, free)
        if not search.ends.size:
            return Cut(search.rows, search.columns)
        for column in search.ends.tolist():
            for cell in _augment(flow, column, search, need, free, room):
                forward[cell] = flow[cell] < room.greatest[cell]
                backward[cell] = flow[cell] > room.least[cell]


def _fill(flow: Integers, wanted: Integers, room: Room) -> None:
    """Give rows, in place, the free bits of columns: paths that involve no other row."""
    need = wanted - flow.sum(axis=1)
    free = room.capacity - flow.sum(axis=0)
    for row in np.flatnonzero(need > 0).tolist():
        fits = np.clip(room.greatest[row] - flow[row], 0, np.maximum(free, 0))
        until = np.minimum(np.cumsum(fits), need[row])
        more = np.diff(until, prepend=0)
        flow[row] += more
        free -= more


@dataclass(frozen=True)
class _Search:
    """Shortest paths from rows that lack bits: what was reached, from where; columns with room."""

    rows: Flags
    columns: Flags
    row_from: Integers
    column_from: Integers
    ends: Integers


def _search(forward: Flags, backward: Flags, hungry: Flags, free: Integers) -> _Search:
    """Search from rows that lack bits, by cells that may grow (forward) and shrink (backward)."""
    rows, columns = hungry.copy(), np.zeros(len(free), dtype=np.bool_)
    row_from = np.full(len(rows), _NOBODY, dtype=np.int64)
    column_from = np.full(len(columns), _NOBODY, dtype=np.int64)
    frontier = np.flatnonzero(hungry)
    while frontier.size:
        ways = forward[frontier] & ~columns
        found = np.flatnonzero(ways.any(axis=0))
        column_from[found] = frontier[ways[:, found].argmax(axis=0)]
        columns[found] = True
        ends = found[free[found] > 0]
        if ends.size:
            return _Search(rows, columns, row_from, column_from, ends)
        ways = backward[:, found] & ~rows[:, None]
        frontier = np.flatnonzero(ways.any(axis=1))
        if frontier.size:
            row_from[frontier] = found[ways[frontier].argmax(axis=1)]
        rows[frontier] = True
    return _Search(rows, columns, row_from, column_from, np.zeros(0, dtype=np.int64))


def _augment(
    flow: Integers, end: int, search: _Search, need: Integers, free: Integers, room: Room
) -> list[tuple[int, int]]:
    """Send as much as fits along the path to one column; earlier paths may have used its room.

    The needs of rows and the room of columns are updated too. Return the cells that have changed.
    """
    gains: list[tuple[int, int]] = []
    losses: list[tuple[int, int]] = []
    column = end
    while True:
        row = int(search.column_from[column])
        gains.append((row, column))
        column = int(search.row_from[row])
        if column == _NOBODY:
            break
        losses.append((row, column))
    amount = min(
        int(need[row]),
        int(free[end]),
        min(int(room.greatest[cell] - flow[cell]) for cell in gains),
        min((int(flow[cell] - room.least[cell]) for cell in losses), default=int(need[row])),
    )
    if amount <= 0:
        return []
    for cell in gains:
        flow[cell] += amount
    for cell in losses:
        flow[cell] -= amount
    need[row] -= amount
    free[end] -= amount
    return gains + losses
