"""The plan as it is published: in documents that gateways take.

A gateway refuses a document of more than 8 MiB as a whole, and would go on with a plan that ends.
So a plan whose lines would have too many segments is made coarser, until it fits. That is done
before it is stored: what is planned is what gateways are sent, and what the ledger goes by.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import mul

from dama.planner import Plan
from dama.planner.coarsening import coarsened, segments
from underpass_control.planning.wire import WirePlan, lines_of

# A gateway takes no larger document.
MOST_DOCUMENT_BYTES = 8 << 20
# Of some 90 bytes each: half of what a gateway takes, which leaves room for long rates.
MOST_SEGMENTS = 40_000
# How coarse a plan may be: the least of these that is enough.
_TOLERANCES = (0.0, *(2.0**-power for power in range(11, 2, -1)))


def published(plan: Plan) -> tuple[Plan, WirePlan]:
    """Return the plan that is published instead of a plan, and how gateways are told."""
    lines = lines_of(plan)
    few = bisect_left(
        _TOLERANCES,
        True,
        # The coarser, the fewer.
        key=lambda tolerance: sum(map(mul, segments(plan, tolerance), lines)) <= MOST_SEGMENTS,
    )
    for tolerance in _TOLERANCES[few:]:
        made = coarsened(plan, tolerance) if tolerance else plan
        wire = WirePlan(made)
        # Those whose lines follow from their demand alone have some, too.
        if wire.segments <= MOST_SEGMENTS:
            return made, wire
    made = coarsened(plan, _TOLERANCES[-1])
    return made, WirePlan(made)
