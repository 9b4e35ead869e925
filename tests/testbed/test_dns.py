from __future__ import annotations

import struct

import pytest

from tests.testbed import addresses
from tests.testbed.origin.dns import SILENT, reply


def _query(name: str, kind: int) -> bytes:
    labels = b"".join(bytes([len(label)]) + label.encode() for label in name.split("."))
    return struct.pack(">6H", 7, 0x0100, 1, 0, 0, 0) + labels + b"\0" + struct.pack(">2H", kind, 1)


@pytest.mark.parametrize(
    ("name", "kind", "code", "answers"),
    [
        ("origin.test", 1, 0, 1),
        ("Origin.Test", 28, 0, 1),
        ("ipv4.origin.test", 28, 0, 0),
        ("nowhere.test", 1, 3, 0),
    ],
)
def test_a_query_has_its_answer_or_its_error(name: str, kind: int, code: int, answers: int) -> None:
    answer = reply(_query(name, kind))
    assert answer is not None
    number, flags, _, count, _, _ = struct.unpack_from(">6H", answer)
    assert (number, flags & 0xF, count) == (7, code, answers)


def test_the_address_is_the_origins() -> None:
    answer = reply(_query("origin.test", 1))
    assert answer is not None
    assert ".".join(map(str, answer[-4:])) == addresses.ORIGIN


@pytest.mark.parametrize("message", [_query(f"a.{SILENT}", 1), b"", b"x" * 12, b"\xff" * 40])
def test_what_is_silent_or_no_query_has_no_answer(message: bytes) -> None:
    assert reply(message) is None
