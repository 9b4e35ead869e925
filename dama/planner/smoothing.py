"""The smoothest of all flows that give the rows their amounts.

It is the flow nearest to the fair shares: the sum over all cells of
(bits - fair bits)² / (weight · duration) is least. With one blockage that is a constant rate
borrowed over T_r and lent in proportion to weight, and a constant rate repaid over T_t.

A cell of the optimum is its fair bits plus weight·duration·(a - b), within its bounds, with a price
a of its row and b >= 0 of its column (Karush, Kuhn and Tucker). Rows and columns set their prices
in turn (block coordinate ascent on the dual), with a step of Newton's method after each turn.
Prices are doubles; the flow that they give is rounded to whole bits within all bounds, and
`flow.grow` makes the rows' amounts exact. So inexact prices cost smoothness only.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from dama.planner.flow import Cut, Room, grow
from dama.planner.intervals import Integers
from dama.planner.levels import trim

Reals = npt.NDArray[np.float64]

_TURNS = 100
# Prices are good when the errors of all rows and columns sum to at most this, in bits.
_CLOSE_BITS = 0.5
# The search ends when this many turns have improved them by less than a hundredth each.
_PATIENCE = 10
_STALLED = 0.99
_SLIGHT = 1e-9
# About this many cells are processed at once, in whole lines.
_BLOCK_CELLS = 1 << 16


def smooth(
    fair: Integers,
    wanted: Integers,
    weights: Sequence[Fraction],
    durations_ms: Sequence[int],
    room: Room,
) -> tuple[Integers, Cut | None]:
    """Return the smoothest flow with the amounts `wanted`, in whole bits.

    Args:
        fair: bits per cell that the flow stays near to.
        wanted: bits per row.
        weights: of each row, above 0.
        durations_ms: of each column.
        room: the bounds of the flow.

    Returns:
        The flow, and None if every row has its wanted bits, otherwise the cut that prevents it.
    """
    if not len(wanted):
        return fair.copy(), None
    flow = nearly(fair, wanted, weights, durations_ms, room)
    trim(flow, wanted, room)
    return flow, grow(flow, wanted, room)


def nearly(
    fair: Integers,
    wanted: Integers,
    weights: Sequence[Fraction],
    durations_ms: Sequence[int],
    room: Room,
) -> Integers:
    """Return a flow as `smooth` does; its amounts, if they can flow, are right to a few bits."""
    slopes = np.outer([float(weight) for weight in weights], durations_ms)
    real = _prices(fair, wanted, slopes, room)
    return _whole(real, wanted, room)


def _prices(fair: Integers, wanted: Integers, slopes: Reals, room: Room) -> Reals:
    """Find the prices by turns and Newton's steps; return the flow that they give."""
    least, greatest = room.least.astype(np.float64), room.greatest.astype(np.float64)
    centre = fair.astype(np.float64)
    rows = _Side(centre, slopes, least, greatest, wanted.astype(np.float64))
    columns = rows.across(room.capacity.astype(np.float64))
    prices, others = np.zeros(fair.shape[0]), np.zeros(fair.shape[1])
    best = np.inf
    stalled = 0
    for _ in range(_TURNS):
        prices = rows.better(prices, others)
        others = -np.minimum(columns.better(-others, -prices), 0.0)
        flow = rows.flow(prices, others)
        missing = _missing(rows, room, flow, others)
        trial = _newton(rows, room, flow, prices, others)
        flow_there = rows.flow(*trial)
        missing_there = _missing(rows, room, flow_there, trial[1])
        if missing_there < missing:
            (prices, others), flow, missing = trial, flow_there, missing_there
        if missing < _CLOSE_BITS:
            break
        stalled = stalled + 1 if missing > best * _STALLED else 0
        best = min(best, missing)
        if stalled == _PATIENCE:
            break
    return flow


def _missing(rows: _Side, room: Room, flow: Reals, others: Reals) -> float:
    """Return the sum of the errors of rows and columns, in bits."""
    beyond = flow.sum(axis=0) - room.capacity
    over = np.maximum(beyond, 0.0)
    unused = np.where(others > 0, np.maximum(-beyond, 0.0), 0.0)
    return float(np.abs(rows.missing(flow)).sum() + over.sum() + unused.sum())


def _newton(
    rows: _Side, room: Room, flow: Reals, prices: Reals, others: Reals
) -> tuple[Reals, Reals]:
    """Take Newton's step of all prices at once, as if no cell reached or left its bounds.

    Only columns that are full or have a price change theirs. Eliminating either rows or columns
    leaves a system of the size of the other side; the smaller one is solved. A small addition to
    the diagonal of the rows keeps it solvable where all prices could move together. `flow` is the
    flow that the prices give.
    """
    over = flow.sum(axis=0) - room.capacity
    inside = np.where((flow > rows.least) & (flow < rows.greatest), rows.slopes, 0.0)
    of_columns = inside.sum(axis=0)
    moving = ((others > 0) | (over > 0)) & (of_columns > 0)
    between, of_columns, over = inside[:, moving], of_columns[moving], over[moving]
    of_rows = inside.sum(axis=1)
    of_rows += np.where(of_rows > 0, of_rows * _SLIGHT, 1.0)
    missing = rows.missing(flow)
    moved = others.copy()
    try:
        if len(of_rows) <= len(of_columns):
            system = np.diag(of_rows) - (between / of_columns) @ between.T
            change = np.linalg.solve(system, missing + between @ (over / of_columns))
            moved[moving] += (over + between.T @ change) / of_columns
        else:
            system = np.diag(of_columns) - between.T @ (between / of_rows[:, None])
            turned = np.linalg.solve(system, over + between.T @ (missing / of_rows))
            change = (missing + between @ turned) / of_rows
            moved[moving] += turned
    except np.linalg.LinAlgError:
        return prices, others
    return prices + change, np.maximum(moved, 0.0)


