"""The spare capacity: what a plan assigns to no terminal."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from dama.planner import Plan, Terminal
from dama.planner.coarsening import ROUNDING_BITS, least_of, steps
from dama.planner.intervals import MS_PER_S, Flags, Integers

Rates = npt.NDArray[np.float64]
_SLIGHT = 1e-9


class Spare:
    """The spare capacity of a plan, which terminals that are not blocked may share by weight.

    Attributes:
        bps: bit/s of capacity, per column.
        begins: the columns in which the part per weight changes. In a coarse plan these are few:
            small changes by others' blockages are left unused.
    """

    def __init__(self, plan: Plan) -> None:
        bounds = np.array(plan.times_ms, dtype=np.int64)
        durations: Integers = bounds[1:] - bounds[:-1]
        given, weights = _given(plan), _weights(plan)
        capacity = np.array(plan.capacity_bps, dtype=np.float64)
        self.bps: Rates = np.maximum(capacity - given * float(MS_PER_S) / durations, 0.0)
        # Rounding leaves a bit or two per terminal and interval.
        count = sum(len(group.members) for group in plan.groups)
        self.bps[self.bps * durations < ROUNDING_BITS * MS_PER_S * count] = 0
        self._of_one = self.bps / np.where(weights > 0, weights, 1.0)
        if plan.tolerance and count and weights.any():
            # Make it as coarse as a terminal's share of the whole capacity.
            usual = float(weights.max()) / count
            most = float(capacity.max()) / count
            parts = (self._of_one * usual + most)[np.newaxis]
            nothing = np.zeros(parts.shape, dtype=np.bool_)
            begins = steps(parts, durations, plan.tolerance, nothing)
            self._of_one = np.maximum(least_of(parts, begins)[0] - most, 0.0) / usual
        self.begins: Flags = np.diff(self._of_one, prepend=self._of_one[:1]) != 0

    def part_of(
        self, terminal: Terminal, columns: Integers, given_bps: Rates, blocked: Flags
    ) -> Rates:
        """Return a terminal's part by weight, up to its ceiling, in some columns."""
        part: Rates = self._of_one[columns] * float(terminal.capacity_weight)
        if terminal.maximum_bps is not None:
            most = terminal.maximum_bps / float(terminal.efficiency)
            part = np.clip(most - given_bps, 0.0, part)
        return np.where(blocked, 0.0, part)


def _given(plan: Plan) -> Integers:
    """Return the bits given to all terminals, per column."""
    given = np.zeros(len(plan.capacity_bps), dtype=np.int64)
    outside = [len(group.members) for group in plan.groups]
    for part in plan.parts:
        given += part.bits
        outside[part.group] -= part.last - part.first
    for group, count in zip(plan.groups, outside, strict=True):
        # A terminal in no part has its fair share.
        given += group.fair_bits // max(1, len(group.members)) * count
    return given


def _weights(plan: Plan) -> Rates:
    """Return the weight of all terminals that are not blocked, per column."""
    weights = np.zeros(len(plan.capacity_bps))
    for group in plan.groups:
        weights += sum(float(member.capacity_weight) for member in group.members)
    for part in plan.parts:
        if part.blocked.any():
            members = plan.groups[part.group].members[part.first : part.last]
            weight = sum(float(member.capacity_weight) for member in members)
            weights -= np.where(part.blocked, weight, 0.0)
    # A remainder from rounding counts as 0.
    return np.where(weights > weights.max() * _SLIGHT, weights, 0.0)
