"""Plans that begin later: the part of a plan before a time is left out.

Making a plan may take longer than expected; then it would begin before any node can follow it. The
rest of it is a plan like any other: gateways and the ledger go by its rates.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import replace

from dama.planner.intervals import Integers
from dama.planner.plan import Plan
from dama.planner.request import PlanError


def shortened(plan: Plan, start_ms: int) -> Plan:
    """Return a plan without its part before a time; from then on its rates are unchanged.

    In the column that contains the time, a row keeps its bits in proportion, rounded down, so that
    no column holds more than the beam carries. Balances stay those of the former start: the ledger
    shows what the preceding plan moves until the new start.

    Raises:
        PlanError: the plan ends by then.
    """
    if start_ms <= plan.start_ms:
        return plan
    if start_ms >= plan.end_ms:
        raise PlanError(f"the plan ends at {plan.end_ms} ms, not after {start_ms} ms")
    first = bisect_right(plan.times_ms, start_ms) - 1
    begin_ms, end_ms = plan.times_ms[first : first + 2]

    def rest(bits: Integers) -> Integers:
        kept = bits[first:].copy()
        # In Python's unbounded integers: bits times ms may exceed 64 bits.
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
