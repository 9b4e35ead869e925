"""Underpass itself: as two nodes, and as a single box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from tests.benchmarks.subjects.direct import NoProxy, set_end_to_end
from tests.benchmarks.subjects.subject import COLD, Access, Subject, UnavailableError
from tests.testbed import addresses, ports
from tests.testbed.client.route import DIRECT
from tests.testbed.node import (
    HUB_NODE,
    TCPCL_PORT,
    Node,
    Options,
    Pair,
    PathName,
    Told,
    lone_hub,
    terminal_node,
    transparent,
)
from tests.testbed.profile import Profile
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

# What the test bed's pairs of nodes are told.
TOLD_PAIR = "rate of both directions and RTT; warm: sessions up"
# What they are told if they measure the hop themselves.
TOLD_HINT = "rate of both directions as a hint; warm: sessions up"
# What they are told on one loopback, without a hop.
TOLD_NOTHING = "nothing; warm: sessions up"

_OFFSETS = {
    "underpass": 0,
    "underpass-hybla": 1,
    "underpass-quic": 2,
    "underpass-satellite": 3,
    "underpass-terrestrial": 4,
    "underpass-new-connection": 5,
    "underpass-bonded": 6,
    "underpass-mptcp": 7,
    "underpass-failover": 8,
    "underpass-quic-failover": 9,
    "underpass-gold-alone": 10,
    "underpass-second": 11,
}
_SINGLE_BOX_PORT = 4600
# What a first start has measured by, each way: bytes, and the most time, s.
_LEARNING = (100_000_000, 10.0)


class Underpass(Subject):
    """A terminal's and a hub's node, TLS on; clients use the terminal's HTTP proxy."""

    def __init__(
        self,
        name: str,
        congestion_control: Sequence[str] | None,
        *,
        convergence_layer: Literal["tcpcl", "quic"] | None = None,
        hub: Mapping[str, object] | None = None,
        terminal: Mapping[str, object] | None = None,
        told: Told = "rates",
        unprivileged: bool = False,
        paths: Sequence[PathName] = ("satellite",),
        terminal_receives: PathName | None = None,
        hub_receives: PathName | None = None,
        on_demand: Mapping[PathName, Mapping[str, object]] | None = None,
    ) -> None:
        """Take also additions to the nodes' configurations, and what the nodes are told."""
        self.name = name
        self.told = {"rates": TOLD_PAIR, "hints": TOLD_HINT, "nothing": TOLD_NOTHING}[told]
        self._options = Options(
            congestion_control=congestion_control,
            convergence_layer=convergence_layer,
            hub=hub or {},
            terminal=terminal or {},
            told=told,
            unprivileged=unprivileged,
            paths=paths,
            terminal_receives=terminal_receives,
            hub_receives=hub_receives,
            on_demand=on_demand or {},
        )

    def start(self, testbed: Testbed) -> None:
        """Start the pair and wait for its sessions."""
        reason = missing("underpass")
        if reason:
            raise UnavailableError(reason)
        self._client = testbed.terminal.client
        self._testbed = testbed
        self.pair = Pair(
            testbed,
            self._options,
            name=f"-{self.name}",
            port_offset=_OFFSETS.get(self.name, 0),
        )

    def before_run(self) -> None:
        """Set the origin's congestion control to the kernel's default."""
        set_end_to_end(self._testbed, "cubic")

    def access(self, origin_port: int = ports.HTTP) -> Access:
        """Return the terminal's HTTP proxy, with CONNECT for ports other than HTTP."""
        route = self.pair.http_forward() if origin_port == ports.HTTP else self.pair.http_connect()
        return Access(self._client, route, addresses.ORIGIN, origin_port)


class SecondStart(Underpass):
    """The same on its second start: stopped and started again before each run, with its state.

    Before its first run it has measured the hop in both directions.
    """

    def __init__(self, told: Told, *, unprivileged: bool = False) -> None:
        """Take what the nodes are told beside what they have measured."""
        super().__init__("underpass-second", None, told=told, unprivileged=unprivileged)
        self.told += "; started again before each run, with what it had measured"
        self._has_measured = False

    def before_run(self) -> None:
        """Stop the nodes, and start them again."""
        super().before_run()
        if not self._has_measured:
            size, most_s = _LEARNING
            self.access().download(size, 1, most_s)
            self.access().upload(size, 1, most_s)
            self._has_measured = True
        self.pair.stop()
        self.pair.start_again()


