"""Bundles between Underpass and a node made of Hardy's crates, over TCPCLv4, plain and TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest

from tests.e2e.conftest import NEAR
from tests.interop import hardy
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
        hardy.program() is None,
        reason="no node of Hardy is installed: `make interop` does so, or set HARDY_NODE",
    ),
]

_RECEIVING = 40
_HARDY = f"ipn:{hardy.NODE}.{hardy.SERVICE}"
_SIZES = (1, 100, 10_000, 100_000, 5_000_000)
_FLOOD = 200
_RATE_BPS = 20_000_000
# Long enough that the kill of the peer comes amid the transfer.
_SLOW_BPS = 4_000_000
_SLOW_BYTES = 2_000_000


class World(LoopbackBed):
    """Our node, which dials Hardy."""

    def __init__(self, *, tls: bool, rate_bps: int | None = None) -> None:
        super().__init__("hardy")
        self.tls = tls
        self._rate_bps = rate_bps

    def __enter__(self) -> Self:
        super().__enter__()
        nodes = self.issue(NODE, hardy.NODE)
        options = self._options(nodes / str(hardy.NODE)) if self.tls else []
        self.hardy = hardy.Hardy(self, self.hub, tls=options)
        rates = {"send_rate_bps": self._rate_bps} if self._rate_bps else {}
        self.node = self.node_beside(
            hardy.NODE,
            tls={"pki_dir": nodes / str(NODE)},
            path={
                "name": "hardy",
                "remote": f"127.0.0.1:{hardy.PORT}",
                "plain": not self.tls,
                **rates,
            },
        )
        self.node.process.wait_until(lambda: self.node.carries(1))
        return self

    def _options(self, folder: Path) -> list[str]:
        """Return Hardy's options for TLS: its certificate, and the authority that it trusts."""
        authorities = self.dir / "authorities"
        authorities.mkdir()
        (authorities / "ca.crt").write_bytes((folder / "ca.crt").read_bytes())
        return [
            *("--certificate", str(folder / "node.crt"), "--key", str(folder / "node.key")),
            *("--authorities", str(authorities)),
        ]

    def send(self, payload: bytes) -> None:
        """Send a payload to Hardy from a file, as for payloads too long for memory."""
        file = self.dir / "payload"
        file.write_bytes(payload)
        bp(self.node, "send", _HARDY, str(file))

    def delivered(self, count: int) -> list[bytes]:
        """Return the payloads of the next `count` bundles from Hardy for our service."""
        bundles = received(self.node, _RECEIVING, count)
        assert {bundle.source for bundle in bundles} == {_HARDY}
        return payloads(bundles)


@pytest.fixture(scope="module", params=[False, True], ids=["plain", "tls"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    with World(tls=request.param) as world:
        yield world


def test_one_session_carries_all_classes_with_tls_as_configured(world: World) -> None:
    (session,) = sessions(world.node)
    assert (session["class"], session["tls"]) == (None, world.tls)
    # Unlike dtn7-rs, Hardy does not end a session at an unknown extension item.
    assert not paths(world.node)[0]["without_items"]


def test_bundles_of_all_sizes_arrive_at_hardy(world: World) -> None:
    world.hardy.forget()
    sent = [content(size) for size in _SIZES]
    for payload in sent:
        world.send(payload)
    assert sorted(world.hardy.received(len(sent))) == sorted(sent)


def test_bundles_of_all_sizes_arrive_from_hardy(world: World) -> None:
    sent = [content(size) for size in _SIZES]
    for payload in sent:
        world.hardy.send(f"ipn:{NODE}.{_RECEIVING}", payload)
    assert world.delivered(len(sent)) == sorted(sent)


def test_a_flood_of_small_bundles_arrives(world: World) -> None:
    sent = [f"{number:06}".encode() for number in range(_FLOOD)]
    for payload in sent:
        world.hardy.send(f"ipn:{NODE}.{_RECEIVING}", payload)
    assert world.delivered(_FLOOD) == sent


def test_echo_services_answer_each_other(world: World) -> None:
    world.hardy.forget()
    echo = f"ipn:{hardy.NODE}.{hardy.ECHO_SERVICE}"
    answers = bp(world.node, "ping", echo, "--count", "3", "--interval", "0.1")
    assert sum("round_trip_ms" in answer for answer in answers) == 3, answers
    world.hardy.send(f"ipn:{NODE}.7", b"echo")
    assert world.hardy.received(1) == [b"echo"]


def test_hardy_reports_reception_and_delivery(world: World) -> None:
    said = bp(world.node, "trace", _HARDY, "--timeout", "20")
    told = {
        event
        for report in said
        if report["reporter"] == f"ipn:{hardy.NODE}.0"
        for event in report["events"]
    }
    assert told >= {"received", "delivered"}, said


def test_a_restart_amid_a_transfer_costs_no_byte() -> None:
    payload = content(_SLOW_BYTES)
    with World(tls=False, rate_bps=_SLOW_BPS) as world:
        world.send(payload)

        def amid() -> bool:
            sent = sum(session["sent_bytes"] for session in sessions(world.node))
            return bool(sent > _SLOW_BYTES // 4)

        world.node.process.wait_until(amid)
        world.hardy.process.kill()
        assert not list(world.hardy.inbox.iterdir())
        world.hardy.start()
        assert world.hardy.received(1) == [payload]


def test_streams_of_clients_pass_hardy_with_custody_from_end_to_end() -> None:
    path = {
        "name": "hardy",
        "neighbour": hardy.NODE,
        "remote": f"{addresses.HUB_SAT}:{hardy.PORT}",
        "plain": True,
        "send_rate_bps": _RATE_BPS,
        "receive_rate_bps": _RATE_BPS,
    }
    with Testbed(NEAR) as bed:
        hardy.Hardy(bed, bed.hub, addresses.HUB_SAT)
        assert_streams_pass(bed, hardy.NODE, terminal=path, hub=path)
