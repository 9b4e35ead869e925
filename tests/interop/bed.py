"""One namespace in which our nodes and others use ports of the loopback."""

from __future__ import annotations

import contextlib
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from tests.testbed import addresses
from tests.testbed.applications import applications, bp
from tests.testbed.client.transfer import download, upload
from tests.testbed.namespace import Namespace, command, instance_prefix
from tests.testbed.node import HUB_NODE, Node, Options, Pair, terminal_node
from tests.testbed.process import Process
from tests.testbed.profile import PERFECT, Profile
from tests.testbed.programs import built
from tests.testbed.topology import Terminal, Testbed

NODE = 1
_STREAM_BYTES = 1_000_000


class LoopbackBed:
    """A context manager that removes everything at its end."""

    profile = PERFECT
    terrestrial_profile: Profile | None = None
    terminals: list[Terminal]

    def __init__(self, name: str) -> None:
        self.name = name
        self.stack = contextlib.ExitStack()
        self.terminals = []
        self.dir = Path(tempfile.mkdtemp(prefix=f"underpass-{name}-"))

    def __enter__(self) -> Self:
        self.hub = Namespace(instance_prefix() + self.name, forwarding=False)
        self.stack.callback(self.hub.delete)
        return self

    def __exit__(self, *_: object) -> None:
        self.stack.close()
        shutil.rmtree(self.dir)

    def start(self, name: str, argv: Sequence[str], namespace: Namespace | None = None) -> Process:
        """Start a program that ends with the context."""
        process = Process(name, argv, log_dir=self.dir, namespace=namespace)
        self.stack.callback(process.stop)
        return process

    def issue(self, *nodes: int) -> Path:
        """Make an authority and these nodes' certificates; return their `pki_dir`s' folder."""
        folder = self.dir / "pki"
        command([built("underpass"), "pki", "init", "--dir", str(folder)])
        for node in nodes:
            command([built("underpass"), "pki", "issue", "--dir", str(folder), "--node", str(node)])
        return folder / "nodes"

    def node_beside(
        self, neighbour: int, *, tls: Mapping[str, object], path: Mapping[str, object]
    ) -> Node:
        """Start our node `NODE` beside a foreign one, which does not support custody."""
        return Node(
            self,
            "underpass",
            self.hub,
            {
                "node": {"number": NODE, "role": "relay", "state_dir": self.dir / "state"},
                "tls": tls,
                "path": [{"neighbour": neighbour, **path}],
                "route": [{"node": neighbour, "via": neighbour, "custody": False}],
                **applications(self.dir, "underpass"),
            },
        )


def content(size: int) -> bytes:
    """Return a payload, always the same for a size."""
    return random.Random(size).randbytes(size)


def paths(node: Node) -> list[dict[str, Any]]:
    """Return a node's paths; empty while it starts."""
    try:
        paths: list[dict[str, Any]] = node.status()["paths"]
    except OSError:
        return []
    return paths


def sessions(node: Node) -> list[dict[str, Any]]:
    """Return a node's sessions on all paths."""
    return [session for path in paths(node) for session in path["sessions"]]


def wait_until_released(node: Node) -> None:
    """Wait until a node has nothing in custody, since others have signalled all bundles."""
    node.process.wait_until(lambda: node.api.get("/v1/custody")["bundles"] == 0)


class Received(NamedTuple):
    """A bundle delivered to an application."""

    source: str
    payload: bytes


def received(node: Node, service: int, count: int) -> list[Received]:
    """Return the next bundles for a node's service, fewer if no more come."""
    folder = Path(tempfile.mkdtemp(dir=node.config_path.parent))
    told = bp(
        node,
        *("receive", "--service", str(service), "--count", str(count)),
        *("--timeout", "40", "--folder", str(folder)),
        timeout_s=100.0,
    )
    return [Received(each["source"], Path(each["file"]).read_bytes()) for each in told]


def payloads(bundles: Sequence[Received]) -> list[bytes]:
    """Return the bundles' payloads, sorted."""
    return sorted(bundle.payload for bundle in bundles)


def assert_streams_pass(
    bed: Testbed, relay: int, *, terminal: Mapping[str, object], hub: Mapping[str, object]
) -> None:
    """Download and upload across the foreign node `number`, with custody from end to end.

    The mappings are each end's `[[path]]` to it.
    """

    def by_relay(path: Mapping[str, object], beyond: int) -> dict[str, object]:
        return {"path": [path], "route": [{"node": beyond, "via": relay}]}

    pair = Pair(
        bed,
        Options(
            tls=False,
            terminal=by_relay(terminal, HUB_NODE),
            hub={"listener": [], "terminal": [], **by_relay(hub, terminal_node(0))},
        ),
    )
    for transfer in (download, upload):
        done = transfer(pair.client, addresses.ORIGIN, _STREAM_BYTES, route=pair.socks5())
        assert done.error is None
        assert done.complete
    # Neither end has a bundle left in custody: the other end has signalled them all.
    for node in (pair.terminal, pair.hub):
        wait_until_released(node)
