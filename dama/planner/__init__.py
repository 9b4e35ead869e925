"""The planner: capacity, terminals and blockages to come in; a plan out."""

from __future__ import annotations

import itertools

import numpy as np

from dama.planner.flow import Room
from dama.planner.levels import max_min
from dama.planner.network import Flags, Integers, Network, network
from dama.planner.plan import Line, Plan, Segment
from dama.planner.request import (
    Blockage,
    CapacityStep,
    Link,
    PlanError,
    Request,
    Terminal,
    check,
)
from dama.planner.smoothing import smooth

__all__ = [
    "Blockage",
    "CapacityStep",
    "Line",
    "Link",
    "Plan",
    "PlanError",
    "Request",
    "Segment",
    "Terminal",
    "plan",
]


def plan(request: Request) -> Plan:
    """Return the weighted max-min fair plan of one link of a beam.

    Raises:
        PlanError: if the request has no plan, with what is wrong with it.
    """
    check(request)
    net = network(request)
    return Plan(request.beam, request.link, request.now_ms, net, _flow(net))


def _flow(net: Network) -> Integers:
    """Find the fair amounts of all rows, and the smoothest flow that gives them.

    First everyone up to what they are due, then what is left to all. Where it makes no
    difference to the amounts, nobody borrows after their last exit: they borrowed before.
    """
    durations = [end - begin for begin, end in itertools.pairwise(net.times_ms)]
    weights = net.weights
    open_room = Room(net.least, net.greatest, net.capacity)
    early_room = Room(net.least, _early(net, np.ones(len(net.rows), dtype=np.bool_)), net.capacity)
    start = np.where(net.blocked, 0, net.fair)
    flow, cut = smooth(start, net.due, weights, durations, early_room)
    amounts = net.due
    if cut is not None:
        amounts = max_min(flow.copy(), net.floor, net.due, weights, open_room)
    idle = int(net.capacity.sum() - amounts.sum())
    most = net.greatest.sum(axis=1)
    if idle > 0 and (amounts < most).any():
        amounts = max_min(flow.copy(), amounts, most, weights, open_room)
    if cut is None and amounts is net.due:
        return flow
    closed = ~cut.rows if cut is not None else np.ones(len(net.rows), dtype=np.bool_)
    room = Room(net.least, _early(net, closed), net.capacity)
    flow, cut = smooth(start, amounts, weights, durations, room)
    if cut is not None:
        flow, _ = smooth(start, amounts, weights, durations, open_room)
    return flow


def _early(net: Network, closed: Flags) -> Integers:
    """Return the cells' greatest bits, where closed rows get no more than their fair share
    after their last exit.
    """
    greatest = net.greatest.copy()
    for row in np.flatnonzero(closed & net.blocked.any(axis=1)).tolist():
        last = int(np.flatnonzero(net.blocked[row])[-1])
        greatest[row, last + 1 :] = np.minimum(greatest[row, last + 1 :], net.fair[row, last + 1 :])
    return greatest
