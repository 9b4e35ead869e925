"""kcptun: TCP streams in one KCP connection over UDP, with forward error correction."""

from __future__ import annotations

import shutil

from tests.benchmarks.subjects.subject import TerminalRelay, UnavailableError
from tests.testbed import addresses, ports
from tests.testbed.profile import Link
from tests.testbed.topology import Testbed

_FAR, _NEAR = 29900, 12948
_RELAYED = (ports.HTTP, ports.ECHO, ports.IPERF)
_SHIPPED, _EAGER = "fast", "fast3"
_MTU = 1350
_BUFFER_BYTES = 64 << 20


class Kcptun(TerminalRelay):
    """kcptun in its authors' default mode, `fast`, or in their most aggressive one, `fast3`.

    In both, windows are twice the hop's bandwidth-delay product, since its own would hold it below
    10 Mbit/s, and buffers are as large; nothing is compressed. All else is as shipped.
    """

    told = "windows of twice rate x RTT; warm: one UDP connection"

    def __init__(self, *, eager: bool = False) -> None:
        self.name = "kcptun-fast3" if eager else "kcptun"
        self._mode = _EAGER if eager else _SHIPPED
        # Both run on one test bed.
        self._offset = len(_RELAYED) if eager else 0

    def start(self, testbed: Testbed) -> None:
        """Start a server at the hub and a client at the terminal for each port."""
        if not shutil.which("kcptun-client"):
            raise UnavailableError("kcptun is not installed (make setup; .ci/setup --bench)")
        self.client = testbed.terminal.client
        ends = {
            origin: (_FAR + place, _NEAR + place)
            for place, origin in enumerate(_RELAYED, self._offset)
        }
        self.relayed = {origin: near for origin, (_, near) in ends.items()}
        profile = testbed.profile
        down = str(_window(profile.forward, profile.rtt_s))
        up = str(_window(profile.return_, profile.rtt_s))
        common = [
            *("--key", "underpass-benchmark", "--crypt", "aes-128", "--mode", self._mode),
            *("--mtu", str(_MTU), "--nocomp", "--quiet", "--smuxver", "2"),
            *("--sockbuf", str(_BUFFER_BYTES), "--smuxbuf", str(_BUFFER_BYTES)),
            *("--streambuf", str(_BUFFER_BYTES // 2)),
        ]
        for origin, (far, near) in ends.items():
            testbed.start(
                f"{self.name}-server-{origin}",
                [
                    *("kcptun-server", "-l", f":{far}", "-t", f"{addresses.ORIGIN}:{origin}"),
                    *("--sndwnd", down, "--rcvwnd", up, *common),
                ],
                testbed.hub,
            )
            testbed.start(
                f"{self.name}-client-{origin}",
                [
                    *("kcptun-client", "-r", f"{addresses.HUB_SAT}:{far}", "-l", f":{near}"),
                    *("--sndwnd", up, "--rcvwnd", down, *common),
                ],
                testbed.terminal.node,
            )


def _window(link: Link, rtt_s: float) -> int:
    """Return twice the bandwidth-delay product in packets, at least kcptun's default."""
    return max(512, int(2 * (link.rate_bps or 1_000_000_000) / 8 * rtt_s / _MTU))
