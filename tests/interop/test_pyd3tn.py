"""Bundles encoded and decoded by pyd3tn, µD3TN's codec in Python, independent of ours."""

from __future__ import annotations

import functools
import json
import subprocess
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, Self

import cbor2
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyd3tn.bundle7 import (
    BlockProcFlag,
    BlockType,
    Bundle,
    BundleAgeBlock,
    BundleProcFlag,
    CanonicalBlock,
    CRCType,
    CreationTimestamp,
    HopCountBlock,
    PreviousNodeBlock,
)
from pyd3tn.helpers import DTN_EPOCH

from tests.interop import pyd3tn_peer as peer
from tests.interop.bed import NODE, LoopbackBed, content, payloads, received
from tests.testbed.applications import bp
from tests.testbed.programs import built

_PEER = 60
_SERVICE = 40
_HERE = f"ipn:{NODE}.{_SERVICE}"
_THERE = f"ipn:{_PEER}.5"
_CRC_NAMES = {CRCType.NONE: "none", CRCType.CRC16: "16", CRCType.CRC32: "32C"}
_REPORTS = (
    BundleProcFlag.REPORT_RECEPTION
    | BundleProcFlag.REPORT_DELIVERY
    | BundleProcFlag.REPORT_STATUS_TIME
)


class World(LoopbackBed):
    """Our node, and pyd3tn as its neighbour over MTCP."""

    def __init__(self) -> None:
        super().__init__("pyd3tn")

    def __enter__(self) -> Self:
        super().__enter__()
        self.peer = peer.Peer(self.hub)
        self.stack.callback(self.peer.close)
        self.node = self.node_beside(
            _PEER,
            tls={"plain": True},
            path={
                "name": "pyd3tn",
                "convergence_layer": "mtcp",
                "remote": f"127.0.0.1:{peer.PORT}",
                "listen": f"127.0.0.1:{peer.NODE_PORT}",
            },
        )
        self.node.process.wait_until(lambda: self.node.carries(1))
        return self

    def delivered(self, count: int) -> list[bytes]:
        """Return the payloads of the next `count` bundles for our service."""
        return payloads(received(self.node, _SERVICE, count))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with World() as world:
        yield world


@pytest.mark.node
@pytest.mark.parametrize("size", [0, 1, 23, 24, 255, 256, 65_535, 65_536, 300_000])
def test_what_we_send_is_read_and_written_back_byte_for_byte(world: World, size: int) -> None:
    bp(world.node, "send", "--lifetime", "600", _THERE, stdin=content(size))
    raw = world.peer.received()
    # pyd3tn encodes again the bundle that it has decoded, with CRCs of its own.
    read = peer.parsed(raw)
    assert bytes(read) == raw
    primary = read.primary_block
    assert str(primary.destination) == _THERE
    assert str(primary.source).startswith(f"ipn:{NODE}.")
    assert primary.lifetime == 600_000
    assert primary.crc_type != CRCType.NONE
    assert read.payload_block.data == content(size)
    assert peer.content(read, BlockType.PREVIOUS_NODE) == [2, [NODE, 0]]
    assert peer.content(read, BlockType.BUNDLE_AGE) < 60_000
    numbers = [block.block_number for block in read]
    assert len(numbers) == len(set(numbers))


@pytest.mark.node
def test_what_pyd3tn_sends_is_delivered(world: World) -> None:
    sent = [content(size) for size in (0, 1, 255, 65_536, 1_000_000)]
    bundles = [
        peer.bundle(
            _HERE,
            _THERE,
            payload,
            crc=CRCType.NONE if len(payload) > 255 else CRCType.CRC16,
            primary_crc=CRCType.CRC32,
            blocks=(PreviousNodeBlock(f"ipn:{_PEER}.0"), HopCountBlock(10, 1)),
        )
        for payload in sent
    ]
    world.peer.send(*bundles)
    assert world.delivered(len(sent)) == sorted(sent)


@pytest.mark.node
def test_a_hundred_megabytes_go_both_ways(world: World) -> None:
    sent = content(100_000_000)
    path = world.dir / "long"
    path.write_bytes(sent)
    bp(world.node, "send", _THERE, str(path), timeout_s=300)
    # Without pyd3tn's CRCs, which would take minutes in Python.
    assert Bundle.parse(world.peer.received()).payload_block.data == sent
    bundle = peer.bundle(_HERE, _THERE, sent, crc=CRCType.NONE)
    world.peer.send(bundle)
    assert world.delivered(1) == [sent]


