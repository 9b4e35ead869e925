"""The plan as it is published: in documents that gateways accept.

A gateway refuses a document of more than 8 MiB as a whole, and would continue with an old plan. So
a plan whose lines have too many segments is made coarser until it fits. That is done before it is
stored, so that gateways and the ledger use the same plan.
"""

from __future__ import annotations

from bisect import bisect_left
from operator import mul

from dama.planner import Plan
from dama.planner.coarsening import coarsened, segments
from underpass_control.planning.wire import WirePlan, lines_of

# The largest document that a gateway accepts.
MOST_DOCUMENT_BYTES = 8 << 20
# At some 90 bytes each, half of what a gateway accepts, which leaves room for long rates.
MOST_SEGMENTS = 40_000
# The possible tolerances of a coarse plan; the least that is enough is taken.
_TOLERANCES = (0.0, *(2.0**-power for power in range(11, 2, -1)))


def published(plan: Plan) -> tuple[Plan, WirePlan]:
    """Return the plan that is published for a plan, and its form for gateways."""
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
        # Lines that follow from demand alone have segments too.
        if wire.segments <= MOST_SEGMENTS:
            return made, wire
    made = coarsened(plan, _TOLERANCES[-1])
    return made, WirePlan(made)
