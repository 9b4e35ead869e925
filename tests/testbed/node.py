"""The nodes of the test bed: `underpass` at the terminals and the hub, configured and started."""

from __future__ import annotations

import contextlib
import copy
import functools
import http.client
import json
import socket
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Generic, Literal, Protocol, TypeVar

from underpass_control.toml_text import toml_text

from tests.testbed import addresses, ports
from tests.testbed.client.route import Route
from tests.testbed.namespace import Namespace, command
from tests.testbed.process import Process
from tests.testbed.profile import Profile
from tests.testbed.programs import built
from tests.testbed.topology import Terminal

HUB_NODE = 1
TCPCL_PORT = 4556
SOCKS_PORT = 1080
HTTP_PORT = 3128
TRANSPARENT_PORT = 7000
_FIRST_TERMINAL_NODE = 10


class Bed(Protocol):
    """The place of a pair: the emulated topology, or one loopback."""

    dir: Path
    hub: Namespace
    terminals: list[Terminal]

    @property
    def profile(self) -> Profile:
        """Return the hop's profile."""

    @property
    def terrestrial_profile(self) -> Profile | None:
        """Return the terrestrial hop's profile, if there is one."""

    def start(self, name: str, argv: Sequence[str], namespace: Namespace | None = None) -> Process:
        """Start a program that ends with the test bed."""


class ApiError(RuntimeError):
    """The local API answered with an error, whose text this is."""


class LocalApi:
    """A node's HTTP API on its Unix socket."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def get(self, path: str) -> Any:
        """Return the JSON of a page."""
        return json.loads(self.request("GET", path))

    def request(self, method: str, path: str, body: object = None) -> str:
        """Send a request, return the answer's text; raise `ApiError` unless it is a success."""
        connection = http.client.HTTPConnection("localhost", timeout=60)
        connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.sock.settimeout(60)
        try:
            connection.sock.connect(str(self.path))
            text = None if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            content = answer.read().decode()
        finally:
            connection.close()
        if answer.status >= 300:
            raise ApiError(f"{method} {path}: {answer.status} {content}")
        return content

    @contextlib.contextmanager
    def following(self, path: str) -> Iterator[Iterator[Any]]:
        """Yield an iterator of an endless page's JSON lines; leaving the context ends it."""
        connection = http.client.HTTPConnection("localhost")
        sock = connection.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            sock.connect(str(self.path))
            connection.request("GET", path)
            answer = connection.getresponse()
            if answer.status >= 300:
                raise ApiError(f"GET {path}: {answer.status} {answer.read().decode()}")
            yield (json.loads(line) for line in answer if line.strip())
        finally:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()

    def metrics(self) -> dict[str, float]:
        """Return the metrics by name with labels, as Prometheus would read them."""
        samples = (
            line.rpartition(" ")
            for line in self.request("GET", "/metrics").splitlines()
            if line and not line.startswith("#")
        )
        return {name: float(value) for name, _, value in samples}

    def intercept(self, *, enabled: bool) -> None:
        """Switch the node's interception on or off; open connections continue."""
        self.request("PATCH", "/v1/edge", {"interception": {"enabled": enabled}})

    def plan_blockages(
        self, blockages: Sequence[tuple[float, float]], path: str | None = None
    ) -> None:
        """Replace the blockage plan of one path, or of all.

        Entries are in s since the Unix epoch, durations in s.
        """
        table = [{"entry": _utc(at), "exit": _utc(at + length)} for at, length in blockages]
        names = [path] if path else [each["name"] for each in self.get("/v1/status")["paths"]]
        for name in names:
            self.request("PUT", f"/v1/paths/{name}/blockages", {"blockages": table})

    def announce(self, *, in_s: float, duration_s: float, confidence: float) -> None:
        """Announce a blockage to the control service, as an integrator on board does."""
        body = {"in_s": in_s, "duration_s": duration_s, "confidence": confidence}
        self.request("POST", "/v1/announcements", body)

    def block(self) -> None:
        """Stop all sending."""
        self.request("POST", "/v1/link/block")

    def unblock(self) -> None:
        """Resume sending."""
        self.request("POST", "/v1/link/unblock")


