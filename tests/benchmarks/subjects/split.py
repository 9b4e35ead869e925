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
_PORTS: dict[str, int] = {
    "split-satellite": 0,
    "split-terrestrial": 1,
    "split-mptcp": 2,
    "split-mptcp-default": 3,
}
_ORIGIN_PORTS = (ports.HTTP, ports.HTTPS)
_ENABLED = Path("/proc/sys/net/mptcp/enabled")
# The kernel's default bounds and initial sizes of TCP buffers on a machine with some GB.
_DEFAULT_BUFFERS = {
    "net.ipv4.tcp_rmem": "4096 131072 6291456",
    "net.ipv4.tcp_wmem": "4096 16384 4194304",
}


class SplitProxy(TerminalRelay):
    """CUBIC over one path, or MPTCP over both, with Linux's scheduler and coupling.

    MPTCP begins on the terrestrial path; the hub then announces its address on the satellite.
    Buffers are as large as the test bed's, or with `default_buffers` the kernel's default.
    """

    told = COLD

    def __init__(self, way: Way, *, default_buffers: bool = False) -> None:
        self.name = f"split-{way}-default" if default_buffers else f"split-{way}"
        self._way: Way = way
        self._default_buffers = default_buffers

    def start(self, testbed: Testbed) -> None:
        """Start a relay at the hub and one at the terminal, for each port of the origin."""
        is_mptcp = self._way == "mptcp"
        if is_mptcp and not _ENABLED.exists():
            raise UnavailableError("the kernel has no MPTCP")
        self.client = testbed.terminal.client
        first = _FIRST_PORT + len(_ORIGIN_PORTS) * _PORTS[self.name]
        self.relayed = {port: first + place for place, port in enumerate(_ORIGIN_PORTS)}
        hub, terminal = testbed.hub, testbed.terminal.node
        self._proxies = (hub, terminal)
        for namespace in self._proxies:
            namespace.set_congestion_control("cubic")
        if is_mptcp:
            hub.ip("mptcp", "limits", "set", "subflows", "2")
            terminal.ip("mptcp", "limits", "set", "subflows", "2", "add_addr_accepted", "2")
            if addresses.HUB_SAT not in hub.ip("mptcp", "endpoint", "show"):
                hub.ip("mptcp", "endpoint", "add", addresses.HUB_SAT, "dev", "sat", "signal")
        self.before_run()
        for origin_port, near in self.relayed.items():
            self._relay(testbed, origin_port, near)
        self.after_run()

    def _relay(self, testbed: Testbed, origin_port: int, near: int) -> None:
        hub, terminal = self._proxies
        by = addresses.HUB_SAT if self._way == "satellite" else addresses.HUB_TERRESTRIAL
        program = [sys.executable, "-m", "tests.testbed.split_proxy", str(near)]
        is_mptcp = self._way == "mptcp"
        mptcp_in, mptcp_out = (["--mptcp-in"], ["--mptcp-out"]) if is_mptcp else ([], [])
        origin, name = [addresses.ORIGIN, str(origin_port)], f"{self.name}-{origin_port}"
        testbed.start(f"{name}-hub", [*program, *origin, *mptcp_in], hub)
        relay = testbed.start(f"{name}-terminal", [*program, by, str(near), *mptcp_out], terminal)
        relay.wait_until(lambda: listens(hub, near) and listens(terminal, near))

    def before_run(self) -> None:
        """Set the kernel's default buffers for the proxies, if configured."""
        if self._default_buffers:
            self._widths = [
                namespace.run("sysctl", *_DEFAULT_BUFFERS) for namespace in self._proxies
            ]
            for namespace in self._proxies:
                namespace.sysctl(**_DEFAULT_BUFFERS)

    def after_run(self) -> None:
        """Restore the buffers of the other subjects."""
        if self._default_buffers:
            for namespace, widths in zip(self._proxies, self._widths, strict=True):
                lines = (line.split(" = ") for line in widths.splitlines())
                namespace.sysctl(**{key: value.replace("\t", " ") for key, value in lines})
