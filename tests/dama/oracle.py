"""The planner's oracle: the same fair amounts by linear programming (HiGHS), the slow way.

It shares nothing with the planner but the request: no groups, no flow, no integers.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import linprog

from dama.planner import FairShare, Request, Terminal

Reals = npt.NDArray[np.float64]

# Part of all bits by which an amount may differ and still count as equal.
_EQUAL = 4e-5
# The solver's tolerance: it finds bounds that touch feasible only with this much between them.
_SLIGHT = 1e-6


@dataclass(frozen=True)
class _Problem:
    """Bits per terminal (rows) and interval (columns), in capacity."""

    weights: Reals
    offsets: Reals
    capacity: Reals
    least: Reals
    greatest: Reals

    def solve(self, lower: Reals, upper: Reals, level: Reals | None, goal: int) -> float:
        """Return the greatest value of the variable `goal`; -1 is the level itself.

        Terminals with a weight in `level` have at least weight times the level.
        """
        rows, columns = self.least.shape
        size = rows * columns
        objective = np.zeros(size + 1)
        if goal < 0:
            objective[size] = -1
        else:
            objective[goal * columns : (goal + 1) * columns] = -1
        matrix, limits = [], []
        for row in range(rows):
            line = np.zeros(size + 1)
            line[row * columns : (row + 1) * columns] = 1
            matrix.append(line)
            limits.append(upper[row] + _SLIGHT)
            matrix.append(-line)
            limits.append(_SLIGHT - lower[row])
            if level is not None and level[row] > 0:
                line = -line
                line[size] = level[row]
                matrix.append(line)
                limits.append(self.offsets[row])
        for column in range(columns):
            line = np.zeros(size + 1)
            line[column:size:columns] = 1
            matrix.append(line)
            limits.append(self.capacity[column])
        bounds = np.column_stack((self.least.ravel(), self.greatest.ravel()))
        answer = linprog(
            objective,
            A_ub=np.array(matrix),
            b_ub=np.array(limits),
            bounds=[*map(tuple, bounds.tolist()), (None, None)],
            method="highs",
        )
        if not answer.success:
            raise AssertionError(f"the oracle has no answer: {answer.message}")
        return -float(answer.fun or 0.0)

    def max_min(self, lower: Reals, upper: Reals) -> Reals:
        """Return the lexicographically largest amounts per weight between two bounds."""
        amounts = lower.copy()
        rising = upper - lower > 5 * _SLIGHT
        amounts[~rising] = lower[~rising]
        while rising.any():
            floors = np.where(rising, lower, amounts)
            ceilings = np.where(rising, upper, amounts)
            level = self.solve(floors, ceilings, np.where(rising, self.weights, 0), -1)
            # An amount is settled if it cannot grow while all others stay.
            reached = np.maximum(self.weights * level - self.offsets, lower)
            floors = np.where(rising, reached - 3 * _SLIGHT, floors)
            settled = [
                row
                for row in np.flatnonzero(rising)
                if self.solve(floors, ceilings, None, int(row)) <= reached[row] + _EQUAL
            ]
            if not settled:
                raise AssertionError("the oracle's level does not settle anybody")
            for row in settled:
                amounts[row] = min(reached[row], upper[row])
                rising[row] = False
        return amounts


def fair_amounts(request: Request) -> dict[str, float]:
    """Return the bits of capacity that each terminal is to have over the horizon."""
    times = sorted(
        {request.start_ms, request.end_ms}
        | {_inside(request, step.from_ms) for step in request.capacity}
        | {
            _inside(request, time - request.shift_ms)
            for blockage in request.blockages
            for time in (blockage.entry_ms, blockage.exit_ms)
        }
    )
    begins, seconds = np.array(times[:-1]), np.diff(times) / 1000
    rates = np.array([_capacity(request, begin) for begin in begins])
    terminals = request.terminals
    weights = np.array([_weight(terminal) for terminal in terminals])
    ceilings = np.array([_ceiling(terminal) for terminal in terminals])
    floors = np.minimum([_least(terminal) for terminal in terminals], ceilings)
    shares = np.column_stack([_shares(rate, weights, floors, ceilings) for rate in rates])
    sure = np.array(
        [[_certainty(request, terminal, begin) for begin in begins] for terminal in terminals]
    )
    open_ = sure == 0
    # All amounts are parts of the whole, since the solver's tolerances are absolute.
    whole = float((rates * seconds).sum()) or 1.0
    fair = shares * seconds / whole
    owed = np.array([terminal.owed_bits for terminal in terminals]) / whole
    doubt = (fair * np.where(open_, 0, 1 - sure)).sum(axis=1)
    doubtful = doubt > 0
    problem = _Problem(
        weights=weights,
        offsets=doubt - owed,
        capacity=rates * seconds / whole,
        least=np.minimum(floors[:, None], shares) * seconds * open_ / whole,
        greatest=np.minimum(ceilings[:, None], rates) * seconds * open_ / whole,
    )
    due = fair.sum(axis=1) - doubt + owed
    due = np.clip(due, problem.least.sum(axis=1), problem.greatest.sum(axis=1))
    alone = (fair * open_).sum(axis=1)
    floor = np.maximum(problem.least.sum(axis=1), np.minimum(due, alone))
    amounts = problem.max_min(floor, due)
    most = problem.greatest.sum(axis=1)
    amounts = problem.max_min(amounts, np.where(doubtful, amounts, most))
    amounts = problem.max_min(amounts, most)
    return {
        terminal.id: float(part) * whole for terminal, part in zip(terminals, amounts, strict=True)
    }


def _inside(request: Request, time_ms: int) -> int:
    return min(max(time_ms, request.start_ms), request.end_ms)


def _capacity(request: Request, time_ms: int) -> float:
    return float([step.rate_bps for step in request.capacity if step.from_ms <= time_ms][-1])


def _weight(terminal: Terminal) -> float:
    by_symbols = terminal.fair_share is FairShare.SYMBOLS
    return float(terminal.weight / (1 if by_symbols else terminal.efficiency))


def _least(terminal: Terminal) -> float:
    minimum = float(terminal.minimum_bps / terminal.efficiency)
    if terminal.fair_share is FairShare.SYMBOLS:
        minimum = min(minimum, terminal.minimum_bps)
    return max(minimum, float(terminal.floor_bps / terminal.efficiency))


def _ceiling(terminal: Terminal) -> float:
    bounds = [rate for rate in (terminal.maximum_bps, terminal.demand_bps) if rate is not None]
    return float(min(bounds) / terminal.efficiency) if bounds else np.inf


def _certainty(request: Request, terminal: Terminal, time_ms: int) -> float:
    return max(
        (
            round(blockage.confidence * 1000) / 1000
            for blockage in request.blockages
            if blockage.terminal == terminal.id
            and blockage.confidence >= request.least_confidence
            and blockage.entry_ms - request.shift_ms
            <= time_ms
            < blockage.exit_ms - request.shift_ms
        ),
        default=0.0,
    )


def _shares(rate: float, weights: Reals, floors: Reals, ceilings: Reals) -> Reals:
    """Return the instant's fair rates by bisection on the level."""
    if floors.sum() >= rate:
        return floors * (rate / floors.sum() if floors.sum() else 1)
    low, high = 0.0, (rate + 1) / weights.min() * 2
    for _ in range(200):
        level = (low + high) / 2
        taken = np.clip(weights * level, floors, ceilings).sum()
        low, high = (level, high) if taken <= rate else (low, level)
    rates: Reals = np.clip(weights * low, floors, ceilings)
    return rates
