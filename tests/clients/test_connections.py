"""Connections that end, or do not begin."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from underpass_client import Client, ConnectionLostError, frames

from tests.clients.node import Node, serve


def test_an_endpoint_learns_of_an_end_that_comes_with_its_registration(tmp_path: Path) -> None:
    async def behave(node: Node) -> None:
        asked, _ = await node.hear()
        registered = {
            "type": "registered",
            "id": asked["id"],
            "service": 41,
            "endpoint": "ipn:1.41",
        }
        closing: dict[str, object] = {
            "type": "error",
            "id": None,
            "code": "closing",
            "message": "the node ends",
        }
        await node.write(frames.encode(registered) + frames.encode(closing))

    async def use(client: Client) -> None:
        await client.register(40)
        endpoint = await client.register(41)
        for wait in (endpoint.receive, endpoint.report):
            with pytest.raises(ConnectionLostError, match="the node ends"):
                async with asyncio.timeout(5):
                    await wait()

    asyncio.run(serve(tmp_path, behave, use))


def test_a_connection_that_nobody_waits_for_is_closed(tmp_path: Path) -> None:
    async def connect() -> None:
        ended = asyncio.Event()

        async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            assert await reader.read() == b""
            writer.close()
            ended.set()

        path = tmp_path / "socket"
        async with asyncio.timeout(20), await asyncio.start_unix_server(silent, path):
            # As whoever looks at the error does, it keeps alive what the error came through.
            with pytest.raises(TimeoutError) as error:
                async with asyncio.timeout(0.1):
                    await Client.connect(path)
            async with asyncio.timeout(5):
                await ended.wait()
            assert error.tb is not None

    asyncio.run(connect())


def test_what_comes_of_a_cancelled_registration_is_had_by_registering_again(tmp_path: Path) -> None:
    came = asyncio.Event()
    bundle: dict[str, object] = {
        "type": "bundle",
        "delivery": 3,
        "service": 41,
        "source": "ipn:2.40",
        "time_ms": 1,
        "sequence": 2,
        "age_ms": 3,
    }

    async def behave(node: Node) -> None:
        for _ in range(2):
            asked, _ = await node.hear()
            await came.wait()
            registered = {"id": asked["id"], "service": 41, "endpoint": "ipn:1.41"}
            await node.tell(type="registered", **registered)
            if asked["id"] == 2:
                await node.tell(b"early", **bundle)
        acknowledged, _ = await node.hear()
        assert acknowledged == {"type": "acknowledge", "delivery": 3}

    async def use(client: Client) -> None:
        await client.register(40)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await client.register(41)
        came.set()
        endpoint = await client.register(41)
        async with asyncio.timeout(5):
            received = await endpoint.receive()
            assert received.payload == b"early"
            await received.acknowledge()

    asyncio.run(serve(tmp_path, behave, use))
