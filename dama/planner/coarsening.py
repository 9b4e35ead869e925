"""Plans of fewer segments: neighbouring columns of nearly the same rate get one rate.

Each blockage of a beam changes all rates twice, in a large beam by almost nothing: if one of 2,000
terminals enters a tunnel, the others get 1/2000 more. Exact to the bit, 50 blockages would make 100
segments of each line. A *coarse* plan gives a row the least rate of such columns in all of them. So
no column holds more than before, and no rate is lower by more than the tolerance. It is a plan like
any other: gateways and the ledger go by its rates.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dama.planner.intervals import MS_PER_S, Flags, Integers
from dama.planner.plan import Part, Plan
from dama.planner.splitting import equal_parts

# A smaller difference, in bits of a column, is rounding.
ROUNDING_BITS = 3
Reals = npt.NDArray[np.float64]


def coarsened(plan: Plan, tolerance: float) -> Plan:
    """Return a plan whose parts have fewer steps.

    No row gets the bits that a row loses by this; they are less than `tolerance` of its own.

    Args:
        plan: with all its steps.
        tolerance: the part of a rate by which it may be lower, 0 to 1.
    """
    if not plan.parts:
        return replace(plan, tolerance=tolerance)
    bits, durations = _bits(plan.parts), _durations(plan)
    rates = bits * float(MS_PER_S) / durations
    begins = steps(rates, durations, tolerance, _apart(plan, bits))
    fewer = np.minimum(_whole(least_of(rates, begins), durations), bits)
    parts = tuple(replace(part, bits=row) for part, row in zip(plan.parts, fewer, strict=True))
    return replace(plan, parts=parts, tolerance=tolerance)


def steps_of_parts(plan: Plan, apart: Flags | None) -> Iterator[tuple[Integers, Integers]]:
    """Yield for each part the columns in which its steps begin, and the bits of each step.

    Args:
        plan: one that is not coarse has a step for each column.
        apart: the columns in which a step begins in any case; None: none.
    """
    if not plan.parts or not plan.tolerance:
        for part in plan.parts:
            yield np.arange(len(part.bits)), part.bits
        return
    bits, durations = _bits(plan.parts), _durations(plan)
    rates = bits * float(MS_PER_S) / durations
    capacity = np.array(plan.capacity_bps)
    also = np.diff(capacity, prepend=capacity[:1]) != 0
    if apart is not None:
        also |= apart
    begins = steps(rates, durations, 0.0, _changes(_blocked(plan)) | also)
    least = least_of(rates, begins)
    for row, of in zip(begins, least, strict=True):
        places = np.flatnonzero(row)
        yield places, _whole(of[places], np.add.reduceat(durations, places))


def segments(plan: Plan, tolerance: float) -> list[int]:
    """Return how many segments each part of the plan would have if it were coarsened."""
    if not plan.parts:
        return []
    bits, durations = _bits(plan.parts), _durations(plan)
    rates = bits * float(MS_PER_S) / durations
    counts: list[int] = steps(rates, durations, tolerance, _apart(plan, bits)).sum(axis=1).tolist()
    return counts


def steps(rates: Reals, durations_ms: Integers, tolerance: float, apart: Flags) -> Flags:
    """Return, for each line of rates, in which columns a step begins, with the fewest steps.

    Args:
        rates: bit/s, by line and column.
        durations_ms: of each column.
        tolerance: the least rate of a step is at most this part below the greatest.
        apart: where a step begins in any case.
    """
    begins = apart.copy()
    begins[:, 0] = True
    rounding = ROUNDING_BITS * MS_PER_S / durations_ms
    least, greatest = rates[:, 0], rates[:, 0]
    coarsest = np.full(len(rates), rounding[0])
    for column in range(1, rates.shape[1]):
        here = rates[:, column]
        lower, higher = np.minimum(least, here), np.maximum(greatest, here)
        allowed = tolerance * higher + coarsest + rounding[column]
        new = apart[:, column] | (higher - lower > allowed)
        begins[:, column] = new
        least, greatest = np.where(new, here, lower), np.where(new, here, higher)
        coarsest = np.where(new, rounding[column], np.maximum(coarsest, rounding[column]))
    return begins


def least_of(rates: Reals, begins: Flags) -> Reals:
    """Return the rates, each replaced by the least rate of its step."""
    places = np.flatnonzero(begins)
    least = np.minimum.reduceat(rates.ravel(), places)
    counts = np.diff(np.concatenate((places, [rates.size])))
    return np.repeat(least, counts).reshape(rates.shape)


def _whole(rates: Reals, durations_ms: Integers) -> Integers:
    """Return the whole bits that rates give; the addend compensates rounding in doubles."""
    bits: Integers = np.floor(rates * durations_ms / MS_PER_S + 0.01).astype(np.int64)
    return bits


def _bits(parts: Sequence[Part]) -> Integers:
    return np.array([part.bits for part in parts], dtype=np.int64)


def _durations(plan: Plan) -> Integers:
    bounds = np.array(plan.times_ms, dtype=np.int64)
    durations: Integers = bounds[1:] - bounds[:-1]
    return durations


def _apart(plan: Plan, bits: Integers) -> Flags:
    """Return where a row's blockage, or a time in which it has its fair share, begins or ends."""
    kinds = _blocked(plan)
    for number, part in enumerate(plan.parts):
        group = plan.groups[part.group]
        fair = equal_parts(group.fair_bits, len(group.members), part.first, part.last)
        slack = ROUNDING_BITS * (part.last - part.first)
        kinds[number] += 2 * (np.abs(bits[number] - fair) < slack)
    return _changes(kinds)


def _blocked(plan: Plan) -> Integers:
    return np.array([part.blocked for part in plan.parts], dtype=np.int64)


def _changes(kinds: Integers) -> Flags:
    """Return, for each line, the columns that differ from the one before."""
    changes = np.zeros(kinds.shape, dtype=np.bool_)
    changes[:, 1:] = kinds[:, 1:] != kinds[:, :-1]
    return changes
