"""A plan as the NCC has to follow it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

from dama.planner import Plan
from underpass_control.opensand.allocation import Profile, Stretch, Version
from underpass_control.planning.wire import WirePlan, guaranteed_rates


def version_of(plan: Plan, number: int, st_ids: Mapping[int, int], lead_ms: int) -> Version:
    """Return what the NCC is told of a plan of the return link, rates as the nodes have them.

    Args:
        plan: The plan.
        number: Its version.
        st_ids: The satellite terminal of each terminal.
        lead_ms: The way from the NCC to the terminals: it is told so much before a time that the
            plan means at the sending terminal.
    """
    guaranteed = guaranteed_rates(plan)
    profiles: dict[int, Profile] = {}
    for line in WirePlan(plan).lines:
        stretches = _stretches(plan.times_ms, line.rates_bps.tolist(), lead_ms)
        for node in line.terminals:
            if node in st_ids:
                profiles[st_ids[node]] = Profile(stretches, guaranteed[node])
    return Version(number, plan.start_ms - lead_ms, profiles)


def _stretches(
    times_ms: Sequence[int], rates_bps: Sequence[int], lead_ms: int
) -> tuple[Stretch, ...]:
    columns = zip(itertools.pairwise(times_ms), rates_bps, strict=True)
    found: list[Stretch] = []
    for rate_bps, same in itertools.groupby(columns, lambda column: column[1]):
        bounds = [bound for bound, _ in same]
        found.append(Stretch(bounds[0][0] - lead_ms, bounds[-1][1] - lead_ms, rate_bps))
    return tuple(found)
