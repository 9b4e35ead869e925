"""kcptun: TCP streams in one KCP connection over UDP, with forward error correction."""

from __future__ import annotations

import shutil

from tests.benchmarks.subjects.subject import TerminalRelay, UnavailableError
from tests.testbed import addresses, ports
from tests.testbed.profile import Link
from tests.testbed.topology import Testbed

_PORTS = {ports.HTTP: (29900, 12948), ports.ECHO: (29901, 12949), ports.IPERF: (29902, 12950)}
_MTU = 1350
_BUFFER_BYTES = 64 << 20


class Kcptun(TerminalRelay):
    """As its authors ship it, but for windows of twice the hop's bandwidth-delay product."""

    name = "kcptun"

    def start(self, testbed: Testbed) -> None:
        """Start a server at the hub and a client at the terminal for each port."""
        if not shutil.which("kcptun-client"):
            raise UnavailableError("kcptun is not installed (make setup; .ci/setup --bench)")
        self.client = testbed.terminal.client
        self.relayed = {origin: near for origin, (_, near) in _PORTS.items()}
        profile = testbed.profile
        down = str(_window(profile.forward, profile.rtt_s))
        up = str(_window(profile.return_, profile.rtt_s))
        common = [
            *("--key", "underpass-benchmark", "--crypt", "aes-128", "--mode", "fast3"),
            *("--mtu", str(_MTU), "--nocomp", "--quiet", "--smuxver", "2"),
            *("--sockbuf", str(_BUFFER_BYTES), "--smuxbuf", str(_BUFFER_BYTES)),
            *("--streambuf", str(_BUFFER_BYTES // 2)),
        ]
        for origin, (far, near) in _PORTS.items():
            testbed.start(
                f"kcptun-server-{origin}",
                [
                    *("kcptun-server", "-l", f":{far}", "-t", f"{addresses.ORIGIN}:{origin}"),
                    *("--sndwnd", down, "--rcvwnd", up, *common),
                ],
                testbed.hub,
            )
            testbed.start(
                f"kcptun-client-{origin}",
                [
                    *("kcptun-client", "-r", f"{addresses.HUB_SAT}:{far}", "-l", f":{near}"),
                    *("--sndwnd", up, "--rcvwnd", down, *common),
                ],
                testbed.terminal.node,
            )


def _window(link: Link, rtt_s: float) -> int:
    """Return twice the bandwidth-delay product in packets, at least kcptun's default."""
    return max(512, int(2 * (link.rate_bps or 1_000_000_000) / 8 * rtt_s / _MTU))
