"""shadowsocks-libev: an encrypted TCP connection across the hop for each stream."""

from __future__ import annotations

import shutil

from tests.benchmarks.subjects.subject import TerminalRelay, UnavailableError
from tests.testbed import addresses, ports
from tests.testbed.topology import Testbed

_SERVER_PORT = 8388
_PORTS = {ports.HTTP: 8080, ports.ECHO: 8081, ports.IPERF: 8082}
_CIPHER = ["-k", "underpass-benchmark", "-m", "aes-128-gcm"]


class Shadowsocks(TerminalRelay):
    """A split proxy; its sockets use the machine's default congestion control."""

    name = "shadowsocks"
    told = "nothing; cold: a new connection across the hop each run"

    def start(self, testbed: Testbed) -> None:
        """Start its server at the hub and a tunnel at the terminal for each port."""
        if not shutil.which("ss-tunnel"):
            raise UnavailableError("shadowsocks-libev is not installed (.ci/setup --bench)")
        self.client = testbed.terminal.client
        self.relayed = _PORTS
        testbed.start(
            "ss-server",
            ["ss-server", "-s", "0.0.0.0", "-p", str(_SERVER_PORT), *_CIPHER],  # noqa: S104
            testbed.hub,
        )
        for origin, near in _PORTS.items():
            testbed.start(
                f"ss-tunnel-{origin}",
                [
                    *("ss-tunnel", "-s", addresses.HUB_SAT, "-p", str(_SERVER_PORT)),
                    *("-b", "0.0.0.0", "-l", str(near)),  # noqa: S104
                    *("-L", f"{addresses.ORIGIN}:{origin}", *_CIPHER),
                ],
                testbed.terminal.node,
            )
