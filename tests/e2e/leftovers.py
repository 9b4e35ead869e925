"""Checks that connections that ended left nothing: no stream, no socket, nothing in custody."""

from __future__ import annotations

import time

from tests.testbed import addresses
from tests.testbed.node import Node, Pair
from tests.testbed.topology import Testbed

_WITHIN_S = 30.0


def nothing_left(pair: Pair[Testbed]) -> None:
    """Wait until both nodes have neither streams nor connections nor bundles; fail if they do."""
    deadline = time.monotonic() + _WITHIN_S
    nodes = (pair.hub, *pair.terminals)
    while left := {node.name: what for node in nodes if (what := left_at(node))}:
        assert time.monotonic() < deadline, f"left over after {_WITHIN_S:g} s: {left}"
        time.sleep(0.2)


def left_at(node: Node) -> dict[str, object]:
    """Return what a node still has of connections; empty if they have all ended."""
    status = node.status()
    states = ("open", "half_closed", "draining")
    streams = sum(one[state] for one in status["streams"].values() for state in states)
    left = {
        "streams": streams and node.api.get("/v1/streams")[:5],
        "backlog": sum(one["backlog_bytes"] for one in status["streams"].values()),
        "custody": status["custody"]["bundles"],
        "sockets": _connections(node),
    }
    return {name: value for name, value in left.items() if value}


def _connections(node: Node) -> list[str]:
    """Return its connections with clients and origins, except those that only the kernel has."""
    # TIME-WAIT and similar states no longer need a program.
    lines = node.namespace.run(
        *("ss", "-Htn", "state", "connected", "exclude", "time-wait"),
        *("exclude", "fin-wait-2", "exclude", "last-ack", "exclude", "closing"),
    ).splitlines()
    networks = (addresses.terminal_lan(0).rpartition(".")[0], addresses.ORIGIN)
    return [line for line in lines if any(network in line for network in networks)][:5]
