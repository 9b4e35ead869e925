"""Bundles as a client of the local API gives them."""

from __future__ import annotations

import asyncio

import pytest
from underpass_client.errors import ConnectionLostError
from underpass_client.messages import Bundle


def parts(payload: bytes, file_bytes: int) -> list[bytes]:
    """Read a bundle whose payload a node has on its disk, and says to be so long."""

    async def read(offset: int) -> bytes:
        return payload[offset : offset + 4]

    async def acknowledge() -> None:
        pass

    async def all_parts() -> list[bytes]:
        bundle = Bundle("ipn:1.1", 0, 0, 0, b"", file_bytes, read, acknowledge)
        async with asyncio.timeout(10):
            return [part async for part in bundle.parts()]

    return asyncio.run(all_parts())


def test_a_payload_on_disk_comes_in_parts() -> None:
    assert parts(b"0123456789", 10) == [b"0123", b"4567", b"89"]
    assert parts(b"", 0) == []


def test_a_node_that_has_less_than_it_says_is_not_asked_for_ever() -> None:
    with pytest.raises(ConnectionLostError, match="10 of 11"):
        parts(b"0123456789", 11)
