"""Bundles between Underpass and a daemon of dtn7-rs 0.21.0, over TCPCLv4 without TLS."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Self

import pytest

from tests.e2e.conftest import NEAR
from tests.interop import dtn7
from tests.interop.bed import (
    NODE,
    LoopbackBed,
    assert_streams_pass,
    content,
    paths,
    payloads,
    received,
    sessions,
)
from tests.testbed import addresses
from tests.testbed.applications import bp
from tests.testbed.topology import Testbed

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(
        dtn7.program("dtnd") is None,
        reason="dtn7-rs is not installed: `make interop` does so, or set DTN7_BIN",
    ),
]

_DTN7 = f"ipn:{dtn7.NODE}.{dtn7.SERVICE}"
_SIZES = (1, 100, 10_000, 60_000, 1_000_000)
_LONG_BYTES = 100_000_000
# The limit of the daemon's HTTP server for `dtnsend`.
_MOST_SENT_BYTES = 1_900_000
_RATE_BPS = 20_000_000


class World(LoopbackBed):
    """One namespace with our node, which dials the daemon."""

    def __init__(self) -> None:
        super().__init__("dtn7")

    def __enter__(self) -> Self:
        super().__enter__()
        self.daemon = dtn7.Dtn7(self, self.hub)
        self.node = self.node_beside(
            dtn7.NODE,
            tls={"pki_dir": self.issue(NODE) / str(NODE)},
            path={
                "name": "dtn7",
                "remote": f"127.0.0.1:{dtn7.TCPCL_PORT}",
                "plain": True,
                # The daemon announces 64,000 but accepts more.
                "transfer_mru_bytes": 200_000_000,
            },
        )
        self.wait_until_up()
        return self

    def sessions(self) -> list[dict[str, Any]]:
        """Return the sessions with the daemon."""
        return sessions(self.node)

    def wait_until_up(self) -> None:
        """Wait until there is a session without extension items."""
        self.node.process.wait_until(
            lambda: (
                any(path["without_items"] for path in paths(self.node)) and bool(self.sessions())
            )
        )


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World() as world:
        yield world


def test_it_is_dialled_again_without_extension_items(world: World) -> None:
    # One session for all classes, as there is no extension item to tell them apart.
    assert [session["class"] for session in world.sessions()] == [None]
    (path,) = world.node.status()["paths"]
    assert path["without_items"]


def test_bundles_arrive_both_ways(world: World) -> None:
    sent = [content(size) for size in _SIZES]
    for payload in sent:
        bp(world.node, "send", _DTN7, stdin=payload)
    assert sorted(world.daemon.arrived(len(sent))) == sorted(sent)
    sent.append(content(_MOST_SENT_BYTES))
    for payload in sent:
        world.daemon.send(f"ipn:{NODE}.40", payload)
    bundles = received(world.node, 40, len(sent))
    assert {bundle.source for bundle in bundles} == {_DTN7}
    assert payloads(bundles) == sorted(sent)


def test_a_hundred_megabytes_arrive_at_the_daemon(world: World) -> None:
    sent = content(_LONG_BYTES)
    path = world.dir / "long"
    path.write_bytes(sent)
    bp(world.node, "send", _DTN7, str(path), timeout_s=300)
    # Reports on bundles that it has sent before may come first.
    deadline = time.monotonic() + 300
    while sent not in (arrived := world.daemon.arrived(1)):
        assert time.monotonic() < deadline, [len(each) for each in arrived]


def test_what_is_sent_while_the_daemon_is_down_arrives_when_it_is_back(world: World) -> None:
    world.daemon.process.kill()
    world.node.process.wait_until(lambda: not world.sessions())
    bp(world.node, "send", _DTN7, stdin=b"meanwhile")
    world.daemon.start()
    assert world.daemon.arrived(1) == [b"meanwhile"]


def test_streams_of_clients_pass_the_daemon_with_custody_from_end_to_end() -> None:
    path = {
        "name": "dtn7",
        "neighbour": dtn7.NODE,
        "remote": f"{addresses.HUB_SAT}:{dtn7.TCPCL_PORT}",
        "plain": True,
        "send_rate_bps": _RATE_BPS,
        "receive_rate_bps": _RATE_BPS,
    }
    with Testbed(NEAR) as bed:
        dtn7.Dtn7(bed, bed.hub, addresses.HUB_SAT)
        assert_streams_pass(bed, dtn7.NODE, terminal=path, hub=path)