class Node:
    """One `underpass` in a namespace."""

    def __init__(
        self,
        testbed: Bed,
        name: str,
        namespace: Namespace,
        config: Mapping[str, object],
        *,
        wrapper: Sequence[str] = (),
    ) -> None:
        """Start it; `wrapper` is a command line to put before the program's own."""
        self.name = name
        self._wrapper = wrapper
        self.namespace = namespace
        self.config_path = testbed.dir / f"{name}.toml"
        self.api = LocalApi(testbed.dir / f"{name}.sock")
        self.config_path.write_text(
            toml_text(
                merged(
                    config,
                    {
                        "api": {"socket": self.api.path},
                        "log": {"level": "info,underpass=debug"},
                    },
                )
            )
        )
        self._testbed = testbed
        self.start()

    def start(self) -> None:
        """Start it, also again after `process.kill`."""
        argv = [*self._wrapper, built("underpass"), "run", "--config", str(self.config_path)]
        self.process = self._testbed.start(self.name, argv, self.namespace)

    def status(self) -> dict[str, Any]:
        """Return its status by its local API."""
        status: dict[str, Any] = self.api.get("/v1/status")
        return status

    def upgrade(self) -> None:
        """Upgrade it in place, to another process of the same program."""
        answer = json.loads(self.api.request("POST", "/v1/upgrade"))
        self.process.goes_on_as(answer["process"])

    def carries(self, neighbours: int) -> bool:
        """Tell whether it has so many neighbours with a session that carries data."""
        try:
            paths = self.status()["paths"]
        except (OSError, ValueError, http.client.HTTPException):
            return False
        up = [p for p in paths if p["up"] and any(s["carrying"] for s in p["sessions"])]
        return len(up) >= neighbours


# What the nodes' configuration has of a hop: its rates as ceilings and its round trip; its rates
# as hints to start measuring from; or nothing.
Told = Literal["rates", "hints", "nothing"]
PathName = Literal["satellite", "terrestrial"]
# The capabilities that a node can use and a container lacks by default.
_PLAIN_CONTAINER = "-net_admin,-sys_admin,-bpf,-perfmon,-sys_resource,-sys_nice"
_PLAIN_RIGHTS = (
    *("setpriv", "--bounding-set", _PLAIN_CONTAINER, "--inh-caps", _PLAIN_CONTAINER, "--"),
)


@dataclass(frozen=True)
class Options:
    """How the nodes of a pair differ from the default; mappings are merged into configurations."""

    tls: bool = True
    congestion_control: Sequence[str] | None = None
    # The convergence layer of the sessions; None: the default.
    convergence_layer: Literal["tcpcl", "quic"] | None = None
    told: Told = "rates"
    # The paths between terminals and hub, over the test bed's hops of these names.
    paths: Sequence[PathName] = ("satellite",)
    # The `meter` of metered paths, at both ends.
    meters: Mapping[PathName, Mapping[str, object]] = field(default_factory=dict)
    # The `on_demand` of paths that the terminals bring up when needed.
    on_demand: Mapping[PathName, Mapping[str, object]] = field(default_factory=dict)
    # The path on which the terminals, or the hub, only receive.
    terminal_receives: PathName | None = None
    hub_receives: PathName | None = None
    # Whether the nodes have only a plain container's rights: no BPF, no CAP_NET_ADMIN.
    unprivileged: bool = False
    # The `wrapper` of each terminal's `Node`.
    terminal_wrapper: Sequence[str] = ()
    # A terminal's sending rate before the first plan; None: the rate of its link.
    return_rate_bps: int | None = None
    # Merged into the configuration of all terminals, of the hub: tables merge, lists replace.
    terminal: Mapping[str, object] = field(default_factory=dict)
    hub: Mapping[str, object] = field(default_factory=dict)
    # Merged into one terminal's configuration, by its index.
    only: Mapping[int, Mapping[str, object]] = field(default_factory=dict)


