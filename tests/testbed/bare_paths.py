"""Paths on which two nodes of a test bed know each other only by their addresses."""

from __future__ import annotations

from typing import Literal

from tests.testbed import addresses
from tests.testbed.node import HUB_NODE, terminal_node
from tests.testbed.profile import Profile

BareLayer = Literal["stcp", "mtcp", "udp", "ltp"]
# At both ends.
PORT = 4_700


def terminal(layer: BareLayer, profile: Profile) -> dict[str, object]:
    """Return the additions to the terminal's configuration."""
    rates = (profile.return_.rate_bps, profile.forward.rate_bps)
    ends = (addresses.HUB_SAT, addresses.terminal_sat(0))
    return {"path": [_path(layer, profile, HUB_NODE, ends, rates)]}


def hub(layer: BareLayer, profile: Profile) -> dict[str, object]:
    """Return the additions to the hub's configuration."""
    rates = (profile.forward.rate_bps, profile.return_.rate_bps)
    ends = (addresses.terminal_sat(0), addresses.HUB_SAT)
    return {
        "listener": [],
        "terminal": [],
        "path": [_path(layer, profile, terminal_node(0), ends, rates)],
    }


def _path(
    layer: BareLayer,
    profile: Profile,
    neighbour: int,
    ends: tuple[str, str],
    rates_bps: tuple[int | None, int | None],
) -> dict[str, object]:
    remote, listen = ends
    send_bps, receive_bps = rates_bps
    return {
        "name": "satellite",
        "neighbour": neighbour,
        "remote": f"{remote}:{PORT}",
        "listen": f"{listen}:{PORT}",
        "convergence_layer": layer,
        "send_rate_bps": send_bps,
        "receive_rate_bps": receive_bps,
        "rtt_ms": round(profile.rtt_ms),
    }
