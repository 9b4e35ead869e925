"""The network of the test bed: client, terminal, satellite hop, hub, origin, and plain IP
from end to end."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from tests.testbed import addresses, ports
from tests.testbed.namespace import Namespace, instance_prefix, join
from tests.testbed.profile import PROFILE_G, Profile
from tests.testbed.programs import origin_argv
from tests.testbed.satlink import Device, Satlink, Station
from tests.testbed.temporary import TemporaryBed

T = TypeVar("T")

_SAT_DEVICE = "sat"
_TERRESTRIAL_DEVICE = "terr"


@dataclass(frozen=True)
class Terminal:
    """A terminal's namespace and that of its client."""

    index: int
    node: Namespace
    client: Namespace

    @property
    def name(self) -> str:
        """Return its name in satlink's control."""
        return f"t{self.index}"


class Testbed(TemporaryBed):
    """The network as a context manager, which removes it at its end.

    Each terminal has the profile's links for itself; with `shared`, all terminals share them.

    With `wan`, a router stands between hub and origin: the link from it to the origin is
    emulated too, and shared with the terrestrial clients in the namespace `ground`.

    `sysctls` are set in every namespace, overriding the test bed's own.
    """

    __test__ = False

    def __init__(
        self,
        profile: Profile = PROFILE_G,
        *,
        terminals: int = 1,
        shared: bool = False,
        terrestrial: Profile | None = None,
        wan: Profile | None = None,
        sysctls: Mapping[str, str] | None = None,
        seed: int = 1,
    ) -> None:
        super().__init__("testbed")
        self.profile = profile
        self.prefix = instance_prefix()
        self._terminal_count = terminals
        self._shared = shared
        self.terrestrial_profile = terrestrial
        self._wan_profile = wan
        self._sysctls = dict(sysctls or {})
        self._seed = seed
        self.terminals: list[Terminal] = []
        self.terrestrial: Satlink | None = None

    def namespace(self, name: str, *, forwarding: bool = False) -> Namespace:
        """Make a namespace that is removed with the test bed."""
        namespace = Namespace(self.prefix + name, forwarding=forwarding)
        self._stack.callback(namespace.delete)
        if self._sysctls:
            namespace.sysctl(**self._sysctls)
        return namespace

    def keep(self, context: contextlib.AbstractContextManager[T]) -> T:
        """Enter a context; the test bed leaves it when it ends."""
        return self._stack.enter_context(context)

    @property
    def terminal(self) -> Terminal:
        """Return the first terminal."""
        return self.terminals[0]

    def _build(self) -> None:
        self.hub = self.namespace("hub", forwarding=True)
        self.hub.set_resolver(addresses.ORIGIN)
        self.origin = self.namespace("origin")
        if self._wan_profile:
            self._wire_wan(self._wan_profile)
        else:
            self._wire_origin()
        for index in range(self._terminal_count):
            self.terminals.append(self._wire_terminal(index))
        self.satlink = self._start_hop(
            "satlink", _SAT_DEVICE, self.profile, shared=self._shared, default_route=True
        )
        if self.terrestrial_profile:
            self.terrestrial = self._start_hop(
                "terrestrial", _TERRESTRIAL_DEVICE, self.terrestrial_profile
            )
        origin = self.start("origin", origin_argv(), self.origin)
        origin.wait_until(lambda: listens(self.origin, ports.RESETTING))

    def _wire_origin(self) -> None:
        join(self.hub, "wan", self.origin, "eth0")
        _address(self.hub, "wan", f"{addresses.HUB_WAN}/24", f"{addresses.HUB_WAN6}/64")
        _address(self.origin, "eth0", f"{addresses.ORIGIN}/24", f"{addresses.ORIGIN6}/64")
        self.origin.ip("route", "add", "default", "via", addresses.HUB_WAN)
        self.origin.ip("-6", "route", "add", "default", "via", addresses.HUB_WAN6)
        # The origin stands for the Internet.
        self.hub.ip("route", "add", "default", "via", addresses.ORIGIN)
        self.hub.ip("-6", "route", "add", "default", "via", addresses.ORIGIN6)

    def _wire_wan(self, profile: Profile) -> None:
        """Wire hub and ground clients to a router, and that by a second satlink to the origin."""
        router = self.namespace("router", forwarding=True)
        self.ground = self.namespace("ground")
        join(self.hub, "wan", router, "hub")
        join(self.ground, "eth0", router, "ground")
        _address(self.hub, "wan", f"{addresses.HUB_WAN}/24", f"{addresses.HUB_WAN6}/64")
        _address(router, "hub", f"{addresses.ROUTER_WAN}/24", f"{addresses.ROUTER_WAN6}/64")
        _address(
            router, "ground", f"{addresses.ROUTER_GROUND}/24", f"{addresses.ROUTER_GROUND6}/64"
        )
        _address(self.ground, "eth0", f"{addresses.GROUND}/24", f"{addresses.GROUND6}/64")
        self.ground.ip("route", "add", "default", "via", addresses.ROUTER_GROUND)
        # The origin's address is in the hub's own network, yet the origin is behind the router.
        for destination in (f"{addresses.ORIGIN}/32", "default"):
            self.hub.ip("route", "add", destination, "via", addresses.ROUTER_WAN)
        router.ip("route", "add", addresses.CLIENT_NETWORKS, "via", addresses.HUB_WAN)
        behind = [addresses.WAN_NETWORK, addresses.GROUND_NETWORK, addresses.CLIENT_NETWORKS]
        Satlink(
            Device(self.origin.name, "net", [f"{addresses.ORIGIN}/32"], behind),
            [
                Station(
                    "router",
                    Device(router.name, "net", [], [f"{addresses.ORIGIN}/32"]),
                    behind,
                    profile,
                )
            ],
            shared=None,
            seed=self._seed,
            directory=self.dir,
            name="wan",
            start=self.start,
        )

    def _wire_terminal(self, index: int) -> Terminal:
        node = self.namespace(f"t{index}", forwarding=True)
        client = self.namespace(f"c{index}")
        join(node, "lan", client, "eth0")
        lan, lan6 = addresses.terminal_lan(index), addresses.terminal_lan6(index)
        _address(node, "lan", f"{lan}/24", f"{lan6}/64")
        _address(client, "eth0", f"{addresses.client(index)}/24", f"{addresses.client6(index)}/64")
        client.ip("route", "add", "default", "via", lan)
        client.ip("-6", "route", "add", "default", "via", lan6)
        return Terminal(index, node, client)

    def _start_hop(
        self,
        name: str,
        device: str,
        profile: Profile,
        *,
        shared: bool = False,
        default_route: bool = False,
    ) -> Satlink:
        """Start a satlink between the hub and all terminals.

        Plain IP's default route is on the first hop; another hop carries only what is bound to it.
        """
        sat = device == _SAT_DEVICE
        hub = Device(
            self.hub.name,
            device,
            [f"{addresses.HUB_SAT}/16", f"{addresses.HUB_SAT6}/64"]
            if sat
            else [f"{addresses.HUB_TERRESTRIAL}/16", f"{addresses.HUB_TERRESTRIAL6}/64"],
            [addresses.CLIENT_NETWORKS, addresses.CLIENT_NETWORKS6] if default_route else [],
        )
        stations = [
            Station(
                terminal.name,
                Device(
                    terminal.node.name,
                    device,
                    [
                        f"{addresses.terminal_sat(terminal.index)}/16",
                        f"{addresses.terminal_sat6(terminal.index)}/64",
                    ]
                    if sat
                    else [
                        f"{addresses.terminal_terrestrial(terminal.index)}/16",
                        f"{addresses.terminal_terrestrial6(terminal.index)}/64",
                    ],
                    ["0.0.0.0/0", "::/0"] if default_route else [],
                ),
                [
                    addresses.client_network(terminal.index),
                    addresses.client_network6(terminal.index),
                ],
                profile,
            )
            for terminal in self.terminals
        ]
        return Satlink(
            hub,
            stations,
            shared=profile if shared else None,
            seed=self._seed,
            directory=self.dir,
            name=name,
            start=self.start,
        )


def _address(namespace: Namespace, interface: str, ipv4: str, ipv6: str) -> None:
    namespace.ip("address", "add", ipv4, "dev", interface)
    # Without duplicate address detection, which would delay the address by a second.
    namespace.ip("address", "add", ipv6, "dev", interface, "nodad")


def listens(namespace: Namespace, port: int) -> bool:
    """Tell whether a program listens on a TCP port of a namespace."""
    return bool(namespace.run("ss", "-Hltn", f"sport = :{port}").strip())
