"""Round trips to an echo service."""

from __future__ import annotations

import asyncio
import secrets
import time

from underpass_client.client import Endpoint

_MARK_BYTES = 16


async def ping(
    endpoint: Endpoint, destination: str, *, size: int = 64, timeout_s: float = 10.0
) -> float:
    """Send a bundle to an echo service; return its round trip, s.

    Raise `TimeoutError` if it does not come back in time. Whatever else comes for the endpoint
    meanwhile is dropped: it is best one of its own.
    """
    payload = secrets.token_bytes(_MARK_BYTES).ljust(size, b"\0")
    begun = time.monotonic()
    async with asyncio.timeout(timeout_s):
        await endpoint.send(destination, payload, lifetime_s=timeout_s)
        while True:
            bundle = await endpoint.receive()
            came = time.monotonic()
            await bundle.acknowledge()
            if bundle.payload == payload:
                return came - begun
