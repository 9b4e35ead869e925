"""Split proxies at terminal and hub, with a new connection of TCP or MPTCP per object."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Literal

from tests.benchmarks.subjects.subject import COLD, TerminalRelay, UnavailableError
from tests.testbed import addresses, ports
from tests.testbed.topology import Testbed, listens

Way = Literal["satellite", "terrestrial", "mptcp"]

_FIRST_PORT = 13_100
_PLACES: dict[Way, int] = {"satellite": 0, "terrestrial": 1, "mptcp": 2}
_ENABLED = Path("/proc/sys/net/mptcp/enabled")


class SplitProxy(TerminalRelay):
    """CUBIC by one path, or MPTCP by both, with the scheduler and coupling of Linux.

    MPTCP begins by the terrestrial path; the hub then announces its address on the satellite.
    """

    told = COLD

    def __init__(self, way: Way) -> None:
        self.name = f"split-{way}" if way != "mptcp" else "split-mptcp"
        self._way: Way = way

    def start(self, testbed: Testbed) -> None:
        """Start a relay at the hub and one at the terminal."""
        is_mptcp = self._way == "mptcp"
        if is_mptcp and not _ENABLED.exists():
            raise UnavailableError("the kernel has no MPTCP")
        self.client = testbed.terminal.client
        near = _FIRST_PORT + _PLACES[self._way]
        self.relayed = {ports.HTTP: near}
        hub, terminal = testbed.hub, testbed.terminal.node
        for namespace in (hub, terminal):
            namespace.set_congestion_control("cubic")
        if is_mptcp:
            hub.ip("mptcp", "limits", "set", "subflows", "2")
            terminal.ip("mptcp", "limits", "set", "subflows", "2", "add_addr_accepted", "2")
            hub.ip("mptcp", "endpoint", "add", addresses.HUB_SAT, "dev", "sat", "signal")
        by = addresses.HUB_SAT if self._way == "satellite" else addresses.HUB_TERRESTRIAL
        program = [sys.executable, "-m", "tests.testbed.split_proxy", str(near)]
        mptcp_in, mptcp_out = (["--mptcp-in"], ["--mptcp-out"]) if is_mptcp else ([], [])
        origin = [addresses.ORIGIN, str(ports.HTTP)]
        testbed.start(f"{self.name}-hub", [*program, *origin, *mptcp_in], hub)
        relay = testbed.start(
            f"{self.name}-terminal", [*program, by, str(near), *mptcp_out], terminal
        )
        relay.wait_until(lambda: listens(hub, near) and listens(terminal, near))
