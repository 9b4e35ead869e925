"""Plans that begin later: what a plan gives before a time is left out.

Making a plan may take longer than was expected; then it would begin before anybody can follow it.
What is left of it is a plan like any other: it is what is told and what the ledger goes by.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from dama.planner.intervals import Integers
from dama.planner.plan import Plan
from dama.planner.request import PlanError


def shortened(plan: Plan, start_ms: int) -> Plan:
    """Return a plan without what it gives before a time; from then on rates are as they were.

    Of the column that the time lies in, a row keeps its part, in whole bits rounded down, so that
    no column holds more than the beam carries. Balances stay those of the former start: what the
    plan before moves until the new one shows in the ledger.

    Raises:
        PlanError: nothing of it is left by then.
    """
    if start_ms <= plan.start_ms:
        return plan
    if start_ms >= plan.end_ms:
        raise PlanError(f"the plan ends at {plan.end_ms} ms, not after {start_ms} ms")
    first = bisect_right(plan.times_ms, start_ms) - 1
    begin_ms, end_ms = plan.times_ms[first : first + 2]

    def rest(bits: Integers) -> Integers:
        kept = bits[first:].copy()
        # In integers without bounds: bits times ms may be more than 64 bits hold.
        kept[0] = int(kept[0]) * (end_ms - start_ms) // (end_ms - begin_ms)
        return kept

    return replace(
        plan,
        times_ms=(start_ms, *plan.times_ms[first + 1 :]),
        capacity_bps=plan.capacity_bps[first:],
        groups=tuple(replace(group, fair_bits=rest(group.fair_bits)) for group in plan.groups),
        parts=tuple(
            replace(part, bits=rest(part.bits), blocked=part.blocked[first:]) for part in plan.parts
        ),
    )
