"""Events for those who follow: one ring for all of them, each with a place in it.

Memory is the ring's, however many follow and however slow they are: who falls out of it is cut.
An event's id is made with the change and comes in the same order to every process, so whoever has
lost one of them goes on with another, from the last id, while that is in the ring there.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

# An event has 8,000 bytes at most, and as much again if it is split by terminal.
_RING = 1024
# Kinds of changes that list many terminals, under a name equal to the kind.
_LISTS = frozenset({"positions", "links", "blockages", "announcements"})


@dataclass(frozen=True)
class Filter:
    """Which events somebody follows."""

    # None: all kinds.
    kinds: frozenset[str] | None = None
    # What concerns this terminal only.
    terminal: int | None = None


@dataclass
class _Event:
    id: str
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
        if self.kind in _LISTS:
            of_terminal: dict[int, list[Any]] = {}
            for one in self.data[self.kind]:
                of_terminal.setdefault(one["terminal"], []).append(one)
            return {
                terminal: frame(self.kind, {self.kind: ones}, self.id)
                for terminal, ones in of_terminal.items()
            }
        terminal = self.data.get("terminal")
        return {} if terminal is None else {terminal: self.frame}


class Cut(Exception):  # noqa: N818 - an end, not always an error
    """A follower's events end here; the text says why.

    `resumable`: none are missing so far, it may go on from its last id.
    """

    def __init__(self, reason: str, *, resumable: bool = False) -> None:
        super().__init__(reason)
        self.resumable = resumable


class Listener(Protocol):
    """A part of the service that goes by what changes."""

    def on_change(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in a change, in the order of commits; it must not block."""

    def on_missed(self) -> None:
        """Take in that changes may have been missed: what is known has to be read again."""


class Events:
    """The last events, and who waits for the next."""

    def __init__(self) -> None:
        self._ring: deque[_Event] = deque()
        # By the id of each event in the ring: the place of a follower that has it as its last.
        self._places: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._count = 0
        # Followers whose place is below this have missed something.
        self._whole_since = 0
        self._closed = False
        self._news = asyncio.Event()

    def tell(self, text: str) -> None:
        """Take in a change, as JSON with its `kind` and `event_id`."""
        data = json.loads(text)
        kind, event_id = data.pop("kind"), data.pop("event_id")
        if len(self._ring) == _RING:
            del self._places[self._ring.popleft().id]
        self._ring.append(_Event(event_id, kind, data, frame(kind, data, event_id)))
        self._count += 1
        self._places[event_id] = self._count
        self._wake()
        for listener in self._listeners:
            listener.on_change(kind, data)

    def listen(self, listener: Listener) -> None:
        """Have a part of the service told, from the next change on."""
        self._listeners.append(listener)

    def interrupt(self) -> None:
        """Cut all who follow: events have been missed."""
        # It counts as an event, so that even followers that are up to date are behind it.
        self._count += 1
        self._ring.clear()
        self._places.clear()
        self._whole_since = self._count
        self._wake()
        for listener in self._listeners:
            listener.on_missed()

    def close(self) -> None:
        """Cut all who follow, for good."""
        self._closed = True
        self._wake()

    def follow(self, wanted: Filter, after: str | None = None) -> Follower:
        """Begin to follow, with the next event, or with the one after that of an id.

        Raises:
            Cut: There is none of that id, or no longer.
        """
        place = self._count if after is None else self._places.get(after)
        if place is None:
            raise Cut("the events after the last id are no longer here")
        return Follower(self, wanted, place)

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()

    async def _changed(self) -> None:
        await self._news.wait()

    def _since(self, place: int) -> Iterable[_Event]:
        if self._closed:
            raise Cut("the service ends", resumable=True)
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

    @property
    def reached(self) -> str | None:
        """The id of the newest event, where this one has been past it; None if it has passed."""
        newest = self._events._ring[-1] if self._events._ring else None
        return newest.id if newest and self._place == self._events._count else None

    async def news(self) -> None:
        """Return when there is something new, for this one or another."""
        if not self._events._closed and self._place == self._events._count:
            await self._events._changed()


def frame(kind: str, data: object, event_id: str | None) -> bytes:
    """Return an event as it is sent (HTML Standard, § 9.2, server-sent events)."""
    text = json.dumps(data, separators=(",", ":"))
    named = "" if event_id is None else f"id: {event_id}\n"
    return f"{named}event: {kind}\ndata: {text}\n\n".encode()
