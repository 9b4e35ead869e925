"""Applications at terminal and hub: bundles of all sizes, blockages, kills, hostile clients."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from underpass_client import Client, NoRoomError, RefusedError, ping

from tests.e2e.conftest import NEAR
from tests.testbed.applications import applications, bp, socket_of
from tests.testbed.node import Node, Options, Pair
from tests.testbed.programs import built
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_ECHO = "ipn:1.7"
_SIZES = (1, 2, 1_000, 65_536, 1 << 20)
_TERMINAL = 10


def _start(testbed: Testbed) -> Pair[Testbed]:
    hub, terminal = (
        {**applications(testbed.dir, name), "custody": {"durability": "disk"}}
        for name in ("hub", testbed.terminal.name)
    )
    return Pair(testbed, Options(terminal=terminal, hub=hub))


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair[Testbed]]:
    with Testbed(NEAR) as testbed:
        yield _start(testbed)


def _payload(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


async def _received(node: Node, service: int, count: int, timeout_s: float = 60.0) -> list[bytes]:
    async with (
        asyncio.timeout(timeout_s),
        await Client.connect(socket_of(node)) as client,
    ):
        endpoint = await client.register(service)
        payloads: list[bytes] = []
        while len(payloads) < count:
            bundle = await endpoint.receive()
            payloads.append(bundle.payload)
            await bundle.acknowledge()
        return payloads


async def _send(node: Node, destination: str, payloads: list[bytes]) -> None:
    async with await Client.connect(socket_of(node)) as client:
        endpoint = await client.register()
        for payload in payloads:
            await endpoint.send(destination, payload, lifetime_s=600)


def test_a_ping_comes_back_over_the_hop(pair: Pair[Testbed]) -> None:
    async def trips() -> list[float]:
        async with await Client.connect(socket_of(pair.terminal)) as client:
            endpoint = await client.register()
            return [await ping(endpoint, _ECHO) for _ in range(3)]

    # No bundle can arrive sooner than the emulated link's delay.
    assert all(trip >= 0.1 for trip in asyncio.run(trips()))
    *replies, summary = bp(pair.terminal, "ping", "-c", "2", "-i", "0.1", _ECHO)
    assert [reply["number"] for reply in replies] == [0, 1]
    assert summary["received"] == 2
    assert summary["least_ms"] >= 100


def test_the_hub_pings_a_terminal(pair: Pair[Testbed]) -> None:
    *_, summary = bp(pair.hub, "ping", "-c", "1", f"ipn:{_TERMINAL}.7")
    assert summary["received"] == 1


def test_bundles_of_all_sizes_arrive_both_ways(pair: Pair[Testbed]) -> None:
    payloads = [_payload(size, size) for size in _SIZES]

    async def both_ways(sender: Node, receiver: Node, destination: str) -> list[bytes]:
        received = asyncio.create_task(_received(receiver, 40, len(payloads)))
        await _send(sender, destination, payloads)
        return await received

    for sender, receiver, destination in (
        (pair.terminal, pair.hub, "ipn:1.40"),
        (pair.hub, pair.terminal, f"ipn:{_TERMINAL}.40"),
    ):
        received = asyncio.run(both_ways(sender, receiver, destination))
        assert sorted(received) == sorted(payloads)


def test_files_are_sent_and_received_by_command(pair: Pair[Testbed], tmp_path: Path) -> None:
    content = _payload(300_000, 7)
    (sent,) = bp(pair.terminal, "send", "ipn:1.41", stdin=content)
    assert sent["bytes"] == len(content)
    folder = tmp_path / "received"
    options = ("--service", "41", "--count", "1", "--folder", str(folder))
    (received,) = bp(pair.hub, "receive", *options)
    assert received["source"] == sent["source"]
    assert Path(received["file"]).read_bytes() == content
    # Above max_payload_bytes, content from a pipe goes through the disk, like a file's.
    long = _payload((1 << 20) + 1, 8)
    bp(pair.terminal, "send", "ipn:1.41", stdin=long)
    (received,) = bp(pair.hub, "receive", *options)
    assert Path(received["file"]).read_bytes() == long


def test_a_trace_shows_who_has_received_and_delivered(pair: Pair[Testbed]) -> None:
    reports = bp(pair.terminal, "trace", _ECHO)
    events = {(report["reporter"], *report["events"]) for report in reports}
    assert ("ipn:1.0", "received") in events
    assert ("ipn:1.0", "delivered") in events
    assert all(report["at_ms"] for report in reports)
    with pytest.raises(RuntimeError, match="no delivery"):
        # No application may have service 200, so it is not delivered.
        bp(pair.terminal, "trace", "--timeout", "1", "ipn:1.200")


def test_what_is_sent_in_a_blockage_arrives_after_it(pair: Pair[Testbed]) -> None:
    payloads = [_payload(100_000, seed) for seed in range(10)]
    testbed = pair.testbed
    testbed.satlink.block(testbed.terminal.name, for_s=4.0)
    asyncio.run(_send(pair.terminal, "ipn:1.42", payloads))
    received = asyncio.run(_received(pair.hub, 42, len(payloads)))
    assert sorted(received) == sorted(payloads)


def test_bundles_wait_for_their_application_through_a_kill() -> None:
    with Testbed(NEAR) as testbed:
        pair = _start(testbed)
        payloads = [_payload(10_000, seed) for seed in range(20)]
        asyncio.run(_send(pair.terminal, "ipn:1.43", payloads))
        # The hub has custody of all bundles, and no application has asked for them.
        pair.terminal.process.wait_until(
            lambda: pair.terminal.api.get("/v1/custody")["bundles"] == 0
        )
        pair.hub.process.kill()
        pair.hub.start()
        pair.wait_until_ready()
        received = asyncio.run(_received(pair.hub, 43, len(payloads)))
        assert sorted(received) == sorted(payloads)


def test_an_upgrade_keeps_socket_and_bundles(pair: Pair[Testbed]) -> None:
    payloads = [_payload(1_000, seed) for seed in range(5)]
    asyncio.run(_send(pair.terminal, "ipn:1.50", payloads))
    pair.terminal.process.wait_until(lambda: pair.terminal.api.get("/v1/custody")["bundles"] == 0)
    pair.hub.upgrade()
    received = asyncio.run(_received(pair.hub, 50, len(payloads)))
    assert sorted(received) == sorted(payloads)
    *_, summary = bp(pair.terminal, "ping", "-c", "1", _ECHO)
    assert summary["received"] == 1


def test_what_is_not_acknowledged_comes_again(pair: Pair[Testbed]) -> None:
    async def twice() -> tuple[bytes, bytes]:
        await _send(pair.terminal, "ipn:1.44", [b"once"])
        async with await Client.connect(socket_of(pair.hub)) as client:
            endpoint = await client.register(44)
            first = await endpoint.receive()
        (second,) = await _received(pair.hub, 44, 1)
        return first.payload, second

    assert asyncio.run(twice()) == (b"once", b"once")


def test_an_endpoint_has_one_client_and_the_node_keeps_its_own(pair: Pair[Testbed]) -> None:
    async def refusals() -> list[str]:
        codes = []
        async with (
            await Client.connect(socket_of(pair.hub)) as one,
            await Client.connect(socket_of(pair.hub)) as other,
        ):
            await one.register(45)
            for service in (45, 7, 80, 81, 82, 83, 0, 128):
                with pytest.raises(RefusedError) as refused:
                    await other.register(service)
                codes.append(refused.value.code)
            # The node goes on serving.
            assert (await other.register(46)).name == "ipn:1.46"
        return codes

    assert asyncio.run(refusals()) == ["taken"] + ["not_allowed"] * 7


def _raw(node: Node) -> socket.socket:
    raw = socket.socket(socket.AF_UNIX)
    raw.settimeout(20)
    raw.connect(str(socket_of(node)))
    return raw


@pytest.mark.parametrize(
    "hostile",
    [
        struct.pack(">II", 2**32 - 1, 0),
        struct.pack(">II", 2, 2**32 - 1) + b"{}",
        struct.pack(">II", 0, 0),
        struct.pack(">II", 4000, 0) + b"[" * 4000,
        struct.pack(">II", 26, 1) + b'{"type":"register","id":1}x',
        random.Random(3).randbytes(100_000),
    ],
)
def test_what_is_no_frame_ends_its_own_connection_alone(
    pair: Pair[Testbed], hostile: bytes
) -> None:
    with _raw(pair.hub) as raw:
        try:
            raw.sendall(hostile)
            while raw.recv(65_536):
                pass
        except ConnectionError:
            pass
    *_, summary = bp(pair.terminal, "ping", "-c", "1", _ECHO)
    assert summary["received"] == 1


def test_clients_without_end_and_half_frames_leave_the_node_in_order(pair: Pair[Testbed]) -> None:
    async def flood() -> None:
        async with await Client.connect(socket_of(pair.hub)) as client:
            endpoint = await client.register(47)
            half = [_raw(pair.hub) for _ in range(31)]
            for raw in half:
                raw.sendall(b"\0")
            # A client too many gets an error.
            with pytest.raises((RefusedError, ConnectionError)):
                for _ in range(10):
                    await Client.connect(socket_of(pair.hub))
            # The clients already served go on.
            assert await ping(endpoint, f"ipn:{_TERMINAL}.7") > 0
            for raw in half:
                raw.close()

    asyncio.run(flood())
    *_, summary = bp(pair.terminal, "ping", "-c", "1", _ECHO)
    assert summary["received"] == 1


def test_a_flood_into_the_store_leaves_room_for_streams() -> None:
    with Testbed(NEAR) as testbed:
        small = {"custody": {"quota_bytes": 16 << 20, "durability": "memory"}}
        pair = Pair(
            testbed,
            Options(
                terminal={**applications(testbed.dir, testbed.terminal.name), **small},
                hub=applications(testbed.dir, "hub"),
            ),
        )
        testbed.satlink.block(testbed.terminal.name, for_s=5.0)

        async def flood() -> int:
            async with await Client.connect(socket_of(pair.terminal)) as client:
                endpoint = await client.register()
                taken = 0
                with pytest.raises(NoRoomError):
                    while True:
                        await endpoint.send("ipn:1.48", bytes(1 << 18), lifetime_s=600)
                        taken += 1
                return taken

        taken = asyncio.run(flood())
        custody = pair.terminal.api.get("/v1/custody")
        assert custody["used_bytes"] <= (16 << 20) * 3 / 4 + (1 << 18)
        received = asyncio.run(_received(pair.hub, 48, taken))
        assert len(received) == taken


def test_inspect_shows_what_is_there_and_what_is_wrong(tmp_path: Path) -> None:
    whole = bytes.fromhex(
        "9f8807000082028201078202820a1828820100820102" + "1903e8" + "8501010000426869" + "ff"
    )
    path = tmp_path / "bundle"
    argv = [built("underpass"), "bp", "inspect", "--json", str(path)]

    def inspect() -> tuple[int, dict[str, Any]]:
        done = subprocess.run(argv, capture_output=True, check=False, timeout=20)
        return done.returncode, json.loads(done.stdout)

    path.write_bytes(whole)
    code, seen = inspect()
    assert (code, seen["problem"]) == (0, None)
    assert seen["primary"]["source"] == "ipn:10.40"
    assert [block["name"] for block in seen["blocks"]] == ["payload"]
    path.write_bytes(whole[:-4])
    code, seen = inspect()
    assert code != 0
    assert "cut short" in seen["problem"]
    assert seen["primary"]["destination"] == "ipn:1.7"
    for seed in range(50):
        path.write_bytes(random.Random(seed).randbytes(500))
        code, seen = inspect()
        assert code != 0
        assert seen["problem"]


def test_the_lifetime_of_what_waits_is_kept_to(pair: Pair[Testbed]) -> None:
    async def late() -> list[bytes]:
        async with await Client.connect(socket_of(pair.terminal)) as client:
            endpoint = await client.register()
            await endpoint.send("ipn:1.49", b"short", lifetime_s=2)
            await endpoint.send("ipn:1.49", b"long", lifetime_s=600)
        await asyncio.sleep(4)
        return await _received(pair.hub, 49, 1)

    assert asyncio.run(late()) == [b"long"]
