"""Underpass itself: the full mode of two nodes."""

from __future__ import annotations

from collections.abc import Sequence

from tests.benchmarks.subjects.direct import set_end_to_end
from tests.benchmarks.subjects.subject import Access, Subject, UnavailableError
from tests.testbed import addresses, ports
from tests.testbed.node import Options, Pair
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_OFFSETS = {"underpass": 0, "underpass-hybla": 1}


class Underpass(Subject):
    """A terminal's and a hub's node, TLS on; clients use the terminal's HTTP proxy."""

    def __init__(self, name: str, congestion_control: Sequence[str] | None) -> None:
        self.name = name
        self._congestion_control = congestion_control

    def start(self, testbed: Testbed) -> None:
        """Start the pair and wait for its sessions."""
        reason = missing("underpass")
        if reason:
            raise UnavailableError(reason)
        self._client = testbed.terminal.client
        self._testbed = testbed
        self.pair = Pair(
            testbed,
            Options(congestion_control=self._congestion_control),
            name=f"-{self.name}",
            port_offset=_OFFSETS[self.name],
        )

    def before_series(self) -> None:
        """Leave the origin its kernel's default."""
        set_end_to_end(self._testbed, "cubic")

    def access(self, origin_port: int = ports.HTTP) -> Access:
        """Return the terminal's HTTP proxy, by CONNECT for what is not HTTP."""
        route = self.pair.http_forward() if origin_port == ports.HTTP else self.pair.http_connect()
        return Access(self._client, route, addresses.ORIGIN, origin_port)