@dataclass(frozen=True)
class _Side:
    """One side of the network, rows or columns, as lines of a matrix with their wanted sums."""

    centre: Reals
    slopes: Reals
    least: Reals
    greatest: Reals
    wanted: Reals

    def across(self, wanted: Reals) -> _Side:
        """Return the other side, copied so that the cells of its lines are contiguous."""
        return _Side(
            np.ascontiguousarray(self.centre.T),
            np.ascontiguousarray(self.slopes.T),
            np.ascontiguousarray(self.least.T),
            np.ascontiguousarray(self.greatest.T),
            wanted,
        )

    def flow(self, prices: Reals, others: Reals) -> Reals:
        """Return the bits per cell at these prices of the lines and of the other side's lines."""
        flow = np.empty_like(self.centre)
        for lines, block in self._blocks():
            block._put_flow(prices[lines], others, flow[lines])
        return flow

    def missing(self, flow: Reals) -> Reals:
        """Return how many bits each line lacks; negative if it has too many."""
        missing: Reals = self.wanted - flow.sum(axis=1)
        return missing

    def better(self, prices: Reals, others: Reals) -> Reals:
        """Return prices at which the lines have their wanted sums, or are nearer to them."""
        better = np.empty_like(prices)
        for lines, block in self._blocks():
            better[lines] = block._better(prices[lines], others)
        return better

    def _blocks(self) -> Iterator[tuple[slice, _Side]]:
        """Yield the lines in blocks that are small enough for the processor's cache."""
        count = max(1, _BLOCK_CELLS // self.centre.shape[1])
        for first in range(0, len(self.centre), count):
            lines = slice(first, first + count)
            yield (
                lines,
                _Side(
                    self.centre[lines],
                    self.slopes[lines],
                    self.least[lines],
                    self.greatest[lines],
                    self.wanted[lines],
                ),
            )

    def _put_flow(self, prices: Reals, others: Reals, flow: Reals) -> None:
        """Write the result of `flow`, for a block, into an array."""
        np.subtract(prices[:, None], others, out=flow)
        flow *= self.slopes
        flow += self.centre
        np.maximum(flow, self.least, out=flow)
        np.minimum(flow, self.greatest, out=flow)

    def _better(self, prices: Reals, others: Reals) -> Reals:
        """Return the result of `better` for a block.

        Newton's step counts the cells between their bounds. Where that makes the error larger,
        because cells leave their bounds on the way, these are counted too, and the step is shorter.
        """
        flow, there = np.empty_like(self.centre), np.empty_like(self.centre)
        self._put_flow(prices, others, flow)
        missing = self.missing(flow)
        inside = (flow > self.least) & (flow < self.greatest)
        newton = prices + _step(missing, np.where(inside, self.slopes, 0.0).sum(axis=1))
        self._put_flow(newton, others, there)
        worse = np.abs(self.missing(there)) > np.abs(missing) / 2
        lines = np.flatnonzero(worse | ~inside.any(axis=1))
        if lines.size:
            bound = np.where(missing[lines, None] > 0, self.greatest[lines], self.least[lines])
            movable = np.where(flow[lines] != bound, self.slopes[lines], 0.0).sum(axis=1)
            newton[lines] = prices[lines] + _step(missing[lines], movable)
        return newton


def _step(missing: Reals, slope: Reals) -> Reals:
    return np.divide(missing, slope, out=np.zeros_like(missing), where=slope > 0)


def _whole(real: Reals, wanted: Integers, room: Room) -> Integers:
    """Round to whole bits: rows by largest remainder, then fit the columns."""
    flow = np.clip(np.floor(real).astype(np.int64), room.least, room.greatest)
    remainders = np.where(flow < room.greatest, real - flow, -1.0)
    for row in range(flow.shape[0]):
        lacking = int(wanted[row] - flow[row].sum())
        if 0 < lacking < flow.shape[1]:
            best = np.argsort(-remainders[row], kind="stable")[:lacking]
            flow[row, best[remainders[row, best] > 0]] += 1
    _fit(flow, room)
    return flow


def _fit(flow: Integers, room: Room) -> None:
    """Move, in place, excess bits of a column to one with room, within a row where possible."""
    free = room.capacity - flow.sum(axis=0)
    for column in np.flatnonzero(free < 0).tolist():
        for other in np.argsort(-free, kind="stable").tolist():
            if free[column] >= 0 or free[other] <= 0:
                break
            movable = np.minimum(
                flow[:, column] - room.least[:, column], room.greatest[:, other] - flow[:, other]
            )
            row = int(movable.argmax())
            amount = min(int(movable[row]), int(-free[column]), int(free[other]))
            flow[row, column] -= amount
            flow[row, other] += amount
            free[column] += amount
            free[other] -= amount
        while free[column] < 0:
            spare = flow[:, column] - room.least[:, column]
            row = int(spare.argmax())
            amount = min(int(spare[row]), int(-free[column]))
            flow[row, column] -= amount
            free[column] += amount
