"""Payloads that a client gives a node in parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
from underpass_client import Client, ConnectionLostError, NoRoomError, Sent

from tests.clients.node import MAX_PAYLOAD_BYTES, Node, serve

LONG = bytes(range(64))
SENT = Sent("ipn:1.40", 5, 6)


async def _take(node: Node, length: int, kind: str = "begin") -> bytes:
    """Take a payload that comes in parts."""
    begin, _ = await node.hear()
    assert (begin["type"], begin["bytes"]) == (kind, length)
    await node.tell(type="begun", id=begin["id"])
    payload = b""
    while len(payload) < length:
        part, more = await node.hear()
        assert part == {"type": "part", "id": begin["id"]}
        assert 0 < len(more) <= MAX_PAYLOAD_BYTES
        payload += more
    await node.sent(begin["id"])
    return payload


async def _parts(*parts: bytes) -> AsyncIterator[bytes]:
    for part in parts:
        yield part


def _serve(
    folder: Path,
    behave: Callable[[Node], Awaitable[None]],
    use: Callable[[Client], Awaitable[None]],
) -> None:
    asyncio.run(serve(folder, behave, use))


def test_a_payload_above_a_frame_goes_in_parts(tmp_path: Path) -> None:
    async def behave(node: Node) -> None:
        assert await _take(node, len(LONG)) == LONG
        short, payload = await node.hear()
        assert (short["type"], payload) == ("send", b"short")
        await node.sent(short["id"])

    async def use(client: Client) -> None:
        endpoint = await client.register(40)
        assert await endpoint.send("ipn:2.40", LONG) == SENT
        assert await endpoint.send("ipn:2.40", b"short") == SENT

    _serve(tmp_path, behave, use)


@pytest.mark.parametrize("length", [0, 1, 64])
def test_a_file_is_sent_whatever_its_length(tmp_path: Path, length: int) -> None:
    path = tmp_path / "file"
    path.write_bytes(LONG[:length])

    async def behave(node: Node) -> None:
        assert await _take(node, length) == LONG[:length]

    async def use(client: Client) -> None:
        endpoint = await client.register(40)
        assert await endpoint.send_file("ipn:2.40", path, custody=False) == SENT

    _serve(tmp_path, behave, use)


def test_uploads_wait_for_each_other(tmp_path: Path) -> None:
    async def behave(node: Node) -> None:
        assert {await _take(node, 20), await _take(node, 20)} == {b"a" * 20, b"b" * 20}

    async def use(client: Client) -> None:
        endpoint = await client.register(40)
        both = (endpoint.send("ipn:2.40", letter * 20) for letter in (b"a", b"b"))
        assert await asyncio.gather(*both) == [SENT, SENT]

    _serve(tmp_path, behave, use)


def test_a_refusal_ends_an_upload_at_once_and_not_the_connection(tmp_path: Path) -> None:
    async def behave(node: Node) -> None:
        for begun in (False, True):
            begin, _ = await node.hear()
            if begun:
                await node.tell(type="begun", id=begin["id"])
                await node.hear()
            await node.tell(type="error", id=begin["id"], code="no_room", message="full")
        # What was on its way is ignored.
        while (head := (await node.hear())[0])["type"] == "part":
            pass
        await node.sent(head["id"])

    async def endless() -> AsyncIterator[bytes]:
        while True:
            yield b"x"
            await asyncio.sleep(0.01)

    async def use(client: Client) -> None:
        endpoint = await client.register(40)
        for _ in range(2):
            with pytest.raises(NoRoomError):
                await endpoint.send_parts("ipn:2.40", 1 << 40, endless())
        assert await endpoint.send("ipn:2.40", b"short") == SENT

    _serve(tmp_path, behave, use)


def test_parts_of_another_length_are_an_error_and_the_next_payload_is_sent(tmp_path: Path) -> None:
    async def behave(node: Node) -> None:
        for _ in range(2):
            begin, _ = await node.hear()
            await node.tell(type="begun", id=begin["id"])
            await node.hear()
        while (head := (await node.hear())[0])["type"] == "part":
            pass
        assert head["bytes"] == 20
        await node.tell(type="begun", id=head["id"])
        assert [(await node.hear())[1] for _ in range(2)] == [b"a" * 10] * 2
        await node.sent(head["id"])

    async def use(client: Client) -> None:
        endpoint = await client.register(40)
        for parts in (_parts(b"short"), _parts(b"long", b"long", b"long")):
            with pytest.raises(ValueError, match="the parts"):
                await endpoint.send_parts("ipn:2.40", 10, parts)
        assert await endpoint.send("ipn:2.40", b"a" * 20) == SENT

    _serve(tmp_path, behave, use)


def test_a_connection_that_ends_ends_an_upload(tmp_path: Path) -> None:
    async def behave(node: Node) -> None:
        begin, _ = await node.hear()
        await node.tell(type="begun", id=begin["id"])
        await node.hear()

    async def use(client: Client) -> None:
        endpoint = await client.register(40)
        with pytest.raises((ConnectionLostError, ConnectionError)):
            await endpoint.send("ipn:2.40", bytes(1 << 20))

    _serve(tmp_path, behave, use)
