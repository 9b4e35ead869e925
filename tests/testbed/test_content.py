from __future__ import annotations

import random

import pytest

from tests.testbed.content import BLOCK_BYTES, ContentError, Verifier, pieces


def test_content_is_accepted_however_it_is_cut() -> None:
    size = 2 * BLOCK_BYTES + 12345
    data = b"".join(pieces(7, size))
    assert len(data) == size
    verifier, cut = Verifier(7), random.Random(1)
    while verifier.offset < size:
        verifier.feed(data[verifier.offset : verifier.offset + cut.randrange(1, 200_000)])
    assert verifier.offset == size


@pytest.mark.parametrize("place", [0, 7, 8, BLOCK_BYTES - 1, BLOCK_BYTES, BLOCK_BYTES + 3])
def test_one_wrong_bit_is_found_and_its_place_told(place: int) -> None:
    data = bytearray(b"".join(pieces(7, BLOCK_BYTES + 10)))
    data[place] ^= 1
    with pytest.raises(ContentError, match=f"byte {place} of seed 7"):
        Verifier(7).feed(data)


def test_a_block_in_another_ones_place_is_found() -> None:
    data = b"".join(pieces(7, 3 * BLOCK_BYTES))
    with pytest.raises(ContentError):
        Verifier(7).feed(data[BLOCK_BYTES:])
