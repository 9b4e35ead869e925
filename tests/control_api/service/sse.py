"""A client's view of a stream of server-sent events."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection
from typing import Any

import aiohttp


class Stream:
    """The events of a response, one after the other."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        """Continue to read the response."""
        self._response = response
        self.last_id = ""

    async def next(self) -> tuple[str, Any]:
        """Return the next event's kind and data, skipping comments."""
        kind = ""
        async with asyncio.timeout(60):
            while True:
                name, value = await self._field()
                if name == "event":
                    kind = value
                elif name == "data":
                    return kind, json.loads(value)

    async def until_id(self, passed: Collection[str]) -> None:
        """Wait until one of some events is known to have passed."""
        async with asyncio.timeout(60):
            while True:
                name, value = await self._field()
                if name == "id" and value in passed:
                    return

    async def record(self, ids: set[str]) -> None:
        """Note the ids of all events, until cancelled."""
        while True:
            await self.next()
            ids.add(self.last_id)

    async def _field(self) -> tuple[str, str]:
        line = await self._response.content.readline()
        if not line:
            raise EOFError
        name, _, value = line.decode().rstrip("\n").partition(": ")
        if name == "id":
            self.last_id = value
        return name, value
