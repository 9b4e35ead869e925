"""Everything in one namespace: the cost of the programs, without a hop."""

from __future__ import annotations

from tests.testbed import addresses, ports
from tests.testbed.namespace import Namespace, instance_prefix
from tests.testbed.profile import PERFECT, Profile
from tests.testbed.programs import origin_argv
from tests.testbed.temporary import TemporaryBed
from tests.testbed.topology import Terminal, listens


class Loopback(TemporaryBed):
    """Terminal, hub and origin on the loopback of one namespace, with the test bed's addresses."""

    profile = PERFECT
    terrestrial_profile: Profile | None = None

    def __init__(self) -> None:
        super().__init__("loopback")

    def _build(self) -> None:
        self.hub = Namespace(instance_prefix() + "loopback", forwarding=False)
        self._stack.callback(self.hub.delete)
        for address in (
            addresses.HUB_SAT,
            addresses.HUB_WAN,
            addresses.ORIGIN,
            addresses.terminal_lan(0),
        ):
            self.hub.ip("address", "add", f"{address}/32", "dev", "lo")
        # A hub announces the address families that it has a route for.
        self.hub.ip("route", "add", "default", "dev", "lo")
        self.terminals = [Terminal(0, self.hub, self.hub)]
        origin = self.start("origin", origin_argv(), self.hub)
        origin.wait_until(lambda: listens(self.hub, ports.RESETTING))
