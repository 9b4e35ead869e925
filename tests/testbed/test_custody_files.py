from __future__ import annotations

from pathlib import Path

import pytest

from tests.testbed.content import BLOCK_BYTES, pieces
from tests.testbed.custody_files import (
    StreamBytes,
    bundles,
    content_end,
    content_on_disk,
    stream_bytes,
)

_HTTP_HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 3000000\r\n\r\n"


def _varint(number: int) -> bytes:
    return (number | 0b10 << 30).to_bytes(4, "big")


def _payload(stream: int, offset: int, data: bytes) -> bytes:
    body = _varint(stream) + _varint(offset) + data
    credit = b"\x04\x02\x00\x05"
    return b"\x01" + bytes(16) + credit + b"\x08" + _varint(len(body)) + body


def _record(payload: bytes, kind: int = 1) -> bytes:
    description = b"12345"
    head = b"UPCR" + bytes([kind]) + bytes(3 + 8 + 8)
    head += len(description).to_bytes(4, "big") + bytes(4) + len(payload).to_bytes(8, "big")
    record = head + bytes(8) + description + payload
    return record + bytes(-len(record) % 8)


def _stream(seed: int) -> bytes:
    return _HTTP_HEAD + b"".join(pieces(seed, 3_000_000))


@pytest.mark.parametrize(
    "end", [100, 5000, BLOCK_BYTES - 1, BLOCK_BYTES + 3, BLOCK_BYTES + 20, 2 * BLOCK_BYTES + 500]
)
def test_content_is_known_by_its_bytes_wherever_a_piece_ends(end: int) -> None:
    stream, begin = _stream(3), max(0, end - 4000)
    piece = StreamBytes(begin, stream[begin : end + len(_HTTP_HEAD)])
    assert content_end(piece, 3) == end
    assert content_end(piece, 4) is None


def _header(records_at: int) -> bytes:
    """Return a segment's header, which says where its records begin."""
    copy = b"UPCUSTOD" + (1).to_bytes(4, "big") + records_at.to_bytes(4, "big") + bytes(48)
    return copy + bytes(4096 - len(copy)) + copy


@pytest.mark.parametrize(
    "segment", [_header(4160), b"UPCUSTOD" + (1).to_bytes(4, "big") + bytes(116)]
)
def test_the_farthest_byte_of_each_seed_is_found_on_the_disk(
    tmp_path: Path, segment: bytes
) -> None:
    first, second = _stream(3), _stream(4)
    for at in range(0, 400_000, 20_000):
        segment += _record(_payload(0, at, first[at : at + 20_000]))
        segment += _record(b"\x00" * 24, kind=2)
    segment += _record(_payload(2, 0, second[:5000]))
    whole = _record(_payload(2, 5000, second[5000:9000]))
    # A record that a kill has cut short does not count.
    (tmp_path / "0000000000000001.custody").write_bytes(segment + whole[:-3000])
    (tmp_path / "lock").touch()
    assert content_on_disk(tmp_path, [3, 4, 5]) == {
        3: 400_000 - len(_HTTP_HEAD),
        4: 5000 - len(_HTTP_HEAD),
        5: 0,
    }
    assert len(list(bundles(segment + whole))) == 22


def test_payloads_of_other_services_have_no_stream_bytes() -> None:
    assert stream_bytes(b"\x02" + bytes(100)) == []
    assert stream_bytes(b"\x01\x01" + bytes(15) + b"\x08\x7f\xff") == []
    assert stream_bytes(b"") == []