@pytest.mark.node
def test_a_changed_bit_costs_that_bundle_alone(world: World) -> None:
    good, bad = (peer.bundle(_HERE, _THERE, payload) for payload in (b"good", b"evil"))
    at = bad.index(b"evil")
    world.peer.send(bad[:at] + b"E" + bad[at + 1 :])
    world.peer.send(good)
    assert world.delivered(1) == [b"good"]


@pytest.mark.node
def test_fragments_in_any_order_come_together(world: World) -> None:
    whole = content(30_000)
    time = CreationTimestamp(None, 7)
    # Each byte is in two of the ranges.
    ranges = [(15_000, 30_000), (0, 10_000), (5_000, 20_000), (0, 5_000), (20_000, 30_000)]
    world.peer.send(
        *(
            peer.bundle(
                _HERE,
                _THERE,
                whole[begin:end],
                fragment=(begin, len(whole)),
                created=time,
            )
            for begin, end in ranges
        )
    )
    assert world.delivered(1) == [whole]


@pytest.mark.node
def test_our_echo_answers(world: World) -> None:
    world.peer.send(peer.bundle(f"ipn:{NODE}.7", _THERE, b"echo"))
    answer = peer.parsed(world.peer.received())
    assert str(answer.primary_block.destination) == _THERE
    assert str(answer.primary_block.source) == f"ipn:{NODE}.7"
    assert answer.payload_block.data == b"echo"


@pytest.mark.node
def test_our_status_reports_are_read(world: World) -> None:
    time = CreationTimestamp(None, 9)
    world.peer.send(
        peer.bundle(
            f"ipn:{NODE}.7",
            _THERE,
            b"report",
            flags=_REPORTS,
            report_to=f"ipn:{_PEER}.6",
            created=time,
        )
    )
    statuses: set[int] = set()
    # The echo's answer comes among the reports.
    while statuses != {0, 2}:
        bundle = peer.parsed(world.peer.received())
        if not bundle.primary_block.has_flag(BundleProcFlag.ADMINISTRATIVE_RECORD):
            continue
        assert str(bundle.primary_block.destination) == f"ipn:{_PEER}.6"
        record = bundle.parse_administrative_record(bundle.payload_block.data)
        infos, reason, source, subject = record["record_data"]
        assert (reason, str(source), subject) == (0, _THERE, list(time))
        for status, info in enumerate(infos):
            # Only events that have happened have a time, as requested.
            assert len(info) == (2 if info[0] else 1)
            if info[0]:
                statuses.add(status)
                assert abs(info[1] - time[0]) < 60_000


_UINT32 = st.integers(0, 2**32 - 1)
_NODES = st.integers(1, 2**32 - 2)
_EIDS = st.one_of(
    st.builds("ipn:{}.{}".format, _NODES, _UINT32),
    st.builds("ipn:{}.{}.{}".format, st.integers(1, 2**32 - 1), _NODES, _UINT32),
    st.builds(
        "dtn://{}/{}".format,
        st.from_regex(r"[a-z0-9-]{1,20}", fullmatch=True),
        st.from_regex(r"[!-.0-9;-~]{0,20}", fullmatch=True),
    ),
)
_NULL_OR_EIDS = st.one_of(st.just("dtn:none"), _EIDS)
_CRCS = st.sampled_from(CRCType)
_BLOCK_FLAGS = st.sets(st.sampled_from(BlockProcFlag)).map(
    lambda flags: functools.reduce(BlockProcFlag.__or__, flags, BlockProcFlag.NONE)
)
_BUNDLE_FLAGS = st.sets(st.sampled_from([flag for flag in BundleProcFlag if flag & ~0x400007])).map(
    lambda flags: functools.reduce(BundleProcFlag.__or__, flags, BundleProcFlag.NONE)
)


