"""Bundles between two daemons of dtn7-rs 0.21.0 with Underpass as convergence layer (ECLA)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Self

import pytest

from tests.interop import dtn7
from tests.interop.bed import LoopbackBed, content, sessions, wait_until_released
from tests.testbed.applications import applications, bp
from tests.testbed.node import Node

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(
        dtn7.program("dtnd") is None,
        reason="dtn7-rs is not installed: `make interop` does so, or set DTN7_BIN",
    ),
]

_DAEMONS = (20, 21)
_NODES = (1, 2)
_WEB_PORTS = (3000, 3001)
_BETWEEN = "127.0.0.1:4561"
# `dtnsend` can pass the daemon at most 2 MB, the limit of its HTTP server.
_SIZES = (1, 100, 10_000, 60_000, 1_000_000, 1_900_000)
_LONG_BYTES = 40_000_000


def _has_session(node: Node) -> bool:
    return len(sessions(node)) >= 1


class World(LoopbackBed):
    """Daemon 20, node 1, node 2, daemon 21 in a row; the nodes use TCPCLv4 between them."""

    def __init__(self) -> None:
        super().__init__("ecla")

    def __enter__(self) -> Self:
        super().__enter__()
        self.daemons = [
            dtn7.Dtn7(self, self.hub, number=number, web_port=port, ecla=True)
            for number, port in zip(_DAEMONS, _WEB_PORTS, strict=True)
        ]
        between: tuple[dict[str, object], ...] = (
            {"path": [{"name": "hop", "neighbour": _NODES[1], "remote": _BETWEEN}]},
            {
                "path": [],
                "listener": [{"name": "hop", "listen": _BETWEEN}],
                "terminal": [{"node": _NODES[0]}],
            },
        )
        self.nodes = [self._node(index, between[index]) for index in range(2)]
        for node in self.nodes:
            node.process.wait_until(partial(_has_session, node))
        return self

    def _node(self, index: int, between: dict[str, object]) -> Node:
        own, other = _NODES[index], _NODES[1 - index]
        daemon, beyond = _DAEMONS[index], _DAEMONS[1 - index]
        ecla = {
            "name": "dtnd",
            "neighbour": daemon,
            "convergence_layer": "ecla",
            "remote": f"127.0.0.1:{_WEB_PORTS[index]}",
            "announces": [beyond],
        }
        paths = between["path"]
        assert isinstance(paths, list)
        return Node(
            self,
            f"node-{own}",
            self.hub,
            {
                **between,
                "node": {"number": own, "role": "relay", "state_dir": self.dir / f"state-{own}"},
                "tls": {"plain": True},
                "path": [*paths, ecla],
                "route": [
                    {"node": beyond, "via": other},
                ],
                **applications(self.dir, f"node-{own}"),
            },
        )

    def arrived(self, at: int, count: int) -> list[bytes]:
        """Return the next `count` payloads at a daemon, sorted; fewer if no more come."""
        return sorted(self.daemons[at].arrived(count, 60.0, reports=False))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World() as world:
        yield world


@pytest.mark.parametrize("source", [0, 1])
def test_bundles_of_a_daemon_reach_the_other_one(world: World, source: int) -> None:
    sent = sorted(content(size) for size in _SIZES)
    for payload in sent:
        world.daemons[source].send(f"ipn:{_DAEMONS[1 - source]}.{dtn7.SERVICE}", payload)
    assert world.arrived(1 - source, len(sent)) == sent
    # The nodes had them in custody, and all of it is signalled.
    wait_until_released(world.nodes[source])


def test_a_long_bundle_of_an_application_of_ours_reaches_a_daemon(world: World) -> None:
    sent = content(_LONG_BYTES)
    path = world.dir / "long"
    path.write_bytes(sent)
    bp(world.nodes[1], "send", f"ipn:{_DAEMONS[0]}.{dtn7.SERVICE}", str(path), timeout_s=300)
    assert world.arrived(0, 1) == [sent]


def test_what_a_daemon_sends_while_the_hop_is_down_arrives_when_it_is_back(world: World) -> None:
    world.nodes[1].process.kill()
    world.nodes[0].process.wait_until(lambda: len(sessions(world.nodes[0])) == 1)
    world.daemons[0].send(f"ipn:{_DAEMONS[1]}.{dtn7.SERVICE}", b"meanwhile")
    world.nodes[0].process.wait_until(lambda: world.nodes[0].api.get("/v1/custody")["bundles"] >= 1)
    world.nodes[1].start()
    assert world.arrived(1, 1) == [b"meanwhile"]


def test_it_serves_a_daemon_again_that_was_started_anew(world: World) -> None:
    world.daemons[1].process.kill()
    world.daemons[1].start()
    world.daemons[0].send(f"ipn:{_DAEMONS[1]}.{dtn7.SERVICE}", b"again")
    assert world.arrived(1, 1) == [b"again"]
