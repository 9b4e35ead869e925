"""What an application is given."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import Literal

from underpass_client.errors import ConnectionLostError

# What status reports tell of a bundle.
Event = Literal["received", "forwarded", "delivered", "deleted"]


@dataclass(frozen=True)
class Sent:
    """A bundle that the node has taken: its source and creation timestamp.

    `time_ms` is DTN time, ms since 2000-01-01 UTC. A bundle to the node itself has no timestamp.
    """

    source: str
    time_ms: int | None
    sequence: int | None


@dataclass(frozen=True)
class Bundle:
    """A bundle that has come; it comes again on a later connection until it is acknowledged.

    A long payload is on the node's disk: then `payload` is empty and `file_bytes` its length, and
    `parts` reads it.
    """

    source: str
    time_ms: int
    sequence: int
    age_ms: int
    payload: bytes
    file_bytes: int | None
    _read: Callable[[int], Awaitable[bytes]] = field(repr=False, compare=False)
    _acknowledge: Callable[[], Awaitable[None]] = field(repr=False, compare=False)

    async def acknowledge(self) -> None:
        """Tell the node that the bundle is safe here, or done with."""
        await self._acknowledge()

    async def parts(self) -> AsyncIterator[bytes]:
        """Give the payload in parts of at most a few MiB, before it is acknowledged.

        Raises:
            RefusedError: The node no longer has it, as of a bundle that is acknowledged.
            ConnectionLostError: It has less of it than it has said, or the connection has ended.
        """
        if self.file_bytes is None:
            yield self.payload
            return
        offset = 0
        while offset < self.file_bytes:
            part = await self._read(offset)
            if not part:
                told = f"{offset} of {self.file_bytes}"
                raise ConnectionLostError(f"the node gives {told} bytes of the payload and no more")
            offset += len(part)
            yield part


@dataclass(frozen=True)
class Report:
    """A status report on the bundle of this timestamp; `at_ms` is the reporter's DTN time."""

    reporter: str
    time_ms: int
    sequence: int
    events: tuple[Event, ...]
    at_ms: int | None
    reason: int
