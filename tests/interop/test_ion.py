"""Bundles between Underpass and ION-DTN, over STCP, UDP and LTP, with ION's own programs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Self

import pytest

from tests.e2e.conftest import NEAR
from tests.interop import ion
from tests.interop.bed import (
    LoopbackBed,
    assert_streams_pass,
    content,
    paths,
    payloads,
    received,
    sessions,
    wait_until_released,
)
from tests.interop.ion import Ion, Layer, Neighbour
from tests.testbed import addresses
from tests.testbed.applications import applications, bp
from tests.testbed.node import HUB_NODE, Node, terminal_node
from tests.testbed.topology import Testbed

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(ion.missing_reason() is not None, reason=str(ion.missing_reason())),
]

_NODE = 1
_FAR_NODE = 2
_ION = 30
_RECEIVING = 40
_BETWEEN = "127.0.0.1:4721"
_SAT = addresses.HUB_SAT
# Slow enough for the system's default socket buffer, which ION uses.
_RATE_BPS = 20_000_000
_LAYERS: list[Layer] = ["stcp", "udp", "ltp"]
# Sizes that fit a UDP datagram; the others also larger ones.
_SIZES = {
    "stcp": (1, 100, 10_000, 60_000, 1_000_000, 3_000_000),
    "udp": (1, 100, 10_000, 60_000),
    "ltp": (1, 100, 10_000, 60_000, 1_000_000, 3_000_000),
}


def _path(layer: Layer, listen: str, remote: str) -> dict[str, object]:
    return {
        "name": "ion",
        "neighbour": _ION,
        "convergence_layer": layer,
        "remote": remote,
        "listen": listen,
        "send_rate_bps": _RATE_BPS,
        "rtt_ms": 20,
    }


class World(LoopbackBed):
    """Our node beside ION; with `far`, another one of ours, reachable only through ION."""

    def __init__(
        self,
        layer: Layer,
        *,
        far: Layer | None = None,
        aggregate_bytes: int = 1,
        bibe: bool = False,
    ) -> None:
        """With `bibe`, the far node is behind ours instead, and custody with ION is by BIBE."""
        super().__init__("ion")
        self.layer = layer
        self._far = far
        self._aggregate_bytes = aggregate_bytes
        self._bibe = bibe

    def __enter__(self) -> Self:
        super().__enter__()
        neighbours = [Neighbour(_NODE, self.layer, "127.0.0.1:4701", "127.0.0.1:4711")]
        self.node = self._node("near", _NODE, self.layer, neighbours[0], _FAR_NODE)
        if self._bibe:
            self.far = self._behind()
        if self._far:
            far = Neighbour(_FAR_NODE, self._far, "127.0.0.1:4702", "127.0.0.1:4712")
            neighbours.append(far)
            self.far = self._node("far", _FAR_NODE, self._far, far, _NODE)
        self.ion = Ion(
            self,
            self.hub,
            _ION,
            neighbours,
            aggregate_bytes=self._aggregate_bytes,
            bibe=(_NODE, _FAR_NODE) if self._bibe else None,
        )
        self.stack.callback(self.ion.kill)
        self.node.process.wait_until(lambda: self.node.carries(1))
        if self._far:
            self.far.process.wait_until(lambda: self.far.carries(1))
        return self

    def _behind(self) -> Node:
        """Start the far node so that it is reachable only through our node."""
        path = {"name": "near", "neighbour": _NODE, "remote": _BETWEEN}
        return Node(
            self,
            "far",
            self.hub,
            {
                "node": {"number": _FAR_NODE, "role": "relay", "state_dir": self.dir / "state-far"},
                "tls": {"plain": True},
                "path": [path],
                "route": [{"node": _ION, "via": _NODE}],
                **applications(self.dir, "far"),
            },
        )

    def _node(self, name: str, number: int, layer: Layer, to: Neighbour, beyond: int) -> Node:
        custody: object = "bibe" if self._bibe else False
        behind = {
            "listener": [{"name": "far", "listen": _BETWEEN}],
            "terminal": [{"node": _FAR_NODE}],
        }
        return Node(
            self,
            name,
            self.hub,
            {
                "node": {
                    "number": number,
                    "role": "relay",
                    "state_dir": self.dir / f"state-{name}",
                    "drain_s": 1,
                },
                "tls": {"plain": True},
                "path": [_path(layer, to.remote, to.listen)],
                "route": [
                    {"node": _ION, "via": _ION, "custody": custody},
                    *([] if self._bibe else [{"node": beyond, "via": _ION}]),
                ],
                **(behind if self._bibe else {}),
                **applications(self.dir, name),
            },
        )

    def received(self, count: int) -> list[bytes]:
        """Return the files that `bprecvfile` makes of `count` bundles, in any order."""
        files = [self.ion.dir / f"testfile{number}" for number in range(1, count + 1)]
        return sorted(file.read_bytes() for file in files)


@pytest.fixture(scope="module", params=_LAYERS, ids=_LAYERS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(request.param) as world:
        yield world


def _bpsendfile(world: World, payloads: list[bytes], destination: str) -> None:
    for number, payload in enumerate(payloads):
        file = world.ion.dir / f"sent-{number}"
        file.write_bytes(payload)
        world.ion.tool("bpsendfile", world.ion.endpoint(1), destination, str(file))


def test_bundles_of_all_sizes_arrive_from_bpsendfile(world: World) -> None:
    sent = [content(size) for size in _SIZES[world.layer]]
    _bpsendfile(world, sent, f"ipn:{_NODE}.{_RECEIVING}")
    assert payloads(received(world.node, _RECEIVING, len(sent))) == sorted(sent)


def test_bundles_of_all_sizes_arrive_at_bprecvfile(world: World) -> None:
    sent = [content(size) for size in _SIZES[world.layer]]
    for payload in sent:
        bp(world.node, "send", world.ion.endpoint(2), stdin=payload)
    world.ion.tool("bprecvfile", world.ion.endpoint(2), str(len(sent)))
    assert world.received(len(sent)) == sorted(sent)


def test_bping_is_answered_by_our_echo(world: World) -> None:
    said = world.ion.tool(
        "bping", "-c", "3", "-i", "1", "-q", "10", world.ion.endpoint(1), f"ipn:{_NODE}.7"
    )
    assert said.count("bytes from") == 3, said


def test_bpecho_answers_our_ping(world: World) -> None:
    echo = world.ion.background("bpecho", world.ion.endpoint(4))
    try:
        answers = bp(world.node, "ping", world.ion.endpoint(4), "--count", "3")
    finally:
        # This ends the outer process; the node's namespaces end the rest.
        echo.kill()
        echo.wait()
    assert sum("round_trip_ms" in answer for answer in answers) == 3, answers


def test_bptrace_is_told_of_reception_and_delivery(world: World) -> None:
    said = world.ion.tool(
        "bptrace",
        *("-v", "-ttl", "6", "-msg", "trace", "-flags", "rcv,dlv"),
        *(world.ion.endpoint(1), f"ipn:{_NODE}.7", world.ion.endpoint(3)),
    )
    assert said.count(f"ipn:{_NODE}.0") >= 2, said


def test_bundles_that_ion_gathers_in_one_block_all_arrive() -> None:
    sent = [content(size) for size in (1, 500, 1_000, 2_000, 5_000)]
    with World("ltp", aggregate_bytes=100_000) as world:
        _bpsendfile(world, sent, f"ipn:{_NODE}.{_RECEIVING}")
        assert payloads(received(world.node, _RECEIVING, len(sent))) == sorted(sent)


@pytest.mark.parametrize("far", ["stcp", "ltp"])
def test_ion_relays_between_two_of_our_nodes_with_custody_from_end_to_end(far: Layer) -> None:
    near: Layer = "ltp" if far == "stcp" else "stcp"
    sent = [content(size) for size in (1, 1_000, 100_000)]
    with World(near, far=far) as world:
        for source, destination, number in (
            (world.node, world.far, _FAR_NODE),
            (world.far, world.node, _NODE),
        ):
            for payload in sent:
                bp(source, "send", f"ipn:{number}.{_RECEIVING}", stdin=payload)
            bundles = received(destination, _RECEIVING, len(sent))
            assert payloads(bundles) == sorted(sent)
            # The far end's signals have come back through ION.
            wait_until_released(source)


def test_a_bundle_sent_while_ion_is_down_arrives_when_it_is_back() -> None:
    with World("stcp") as world:
        world.ion.kill()
        world.node.process.wait_until(lambda: not sessions(world.node))
        bp(world.node, "send", world.ion.endpoint(2), stdin=b"meanwhile")
        world.ion.start()
        world.ion.tool("bprecvfile", world.ion.endpoint(2), "1")
        assert world.received(1) == [b"meanwhile"]


def test_custody_with_ion_is_by_bibe_both_ways() -> None:
    sent = [content(size) for size in (1, 1_000, 100_000)]
    with World("stcp", bibe=True) as world:
        # From our nodes: ION's signals release the bundles in custody.
        for source in (world.node, world.far):
            for payload in sent:
                bp(source, "send", world.ion.endpoint(2), stdin=payload)
        world.ion.tool("bprecvfile", world.ion.endpoint(2), str(2 * len(sent)))
        assert world.received(2 * len(sent)) == sorted(2 * sent)
        for node in (world.node, world.far):
            wait_until_released(node)
        # From ION: it would send a bundle again that we did not signal within 4 s.
        _bpsendfile(world, sent, f"ipn:{_FAR_NODE}.{_RECEIVING}")
        assert payloads(received(world.far, _RECEIVING, len(sent))) == sorted(sent)
        (path,) = (each for each in paths(world.node) if each["name"] == "ion")
        time.sleep(8)
        (after,) = (each for each in paths(world.node) if each["name"] == "ion")
        before_bytes, after_bytes = (
            sum(session["received_bytes"] for session in each["sessions"]) for each in (path, after)
        )
        assert after_bytes - before_bytes < 1_000


@pytest.mark.parametrize(("satellite", "terrestrial"), [("ltp", "stcp"), ("stcp", "ltp")])
def test_streams_of_clients_pass_ion(satellite: Layer, terrestrial: Layer) -> None:
    by_terminal = Neighbour(
        terminal_node(0), satellite, f"{addresses.terminal_sat(0)}:4700", f"{_SAT}:4710"
    )
    by_hub = Neighbour(HUB_NODE, terrestrial, f"{_SAT}:4701", f"{_SAT}:4711")
    with contextlib.ExitStack() as stack:
        bed = stack.enter_context(Testbed(NEAR))
        relay = Ion(bed, bed.hub, _ION, [by_terminal, by_hub])
        stack.callback(relay.kill)
        assert_streams_pass(
            bed,
            _ION,
            terminal=_path(satellite, by_terminal.remote, by_terminal.listen),
            hub=_path(terrestrial, by_hub.remote, by_hub.listen),
        )
