"""No proxy: plain TCP from client to origin, by the congestion control of both."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.subjects.subject import Access, Subject, UnavailableError
from tests.testbed import addresses, ports
from tests.testbed.client.route import DIRECT
from tests.testbed.node import Node, lone_hub
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_OURS = "hybla_bpf"
_HOLDER_PORT = 4601
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


class NoProxy(Subject):
    """TCP end to end."""

    def __init__(self, congestion_control: str, name: str | None = None) -> None:
        self.name = name or f"no-proxy-{congestion_control}"
        self.congestion_control = congestion_control

    def start(self, testbed: Testbed) -> None:
        """Check that the kernel has the congestion control; a node brings ours."""
        if self.congestion_control == _OURS and not missing("underpass"):
            config = {
                **lone_hub(testbed, "bpf", _HOLDER_PORT),
                "tcp": {"congestion_control": [_OURS]},
            }
            holder = Node(testbed, "bpf-holder", testbed.hub, config)
            holder.process.wait_until(lambda: holder.carries(0))
        if self.congestion_control not in _AVAILABLE.read_text().split():
            raise UnavailableError(f"the kernel has no {self.congestion_control}")
        self._testbed = testbed

    def before_series(self) -> None:
        """Give the congestion control to both ends."""
        set_end_to_end(self._testbed, self.congestion_control)

    def access(self, origin_port: int = ports.HTTP) -> Access:
        """Return the origin itself."""
        return Access(self._testbed.terminal.client, DIRECT, addresses.ORIGIN, origin_port)


def set_end_to_end(testbed: Testbed, congestion_control: str) -> None:
    """Set what new connections of the origin and the first client use."""
    for namespace in (testbed.origin, testbed.terminal.client):
        namespace.set_congestion_control(congestion_control)
