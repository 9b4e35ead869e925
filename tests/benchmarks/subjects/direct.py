"""No proxy: plain TCP from client to origin, with one congestion control at both."""

from __future__ import annotations

from pathlib import Path

from tests.benchmarks.subjects.subject import COLD, Access, Subject, UnavailableError
from tests.testbed import addresses, ports
from tests.testbed.client.route import DIRECT
from tests.testbed.node import Node, lone_hub
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_OURS = "hybla_bpf"
_RIVALS = "cubic"
_HOLDER_PORT = 4601
_AVAILABLE = Path("/proc/sys/net/ipv4/tcp_available_congestion_control")


class NoProxy(Subject):
    """TCP end to end."""

    told = COLD

    def __init__(self, congestion_control: str, name: str | None = None) -> None:
        self.name = name or f"no-proxy-{congestion_control}"
        self.congestion_control = congestion_control

    def start(self, testbed: Testbed) -> None:
        """Check that the kernel has the congestion control; a node loads ours."""
        self._testbed = testbed
        self._holder: Node | None = None
        self._ensure()

    def _ensure(self) -> None:
        """Make sure that the control is registered, or raise.

        A control of ours that another process registered, on this machine or in another test
        bed, ends with that process; the kernel would then silently use its default.
        """
        if self.congestion_control == _OURS and not missing("underpass") and not self._there():
            self._hold()
        if not self._there():
            raise UnavailableError(f"the kernel has no {self.congestion_control}")

    def _there(self) -> bool:
        return self.congestion_control in _AVAILABLE.read_text().split()

    def _hold(self) -> None:
        if self._holder:
            self._holder.process.stop()
            self._holder.start()
        else:
            config = {
                **lone_hub(self._testbed, "bpf", _HOLDER_PORT),
                "tcp": {"congestion_control": [_OURS]},
            }
            self._holder = Node(self._testbed, "bpf-holder", self._testbed.hub, config)
        holder = self._holder
        holder.process.wait_until(lambda: holder.carries(0))

    def before_run(self) -> None:
        """Set the congestion control at both ends."""
        set_end_to_end(self._testbed, self.congestion_control)

    def access(self, origin_port: int = ports.HTTP) -> Access:
        """Return the origin itself; each run calls this, so its control exists when it begins."""
        self._ensure()
        return Access(self._testbed.terminal.client, DIRECT, addresses.ORIGIN, origin_port)


def set_end_to_end(testbed: Testbed, congestion_control: str) -> None:
    """Set the control of new connections of the origin and the first client.

    Terrestrial clients of the same origin always use cubic, so that all subjects have the same
    rivals.
    """
    for namespace in (testbed.origin, testbed.terminal.client):
        namespace.set_congestion_control(congestion_control)
    testbed.origin.set_congestion_control(_RIVALS, to=addresses.GROUND_NETWORK)
