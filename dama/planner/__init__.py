"""The planner: makes a plan from a beam's capacity, its terminals and the expected blockages."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np

from dama.planner.classes import fair_rates
from dama.planner.flow import Room
from dama.planner.intervals import Flags, Integers, rates
from dama.planner.levels import Claims, max_min
from dama.planner.line import Line, Segment
from dama.planner.network import Network, network
from dama.planner.plan import Group, Part, Plan
from dama.planner.request import (
    Blockage,
    CapacityStep,
    FairShare,
    Link,
    PlanError,
    Request,
    Terminal,
    check,
)
from dama.planner.smoothing import nearly, smooth
from dama.planner.widening import widened

__all__ = [
    "Blockage",
    "CapacityStep",
    "FairShare",
    "Line",
    "Link",
    "Plan",
    "PlanError",
    "Request",
    "Segment",
    "Terminal",
    "fair_rates",
    "plan",
]


def plan(request: Request) -> Plan:
    """Return the weighted max-min fair plan of one link of a beam.

    If there are so many blockages that no gateway would accept the plan, the plan is made for
    slightly longer ones (`dama.planner.widening`).

    Raises:
        PlanError: if the request has no plan, with the reason.
    """
    check(request)
    request = widened(request)
    lent_for = tuple(one for one in request.blockages if one.is_lent_for)
    otherwise = None
    if len(lent_for) < len(request.blockages):
        otherwise = plan(replace(request, blockages=lent_for))
    net = network(request, otherwise)
    flow = _flow(net)
    return Plan(
        beam=request.beam,
        link=request.link,
        issued_ms=request.now_ms,
        times_ms=net.times_ms,
        capacity_bps=tuple(rates(request, net.times_ms)),
        groups=tuple(Group(group.members, group.fair) for group in net.classes),
        parts=tuple(
            Part(row.group, row.first, row.entitlements, bits, row.blocked)
            for row, bits in zip(net.rows, flow, strict=True)
        ),
    )


def _flow(net: Network) -> Integers:
    """Find the fair amounts of all rows, and the smoothest flow that gives them.

    First each row gets up to the amount that it is due. Capacity is left over where a blockage
    could not be lent for, or only in part; it goes first to rows whose future is sure, then to all.
    Where the amounts allow it, no row borrows after its last exit.
    """
    durations = [end - begin for begin, end in itertools.pairwise(net.times_ms)]
    rows = net.rows
    weights = [row.weight for row in rows]
    offsets = np.array([row.doubt - row.owed for row in rows], dtype=np.int64)
    due = np.array([row.due for row in rows], dtype=np.int64)
    floor = np.array([row.floor for row in rows], dtype=np.int64)
    least = net.cells([row.least for row in rows])
    start = net.cells([np.minimum(row.fair, row.greatest) for row in rows])
    room = Room(least, net.cells([row.greatest for row in rows]), net.capacity)

    def near(wanted: Integers) -> Integers:
        return nearly(start, wanted, weights, durations, room)

    early = _early(net, np.ones(len(rows), dtype=np.bool_))
    flow, cut = smooth(start, due, weights, durations, Room(least, early, net.capacity))
    amounts = due
    if cut is not None:
        amounts = max_min(flow.copy(), Claims(floor, due, weights, offsets), room, near)
    most = room.greatest.sum(axis=1)
    doubtful = np.array([row.doubt > 0 for row in rows], dtype=np.bool_)
    for upper in (np.where(doubtful, amounts, most), most):
        if net.capacity.sum() > amounts.sum() and (amounts < upper).any():
            amounts = max_min(flow.copy(), Claims(amounts, upper, weights, offsets), room, near)
    if cut is None and amounts is due:
        return flow
    closed = ~cut.rows if cut is not None else np.ones(len(rows), dtype=np.bool_)
    early = _early(net, closed)
    flow, cut = smooth(start, amounts, weights, durations, Room(least, early, net.capacity))
    if cut is not None:
        flow, _ = smooth(start, amounts, weights, durations, room)
    return flow


def _early(net: Network, closed: Flags) -> Integers:
    """Return the cells' greatest bits if closed rows borrow nothing after their last exit."""
    lines = []
    for row, shut in zip(net.rows, closed.tolist(), strict=True):
        line = row.greatest
        if shut and row.blocked.any():
            after = int(np.flatnonzero(row.blocked)[-1]) + 1
            line = np.concatenate((line[:after], np.minimum(line, row.fair)[after:]))
        lines.append(line)
    return net.cells(lines)