B = TypeVar("B", bound=Bed)


def transparent(interface: str, **listener: object) -> dict[str, object]:
    """Return the edge's tables that intercept all TCP of clients behind an interface."""
    return {
        "listener": [
            {
                "name": "transparent",
                "protocol": "transparent",
                "address": f"[::]:{TRANSPARENT_PORT}",
                **listener,
            }
        ],
        "interception": {
            "client_networks": [addresses.CLIENT_NETWORKS, addresses.CLIENT_NETWORKS6],
            "interfaces": [interface],
        },
    }


def all_listeners(index: int) -> dict[str, object]:
    """Return the edge's tables of a terminal with both proxies and interception."""
    edge = transparent("lan")
    taken_in = edge["listener"]
    assert isinstance(taken_in, list)
    return {**edge, "listener": [*_proxies(index, 0), *taken_in]}


def lone_hub(testbed: Bed, name: str, port: int) -> dict[str, object]:
    """Return the configuration of a hub whose terminal never connects."""
    return {
        "node": {
            "number": HUB_NODE,
            "role": "hub",
            "state_dir": testbed.dir / f"state-{name}",
            "drain_s": 2,
        },
        "tls": {"plain": True},
        "listener": [{"name": "none", "listen": f"127.0.0.1:{port}"}],
        "terminal": [{"node": _FIRST_TERMINAL_NODE}],
    }


