"""The stream bytes on a killed node's disk, read by the formats of `docs/custody.md` (files) and
`docs/stream-protocol.md` (payloads); including released bundles whose files still exist.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.content import BLOCK_BYTES, block_body

# Where the header says where the records begin, and where they do in segments without that.
_RECORDS_AT, _EARLIER_RECORDS_AT = slice(12, 16), 128
_MAGIC = b"UPCR"
_HEAD = struct.Struct(">4sB3xQqIIQ4xI")
_BUNDLE = 1
_STREAMS_VERSION = 1
_PAYLOAD_HEAD = 17
_DATA, _DATA_WITH_FIN = 0x08, 0x09
_PROBE_BYTES = 24
# The longest HTTP head before the content.
_LONGEST_HEAD = 8192
_BLOCK_HEADER = 8


@dataclass(frozen=True)
class StreamBytes:
    """Bytes of a stream, with their offset in it."""

    offset: int
    data: bytes


def content_on_disk(folder: Path, seeds: Sequence[int]) -> dict[int, int]:
    """Return how far each seed's content is among the stream bytes in a custody folder.

    No stream id outlives the node, so streams are recognised by their content.
    """
    ends = dict.fromkeys(seeds, 0)
    for path in sorted(folder.glob("*.custody")):
        for payload in bundles(path.read_bytes()):
            for piece in stream_bytes(payload):
                for seed in seeds:
                    ends[seed] = max(ends[seed], content_end(piece, seed) or 0)
    return ends


def bundles(segment: bytes) -> Iterator[bytes]:
    """Yield the payloads of the completely written bundles in a segment."""
    at = int.from_bytes(segment[_RECORDS_AT]) or _EARLIER_RECORDS_AT
    while at + _HEAD.size <= len(segment):
        magic, kind, _, _, description, _, length, _ = _HEAD.unpack_from(segment, at)
        begin = at + _HEAD.size + description
        if magic != _MAGIC or begin + length > len(segment):
            return
        if kind == _BUNDLE:
            yield segment[begin : begin + length]
        at = -(-(begin + length) // 8) * 8


def stream_bytes(payload: bytes) -> list[StreamBytes]:
    """Return the DATA of a stream payload; nothing for another service's payload."""
    if payload[:1] != bytes([_STREAMS_VERSION]):
        return []
    found, at = [], _PAYLOAD_HEAD
    try:
        while at < len(payload):
            kind, at = _varint(payload, at)
            length, at = _varint(payload, at)
            if at + length > len(payload):
                return []
            if kind in (_DATA, _DATA_WITH_FIN):
                _, begin = _varint(payload, at)
                offset, begin = _varint(payload, begin)
                found.append(StreamBytes(offset, payload[begin : at + length]))
            at += length
    except IndexError:
        return []
    return found


def content_end(piece: StreamBytes, seed: int) -> int | None:
    """Return how far a stream's bytes reach in a seed's content; None if they are not of it."""
    body, data = block_body(seed), piece.data
    # A probe that contains a block's header matches no block's body: try an earlier one.
    for end in range(len(data), _PROBE_BYTES - 1, -_PROBE_BYTES):
        place = body.find(data[end - _PROBE_BYTES : end], _BLOCK_HEADER)
        if place < 0:
            if len(data) - end > 4 * _PROBE_BYTES:
                return None
            continue
        in_block = place + _PROBE_BYTES + len(data) - end
        before, head = divmod(piece.offset + len(data) - in_block, BLOCK_BYTES)
        return before * BLOCK_BYTES + in_block if head <= _LONGEST_HEAD else None
    return None


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Read a variable-length integer (RFC 9000, section 16); return it and where it ends."""
    length = 1 << (data[at] >> 6)
    if at + length > len(data):
        raise IndexError
    return int.from_bytes(data[at : at + length]) & (1 << (8 * length - 2)) - 1, at + length