class UnderpassOverMptcp(Underpass):
    """One path of two subflows: MPTCP begins terrestrially; the hub announces the satellite."""

    def __init__(self, terrestrial: Profile, satellite: Profile) -> None:
        """Take the hops; both nodes are told the sum of their rates."""
        name = "underpass-mptcp"
        port = TCPCL_PORT + _OFFSETS[name]
        hops = (terrestrial, satellite)
        forward_bps = sum(hop.forward.rate_bps or 0 for hop in hops)
        return_bps = sum(hop.return_.rate_bps or 0 for hop in hops)
        rtt_ms = round(max(hop.rtt_ms for hop in hops))
        listener = {
            "name": "terrestrial",
            "listen": f"0.0.0.0:{port}",
            "mptcp": True,
            "mptcp_endpoints": [{"address": addresses.HUB_SAT, "interface": "sat"}],
        }
        terminal = {
            "node": terminal_node(0),
            "send_rate_bps": forward_bps,
            "receive_rate_bps": return_bps,
            "rtt_ms": rtt_ms,
        }
        path = {
            "name": "terrestrial",
            "neighbour": HUB_NODE,
            "remote": f"{addresses.HUB_TERRESTRIAL}:{port}",
            "mptcp": True,
            "send_rate_bps": return_bps,
            "receive_rate_bps": forward_bps,
            "rtt_ms": rtt_ms,
        }
        super().__init__(
            name,
            None,
            hub={"listener": [listener], "terminal": [terminal]},
            terminal={"path": [path]},
            paths=("terrestrial",),
        )


class TransparentUnderpass(Underpass):
    """The same for clients without a proxy: the terminal intercepts their connections."""

    def __init__(self) -> None:
        super().__init__("underpass", None)
        self._origin_as: NoProxy | None = None

    def start(self, testbed: Testbed) -> None:
        """Start the pair with interception, which is off between runs."""
        reason = missing("underpass")
        if reason:
            raise UnavailableError(reason)
        self._client = testbed.terminal.client
        self._testbed = testbed
        self.pair = Pair(testbed, Options(terminal={"edge": transparent("lan")}))
        self.after_run()

    def before_run(self) -> None:
        """Intercept the client's connections."""
        super().before_run()
        if self._origin_as:
            self._origin_as.before_run()
        self.pair.terminal.api.intercept(enabled=True)

    def after_run(self) -> None:
        """Let them pass."""
        self.pair.terminal.api.intercept(enabled=False)

    def behind(self, origin_as: NoProxy) -> None:
        """Have the origin use the congestion control of a no-proxy subject."""
        self._origin_as = origin_as

    def access(self, origin_port: int = ports.HTTP) -> Access:
        """Return the origin itself: the terminal intercepts the connection on its way."""
        if self._origin_as:
            return self._origin_as.access(origin_port)
        return Access(self._client, DIRECT, addresses.ORIGIN, origin_port)


class SingleBox(Subject):
    """A hub alone: it intercepts and splits TCP that passes it, with Hybla to the satellite."""

    name = "single-box"
    told = COLD

    def start(self, testbed: Testbed) -> None:
        """Start the hub's node, with interception off between runs."""
        reason = missing("underpass")
        if reason:
            raise UnavailableError(reason)
        self._testbed = testbed
        edge = {
            "client_networks": [addresses.CLIENT_NETWORKS, addresses.CLIENT_NETWORKS6],
            **transparent("sat", congestion_control=["hybla", "hybla_bpf"]),
            "rule": [{"class": "normal", "direct": True}],
            "dial": {"allow_networks": [addresses.WAN_NETWORK, addresses.WAN_NETWORK6]},
        }
        config = {
            **lone_hub(testbed, "single-box", _SINGLE_BOX_PORT),
            # The node loads the control named here before its listeners use it.
            "tcp": {"congestion_control": ["hybla", "hybla_bpf"]},
            "edge": edge,
        }
        self._node = Node(testbed, "single-box", testbed.hub, config)
        self._node.process.wait_until(lambda: self._node.carries(0))
        self.after_run()

    def before_run(self) -> None:
        """Intercept the clients' connections at the hub."""
        set_end_to_end(self._testbed, "cubic")
        self._node.api.intercept(enabled=True)

    def after_run(self) -> None:
        """Let them pass."""
        self._node.api.intercept(enabled=False)

    def access(self, origin_port: int = ports.HTTP) -> Access:
        """Return the origin itself: the box intercepts the connection on its way."""
        client = self._testbed.terminal.client
        return Access(client, DIRECT, addresses.ORIGIN, origin_port)
