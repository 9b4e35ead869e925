"""A node as a client of the applications' socket sees it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from underpass_client import Client, frames

MAX_PAYLOAD_BYTES = 10
MAX_FILE_BYTES = 1000


class Node:
    """A connection, as the node has it; it has given a service already."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def greet(self) -> None:
        """Greet the client, and give it service 40."""
        await self.tell(
            type="hello",
            version=1,
            node=1,
            max_payload_bytes=MAX_PAYLOAD_BYTES,
            max_file_bytes=MAX_FILE_BYTES,
        )
        asked, _ = await self.hear()
        await self.tell(type="registered", id=asked["id"], service=40, endpoint="ipn:1.40")

    async def tell(self, payload: bytes = b"", **head: object) -> None:
        """Say something."""
        await self.write(frames.encode(head, payload))

    async def write(self, written: bytes) -> None:
        """Write frames, all at once."""
        self._writer.write(written)
        await self._writer.drain()

    async def hear(self) -> tuple[dict[str, Any], bytes]:
        """Return what the client says next."""
        return await frames.read(self._reader)

    async def sent(self, number: int) -> None:
        """Tell that a bundle was taken."""
        await self.tell(type="sent", id=number, source="ipn:1.40", time_ms=5, sequence=6)


async def serve(
    folder: Path,
    behave: Callable[[Node], Awaitable[None]],
    use: Callable[[Client], Awaitable[None]],
) -> None:
    """Have a client use a node that behaves so."""
    behaved: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        node = Node(reader, writer)
        try:
            await node.greet()
            await behave(node)
        except Exception as error:
            behaved.set_exception(error)
        else:
            behaved.set_result(None)
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()

    path = folder / "socket"
    server = await asyncio.start_unix_server(connected, path)
    async with asyncio.timeout(60), server:
        async with await Client.connect(path) as client:
            await use(client)
        await behaved
