"""Requests of fewer intervals: edges of blockages that nearly coincide become one.

Each edge of a blockage is a bound of two columns of the plan, and may begin a step of any line and
of the beam's total rate. Gateways accept a bounded number of steps, and the cost of a plan grows
with its cells, rows times columns. A thousand vehicles in a town full of short blockages have too
many edges for either. In such a request, edges that follow each other closely form a *cluster*:
entries move to its beginning and exits to its end.

So blockages only become longer. Nothing is sent into one, and the plan (its capacity, debts and
their repayment) is exact for the longer ones. An edge moves by at most a part of the time left
until it: the least part with which the plan fits. So the shortest intervals disappear first. Near
edges, which are known best, hardly move; far ones move more, and are planned anew before they are
near.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from dama.planner.intervals import Integers, by_terminal, times
from dama.planner.network import network
from dama.planner.request import Blockage, Request

# A gateway refuses a plan with more steps in a line or in the capacity (`gateway/plans`).
MOST_COLUMNS = 4_096
# Each cell costs a few microseconds of one core and a hundred bytes.
MOST_CELLS = 2**20
# A plan may have this many columns for any number of rows.
FEW_COLUMNS = 256
# An edge may move by this part of the time left until it; the least part that is enough is taken.
# With 1, all edges within 2^53 ms form fewer than 60 clusters, of two columns each.
_PARTS = tuple(2.0**-power for power in range(16, -1, -1))


def widened(request: Request) -> Request:
    """Return a request whose plan has at most `MOST_COLUMNS` columns and `MOST_CELLS` cells.

    With many rows it may have more cells, in `FEW_COLUMNS` columns, or in twice as many as there
    are steps of the capacity. These steps do not move; they have to be fewer than half of
    `MOST_COLUMNS`.
    """
    blockages = by_terminal(request)
    columns = len(times(request, blockages)) - 1
    most = min(columns, MOST_COLUMNS)
    few = max(FEW_COLUMNS, 2 * (len(times(request, {})) - 1))
    # Rows are counted only where their number can matter.
    if most > max(few, MOST_CELLS // max(1, len(request.terminals))):
        rows = _rows(request, blockages)
        most = min(most, max(few, MOST_CELLS // max(1, rows)))
    if columns <= most:
        return request
    edges = _Edges(request)
    least = bisect_left(_PARTS[:-1], True, key=lambda part: edges.columns(part) <= most)
    return edges.widened(_PARTS[least])


def _rows(request: Request, affected: Iterable[str]) -> int:
    """Return how many rows the plan has, counted in one where all of these are always blocked.

    Such a plan has only one column for each step of the capacity.
    """
    begin_ms, end_ms = (ms + request.shift_ms for ms in (request.start_ms, request.end_ms))
    throughout = tuple(Blockage(terminal, begin_ms, end_ms) for terminal in affected)
    return len(network(replace(request, blockages=throughout)).rows)


class _Edges:
    """The entries and exits of a request's blockages, at the sender."""

    def __init__(self, request: Request) -> None:
        # The planner ignores blockages that are too doubtful.
        counting = (one for one in request.blockages if one.confidence >= request.least_confidence)
        self._request = replace(request, blockages=tuple(counting))
        entries = [one.entry_ms for one in self._request.blockages]
        exits = [one.exit_ms for one in self._request.blockages]
        self._entries = np.array(entries, dtype=np.int64) - request.shift_ms
        self._exits = np.array(exits, dtype=np.int64) - request.shift_ms
        both = np.union1d(self._entries, self._exits)
        # Edges outside of the plan are clipped to its bounds, which do not move.
        self._moving: Integers = both[(both > request.start_ms) & (both < request.end_ms)]
        self._fixed = np.array(times(request, {}), dtype=np.int64)

    def columns(self, part: float) -> int:
        """Return how many columns the plan has if edges move by up to a part of the time left."""
        bounds = np.unique(np.concatenate((self._fixed, *self._moved(part))))
        inside = (bounds >= self._fixed[0]) & (bounds <= self._fixed[-1])
        return int(inside.sum()) - 1

    def widened(self, part: float) -> Request:
        """Return the request with its edges moved by up to a part of the time left."""
        entries, exits = (edges + self._request.shift_ms for edges in self._moved(part))
        blockages = (
            replace(one, entry_ms=entry_ms, exit_ms=exit_ms)
            for one, entry_ms, exit_ms in zip(
                self._request.blockages, entries.tolist(), exits.tolist(), strict=True
            )
        )
        return replace(self._request, blockages=tuple(blockages))

    def _moved(self, part: float) -> tuple[Integers, Integers]:
        """Return entries and exits, moved to the beginning and to the end of their clusters."""
        if not len(self._moving):
            return self._entries, self._exits
        begins = _clusters(self._moving, self._request.start_ms, part)
        first = self._moving[begins]
        last = self._moving[np.append(begins[1:], len(self._moving)) - 1]
        return (
            _replaced(self._entries, first, last, first),
            _replaced(self._exits, first, last, last),
        )


def _clusters(edges: Integers, start_ms: int, part: float) -> Integers:
    """Return which of the ascending edges begin a cluster.

    A cluster has the edges that follow its first one within this part of the time from the start to
    that first one.
    """
    reach = edges + np.floor(part * (edges - start_ms)).astype(np.int64)
    behind = np.searchsorted(edges, reach, side="right").tolist()
    begins = []
    place = 0
    while place < len(edges):
        begins.append(place)
        place = behind[place]
    return np.array(begins, dtype=np.int64)


def _replaced(edges: Integers, first: Integers, last: Integers, bounds: Integers) -> Integers:
    """Return the edges, each one within a cluster replaced by the cluster's bound."""
    cluster = np.maximum(np.searchsorted(first, edges, side="right") - 1, 0)
    within = (first[cluster] <= edges) & (edges <= last[cluster])
    replaced: Integers = np.where(within, bounds[cluster], edges)
    return replaced
