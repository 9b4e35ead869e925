"""The intervals of a plan: between any two changes of capacity or of a blockage."""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dama.planner.request import Blockage, Request

Integers = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

MS_PER_S = 1000
# A confidence of 1, in per mille: confidences are computed in whole numbers.
CERTAIN = 1000


def by_terminal(request: Request) -> dict[str, list[Blockage]]:
    """Return the blockages that count, by the sender's time, within the horizon."""
    found: dict[str, list[Blockage]] = defaultdict(list)
    for blockage in request.blockages:
        entry = max(blockage.entry_ms - request.shift_ms, request.start_ms)
        leave = min(blockage.exit_ms - request.shift_ms, request.end_ms)
        if blockage.confidence >= request.least_confidence and entry < leave:
            found[blockage.terminal].append(replace(blockage, entry_ms=entry, exit_ms=leave))
    return found


def times(request: Request, blockages: dict[str, list[Blockage]]) -> list[int]:
    """Return the bounds of all intervals, from the plan's start to the horizon."""
    bounds = {request.start_ms, request.end_ms}
    bounds.update(
        step.from_ms
        for step in request.capacity
        if request.start_ms < step.from_ms < request.end_ms
    )
    if request.settle_ms is not None and request.settle_ms < request.end_ms:
        bounds.add(request.settle_ms)
    for blockage in itertools.chain.from_iterable(blockages.values()):
        bounds.update((blockage.entry_ms, blockage.exit_ms))
    return sorted(bounds)


def rates(request: Request, times: Sequence[int]) -> list[int]:
    """Return the capacity in bit/s of each column."""
    rates: list[int] = []
    steps = list(request.capacity)
    for begin in times[:-1]:
        while len(steps) > 1 and steps[1].from_ms <= begin:
            steps.pop(0)
        rates.append(steps[0].rate_bps)
    return rates


def capacity(request: Request, times: Sequence[int]) -> Integers:
    """Return the bits of each column, rounded so that sums up to any time are exact to the bit."""
    durations = [end - begin for begin, end in itertools.pairwise(times)]
    by_interval = rates(request, times)
    amounts = (rate * ms for rate, ms in zip(by_interval, durations, strict=True))
    until = [amount // MS_PER_S for amount in itertools.accumulate(amounts, initial=0)]
    return np.array([late - early for early, late in itertools.pairwise(until)], dtype=np.int64)


def certainty(blockages: Sequence[Blockage], times: Sequence[int]) -> Integers:
    """Return the confidence per mille that each column is blocked; 0 where it is not."""
    certainty = np.zeros(len(times) - 1, dtype=np.int64)
    for blockage in blockages:
        first, last = bisect_left(times, blockage.entry_ms), bisect_left(times, blockage.exit_ms)
        sure = max(1, round(blockage.confidence * CERTAIN))
        certainty[first:last] = np.maximum(certainty[first:last], sure)
    return certainty