@st.composite
def _blocks(draw: st.DrawFn) -> tuple[CanonicalBlock, ...]:
    """Return at most one block of each kind that both implementations know."""
    keys = {"crc_type": draw(_CRCS), "block_proc_flags": draw(_BLOCK_FLAGS)}
    count = draw(st.integers(0, 254))
    choices = [
        PreviousNodeBlock(draw(_EIDS), **keys),
        BundleAgeBlock(draw(st.integers(0, 2**40)), **keys),
        HopCountBlock(draw(st.integers(count + 1, 255)), count, **keys),
    ]
    kept = draw(st.lists(st.sampled_from(choices), unique_by=lambda each: each.block_type))
    return tuple(kept)


def _folded(eid: str) -> str:
    """Return an EID in its shown form, with the allocator in the node number's upper 32 bits."""
    scheme, _, numbers = eid.partition(":")
    parts = numbers.split(".")
    if scheme != "ipn" or len(parts) < 3:
        return eid
    allocator, node, service = map(int, parts)
    return f"ipn:{allocator << 32 | node}.{service}"


def _inspected(raw: bytes) -> dict[str, Any]:
    """Return the output of `underpass bp inspect` for a bundle."""
    argv = [built("underpass"), "bp", "inspect", "--json"]
    done = subprocess.run(argv, input=raw, capture_output=True, timeout=20, check=False)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.node
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    destination=_EIDS,
    source=_EIDS,
    report_to=_NULL_OR_EIDS,
    payload=st.binary(max_size=300),
    blocks=_blocks(),
    crc=_CRCS,
    primary_crc=_CRCS,
    flags=_BUNDLE_FLAGS,
    sequence=_UINT32,
    lifetime_ms=st.integers(0, 2**40),
    created_s=st.integers(1, 2**32),
    fragment=st.one_of(st.none(), st.integers(0, 2**40)),
)
def test_whatever_pyd3tn_writes_is_read_as_it_is_meant(
    destination: str,
    source: str,
    report_to: str,
    payload: bytes,
    blocks: tuple[CanonicalBlock, ...],
    crc: CRCType,
    primary_crc: CRCType,
    flags: BundleProcFlag,
    sequence: int,
    lifetime_ms: int,
    created_s: int,
    fragment: int | None,
) -> None:
    if fragment is not None and not payload:
        fragment = None
    created = CreationTimestamp(DTN_EPOCH + timedelta(seconds=created_s), sequence)
    raw = peer.bundle(
        destination,
        source,
        payload,
        blocks=blocks,
        crc=crc,
        primary_crc=primary_crc,
        flags=flags,
        report_to=report_to,
        fragment=None if fragment is None else (fragment, fragment + len(payload)),
        created=created,
        lifetime=lifetime_ms,
    )
    seen = _inspected(raw)
    assert seen["problem"] is None
    primary = seen["primary"]
    assert primary["destination"] == _folded(destination)
    assert primary["source"] == _folded(source)
    assert primary["report_to"] == _folded(report_to)
    assert (primary["time_ms"], primary["sequence"]) == (created_s * 1000, sequence)
    assert primary["lifetime_ms"] == lifetime_ms
    assert primary["crc"] == _CRC_NAMES[primary_crc]
    assert primary["flags"] & ~1 == flags
    if fragment is None:
        assert primary["fragment"] is None
    else:
        total = fragment + len(payload)
        assert primary["fragment"] == {"offset": fragment, "total_bytes": total}
    written = [*peer.parsed(raw).blocks, peer.parsed(raw).payload_block]
    assert [_as_inspected(block) for block in written] == [
        {key: block[key] for key in ("type", "number", "flags", "crc", "bytes")}
        for block in seen["blocks"]
    ]


def _as_inspected(block: CanonicalBlock) -> dict[str, object]:
    return {
        "type": int(block.block_type),
        "number": block.block_number,
        "flags": int(block.block_proc_flags),
        "crc": _CRC_NAMES[block.crc_type],
        "bytes": len(block.data),
    }


def test_the_peer_notices_a_wrong_crc() -> None:
    raw = peer.bundle(_HERE, _THERE, b"payload")
    at = raw.index(b"payload")
    with pytest.raises(AssertionError):
        peer.parsed(raw[:at] + b"P" + raw[at + 1 :])
    assert cbor2.loads(raw)[-1][4] == b"payload"
