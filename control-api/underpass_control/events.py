"""Events for those who follow: one ring for all of them, each with a place in it.

Memory is the ring's, however many follow and however slow they are: who falls out of it is cut.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

# An event has 8,000 bytes at most, and once more where it is told terminal by terminal.
_RING = 512


@dataclass(frozen=True)
class Filter:
    """Which events somebody follows."""

    # None: all kinds.
    kinds: frozenset[str] | None = None
    # What concerns this terminal only.
    terminal: int | None = None


@dataclass
class _Event:
    kind: str
    data: dict[str, Any]
    # As it is sent: encoded once, whoever follows.
    frame: bytes
    _of_terminal: dict[int, bytes] | None = field(default=None, repr=False)

    def frame_for(self, wanted: Filter) -> bytes | None:
        """Return what somebody is sent of it, if anything."""
        if wanted.kinds is not None and self.kind not in wanted.kinds:
            return None
        if wanted.terminal is None:
            return self.frame
        if self._of_terminal is None:
            self._of_terminal = self._split()
        return self._of_terminal.get(wanted.terminal)

    def _split(self) -> dict[int, bytes]:
        if self.kind == "positions":
            return {
                one["terminal"]: frame(self.kind, {"positions": [one]})
                for one in self.data["positions"]
            }
        terminal = self.data.get("terminal")
        return {} if terminal is None else {terminal: self.frame}


class Cut(Exception):  # noqa: N818 - an end, not always an error
    """A follower's events end here; the text says why."""


class Events:
    """The last events, and who waits for the next."""

    def __init__(self) -> None:
        self._ring: deque[_Event] = deque(maxlen=_RING)
        self._count = 0
        # Followers that began before this have missed something.
        self._whole_since = 0
        self._closed = False
        self._news = asyncio.Event()

    def tell(self, text: str) -> None:
        """Take in a change, as JSON with its `kind`."""
        data = json.loads(text)
        kind = data.pop("kind")
        self._ring.append(_Event(kind, data, frame(kind, data)))
        self._count += 1
        self._wake()

    def interrupt(self) -> None:
        """Cut all who follow: events have been missed."""
        # A number of its own, so that whoever is up to date is behind it, too.
        self._count += 1
        self._ring.clear()
        self._whole_since = self._count
        self._wake()

    def close(self) -> None:
        """Cut all who follow, for good."""
        self._closed = True
        self._wake()

    def follow(self, wanted: Filter) -> Follower:
        """Begin to follow, with the next event."""
        return Follower(self, wanted, self._count)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _changed(self) -> None:
        await self._news.wait()

    def _since(self, place: int) -> Iterable[_Event]:
        if self._closed:
            raise Cut("the service ends")
        if place < self._whole_since:
            raise Cut("events are missing: the database was away")
        missing = self._count - place
        if missing > len(self._ring):
            raise Cut("too slow: events are missing")
        return (self._ring[n - missing] for n in range(missing))


class Follower:
    """Somebody's place among the events."""

    def __init__(self, events: Events, wanted: Filter, place: int) -> None:
        self._events = events
        self._wanted = wanted
        self._place = place

    def pending(self, most_bytes: int) -> bytes:
        """Return what is new, up to about so many bytes.

        Raises:
            Cut: Nothing more comes; what is missing can be read by the other endpoints.
        """
        found: list[bytes] = []
        size = 0
        for event in self._events._since(self._place):
            self._place += 1
            told = event.frame_for(self._wanted)
            if told is not None:
                found.append(told)
                size += len(told)
                if size >= most_bytes:
                    break
        return b"".join(found)

    async def news(self) -> None:
        """Return when there is something new, for this one or another."""
        if not self._events._closed and self._place == self._events._count:
            await self._events._changed()


def frame(kind: str, data: object) -> bytes:
    """Return an event as it is sent (HTML Standard, § 9.2, server-sent events)."""
    return f"event: {kind}\ndata: {json.dumps(data, separators=(',', ':'))}\n\n".encode()