class Pair(Generic[B]):
    """A hub and its terminals, ready: with certificates, sessions up, and proxies listening."""

    def __init__(
        self,
        testbed: B,
        options: Options | None = None,
        *,
        name: str = "",
        port_offset: int = 0,
    ) -> None:
        """Start the nodes; `name` and `port_offset` separate several pairs on one test bed."""
        self.testbed = testbed
        self._options = options or Options()
        self._name = name
        self._offset = port_offset
        self._pki = testbed.dir / f"pki{name}"
        if self._options.tls:
            self._make_certificates()
        rights = _PLAIN_RIGHTS if self._options.unprivileged else ()
        self.hub = Node(testbed, f"hub{name}", testbed.hub, self._hub_config(), wrapper=rights)
        self.terminals = [
            Node(
                testbed,
                f"{terminal.name}{name}",
                terminal.node,
                self._terminal_config(terminal),
                wrapper=[*rights, *self._options.terminal_wrapper],
            )
            for terminal in testbed.terminals
        ]
        self.wait_until_ready()

    def stop(self) -> None:
        """End its nodes."""
        for node in (*self.terminals, self.hub):
            node.process.stop()

    def start_again(self) -> None:
        """Start its nodes again after `stop`, with their stored state."""
        for node in (self.hub, *self.terminals):
            node.start()
        self.wait_until_ready()

    @property
    def client(self) -> Namespace:
        """Return the namespace of the first terminal's client."""
        return self.testbed.terminals[0].client

    @property
    def terminal(self) -> Node:
        """Return the first terminal's node."""
        return self.terminals[0]

    def wait_until_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until every session is up on both sides, except on paths on demand."""
        # The hub first: after a restart it has no old session, while a terminal may still have one.
        paths = len([p for p in self._options.paths if p not in self._options.on_demand])
        self.hub.process.wait_until(
            lambda: self.hub.carries(paths * len(self.terminals)), timeout_s=timeout_s
        )
        for node in self.terminals:
            node.process.wait_until(functools.partial(node.carries, paths), timeout_s=timeout_s)

    def socks5(self, index: int = 0) -> Route:
        """Return the way through a terminal's SOCKS5 proxy."""
        return Route("socks5", (addresses.terminal_lan(index), SOCKS_PORT + self._offset))

    def http_connect(self, index: int = 0) -> Route:
        """Return the way through a terminal's HTTP proxy, by CONNECT."""
        return Route("connect", (addresses.terminal_lan(index), HTTP_PORT + self._offset))

    def http_forward(self, index: int = 0) -> Route:
        """Return the way through a terminal's HTTP proxy, by forwarded requests."""
        return Route("forward", (addresses.terminal_lan(index), HTTP_PORT + self._offset))

    def plan_blockages(
        self, blockages: Sequence[tuple[float, float]], path: PathName | None = None
    ) -> None:
        """Tell all nodes when the terminals will be blocked, on one path or all.

        Entries are in s since the Unix epoch, durations in s.
        """
        for node in self.terminals:
            node.api.plan_blockages(blockages, path)
        # A plan's times are times of transmission; the hub's data reaches the terminal later.
        delay_s = self._profile(path or "satellite").forward.delay_ms / 1000
        sent = [(at - delay_s, length) for at, length in blockages]
        if path is None:
            self.hub.api.plan_blockages(sent)
            return
        for terminal in self.testbed.terminals:
            self.hub.api.plan_blockages(sent, self.hub_path(path, terminal.index))

    def hub_path(self, path: PathName, index: int = 0) -> str:
        """Return the hub's name for a terminal's path."""
        own, *_ = self._options.paths
        name = f"terminal-{terminal_node(index)}"
        return name if path == own else f"{name}-{_listener_of(path)}"

    def _make_certificates(self) -> None:
        underpass = built("underpass")
        command([underpass, "pki", "init", "--dir", str(self._pki)])
        for number in (HUB_NODE, *map(terminal_node, range(len(self.testbed.terminals)))):
            command([underpass, "pki", "issue", "--dir", str(self._pki), "--node", str(number)])

    def _shared(self, number: int, role: str) -> dict[str, object]:
        options = self._options
        return {
            "node": {
                "number": number,
                "role": role,
                "state_dir": self.testbed.dir / f"state-{number}{self._name}",
                "drain_s": 2,
            },
            "tls": (
                {"pki_dir": self._pki / "nodes" / str(number)} if options.tls else {"plain": True}
            ),
            "tcp": {"congestion_control": options.congestion_control},
        }

    def _hub_config(self) -> dict[str, object]:
        own, *others = self._options.paths
        return merged(
            {
                **self._shared(HUB_NODE, "hub"),
                # By default a hub refuses the origin's networks, and its own address, which the
                # origin has on the loopback bed.
                "edge": {
                    "dial": {
                        "allow_networks": [
                            addresses.WAN_NETWORK,
                            addresses.WAN_NETWORK6,
                            f"{addresses.ORIGIN}/32",
                        ]
                    }
                },
                "listener": [self._listener(path) for path in self._options.paths],
                "terminal": [
                    {
                        "node": terminal_node(terminal.index),
                        **self._told_at_hub(own),
                        "networks": [
                            addresses.client_network(terminal.index),
                            addresses.client_network6(terminal.index),
                        ],
                        "path": [
                            {"listener": _listener_of(path), **self._told_at_hub(path)}
                            for path in others
                        ]
                        or None,
                    }
                    for terminal in self.testbed.terminals
                ],
            },
            self._options.hub,
        )

    def _profile(self, path: PathName) -> Profile:
        beside = self.testbed.terrestrial_profile
        profile = self.testbed.profile if path == "satellite" else beside
        assert profile is not None, "the test bed has no terrestrial hop"
        return profile

    def _remote(self, path: PathName) -> str:
        sat = path == "satellite"
        hub = addresses.HUB_SAT if sat else addresses.HUB_TERRESTRIAL
        return f"{hub}:{TCPCL_PORT + self._offset}"

    def _listener(self, path: PathName) -> dict[str, object]:
        return {
            "name": _listener_of(path),
            "listen": self._remote(path),
            "convergence_layer": self._options.convergence_layer,
        }

    def _told_at_hub(self, path: PathName) -> dict[str, object]:
        profile = self._profile(path)
        return {
            **self._told(profile, profile.forward.rate_bps, profile.return_.rate_bps),
            "direction": "receive" if path == self._options.hub_receives else "both",
            "meter": self._options.meters.get(path),
            "on_demand": self._asked_for(path),
        }

    def _asked_for(self, path: PathName) -> dict[str, object] | None:
        """Return the hub's configuration of a path that the terminals bring up."""
        told = self._options.on_demand.get(path)
        if told is None:
            return None
        when = {key: told[key] for key in ("within_s", "others_down_s") if key in told}
        return {"path": path, **when}

    def _told(
        self, profile: Profile, send_bps: int | None, receive_bps: int | None
    ) -> dict[str, object]:
        if self._options.told == "nothing":
            return {}
        if self._options.told == "hints":
            return {"rate_hint_bps": send_bps}
        return {
            "send_rate_bps": send_bps,
            "receive_rate_bps": receive_bps,
            "rtt_ms": max(1, round(profile.rtt_ms)),
        }

    def _path(self, path: PathName, index: int) -> dict[str, object]:
        profile = self._profile(path)
        sat = path == "satellite"
        own = addresses.terminal_sat(index) if sat else addresses.terminal_terrestrial(index)
        return {
            "name": path,
            "neighbour": HUB_NODE,
            "remote": self._remote(path),
            "local": own if len(self._options.paths) > 1 else None,
            "convergence_layer": self._options.convergence_layer,
            **self._told(profile, profile.return_.rate_bps, profile.forward.rate_bps),
            "guaranteed_rate_bps": self._options.return_rate_bps if sat else None,
            "direction": "receive" if path == self._options.terminal_receives else "both",
            "meter": self._options.meters.get(path),
            "on_demand": self._options.on_demand.get(path),
        }

    def _terminal_config(self, terminal: Terminal) -> dict[str, object]:
        return merged(
            {
                **self._shared(terminal_node(terminal.index), "terminal"),
                "path": [self._path(path, terminal.index) for path in self._options.paths],
                "outlet": [{"node": HUB_NODE}],
                "edge": {
                    "client_networks": [addresses.CLIENT_NETWORKS, addresses.CLIENT_NETWORKS6],
                    "listener": _proxies(terminal.index, self._offset),
                    "rule": [
                        {"ports": [ports.ECHO], "class": "interactive"},
                        {"ports": [ports.IPERF], "class": "bulk"},
                    ],
                },
            },
            merged(self._options.terminal, self._options.only.get(terminal.index, {})),
        )


def _listener_of(path: PathName) -> str:
    """Return the name of the hub's listener for a path."""
    return "beam" if path == "satellite" else path


def _utc(since_epoch_s: float) -> str:
    return datetime.fromtimestamp(since_epoch_s, UTC).isoformat(timespec="milliseconds")


def terminal_node(index: int) -> int:
    """Return the node number of terminal `index`."""
    return _FIRST_TERMINAL_NODE + index


def merged(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    """Merge `over` into `base`: tables merge, anything else is replaced."""
    result = dict(copy.deepcopy(dict(base)))
    for key, value in over.items():
        below = result.get(key)
        if isinstance(value, Mapping) and isinstance(below, Mapping):
            result[key] = merged(below, value)
        else:
            result[key] = value
    return result


def _proxies(index: int, offset: int) -> list[dict[str, object]]:
    lan = addresses.terminal_lan(index)
    return [
        _listener("socks", "socks5", lan, SOCKS_PORT + offset),
        _listener("http", "http", lan, HTTP_PORT + offset),
    ]


def _listener(name: str, protocol: str, address: str, port: int) -> dict[str, object]:
    return {"name": name, "protocol": protocol, "address": f"{address}:{port}"}
