"""The content that origins serve: endless, seeded, and never equal to a shifted copy of itself.

It consists of blocks. Each begins with its own number; the rest is the same in every block, so
that an origin can send it from one file and a client can check it by comparing memory.
"""

from __future__ import annotations

import functools
import random
from collections.abc import Iterator

BLOCK_BYTES = 1 << 20
_HEADER_BYTES = 8


class ContentError(AssertionError):
    """Received bytes differ from what the origin sent."""


@functools.lru_cache(maxsize=16)
def block_body(seed: int) -> bytes:
    """Return a block of the seed's content; in use its number replaces the first eight bytes."""
    return random.Random(seed).randbytes(BLOCK_BYTES)


def block_header(index: int) -> bytes:
    """Return the first bytes of block `index`."""
    return index.to_bytes(_HEADER_BYTES, "big")


def pieces(seed: int, size: int, offset: int = 0) -> Iterator[bytes]:
    """Yield the bytes `offset` to `size` of the seed's content, at most a block at a time."""
    while offset < size:
        piece = _expected(seed, offset, size - offset)
        yield piece
        offset += len(piece)


class Verifier:
    """Checks received bytes, in order, against the seed's content."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.offset = 0

    def feed(self, data: bytes | bytearray | memoryview) -> None:
        """Check the next bytes; raise `ContentError` with the place of the first wrong one."""
        view = memoryview(data)
        while view:
            expected = _expected(self.seed, self.offset, len(view))
            got = bytes(view[: len(expected)])
            if got != expected:
                wrong = next(
                    i for i, (a, b) in enumerate(zip(got, expected, strict=True)) if a != b
                )
                raise ContentError(
                    f"byte {self.offset + wrong} of seed {self.seed}: "
                    f"{got[wrong : wrong + 8].hex()} instead of {expected[wrong : wrong + 8].hex()}"
                )
            self.offset += len(expected)
            view = view[len(expected) :]


def _expected(seed: int, offset: int, limit: int) -> bytes:
    index, at = divmod(offset, BLOCK_BYTES)
    if at < _HEADER_BYTES:
        return block_header(index)[at : at + limit]
    return block_body(seed)[at : min(at + limit, BLOCK_BYTES)]
