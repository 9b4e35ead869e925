"""Events for followers: one ring for all of them, in which each follower has a place.

The ring bounds the memory, however many followers there are and however slow they are: a follower
that falls out of the ring is cut. An event's id is made with the change, and events have the same
order in every process. So a client that loses its process continues at another one from its last
id, while that is in the ring there.
"""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from dama.prediction.learning import KIND as LEARNED
from underpass_control.questions import ANSWER, QUESTION

# An event has 8,000 bytes at most, and as much again if it is split by terminal. The ring always
# holds `_RING` events, and more while they are small: a file changes thousands of terminals at
# once, before any follower can have read the first of these events.
_RING = 1_024
_RING_BYTES = _RING * 8_000
_MOST_SMALL = 16_384
# Kinds of changes that list many terminals, in a member named like the kind.
_LISTS = frozenset({"positions", "links", "blockages", "announcements", "alerts"})
# Kinds of changes that concern one terminal, or none.
_OF_ONE = frozenset({"terminal", "intervention", "settings"})
# Kinds of changes that every tenant sees, as they concern no vehicle; except changes of learned
# places, which say when some vehicle has lost its link, or passed.
_SHARED = frozenset({"obstructions", "tiles"})
# Kinds of changes for parts of the service only, not for followers: the destinations of clients are
# shown only to the operator who asked for them.
_ASIDE = frozenset({QUESTION, ANSWER})


@dataclass(frozen=True)
class Filter:
    """Which events a follower receives."""

    # None: all kinds.
    kinds: frozenset[str] | None = None
    # Only events about this terminal.
    terminal: int | None = None
    # Only events about this tenant's terminals and about the map.
    tenant: str | None = None


@dataclass
class _Event:
    id: str
    kind: str
    data: dict[str, Any]
    # As it is sent: encoded once for all followers.
    frame: bytes
    # By terminal, its tenant at the time of the change; and the tenant that it has left, if any.
    tenants: Mapping[int, str]
    left: str | None = None
    _of_terminal: dict[int, bytes] | None = field(default=None, repr=False)
    _of_tenant: dict[str, bytes] | None = field(default=None, repr=False)

    def frame_for(self, wanted: Filter) -> bytes | None:
        """Return the part of it that a follower is sent; None if there is none."""
        if wanted.kinds is not None and self.kind not in wanted.kinds:
            return None
        if wanted.tenant is not None:
            return self._frame_for_tenant(wanted.tenant, wanted.terminal)
        if wanted.terminal is None:
            return self.frame
        if self._of_terminal is None:
            self._of_terminal = self._split()
        return self._of_terminal.get(wanted.terminal)

    def _frame_for_tenant(self, tenant: str, terminal: int | None) -> bytes | None:
        if self.kind in _SHARED:
            is_learned = self.data.get("source") == LEARNED
            return self.frame if terminal is None and not is_learned else None
        if terminal is not None:
            if self.tenants.get(terminal) == tenant:
                return self.frame_for(Filter(terminal=terminal))
            if self.left != tenant or self.data["terminal"] != terminal:
                return None
        if self._of_tenant is None:
            self._of_tenant = self._split_by_tenant()
        return self._of_tenant.get(tenant)

    def _split_by_tenant(self) -> dict[str, bytes]:
        if self.kind in _LISTS:
            of_tenant: dict[str, list[Any]] = {}
            for one in self.data[self.kind]:
                tenant = self.tenants.get(one["terminal"])
                if tenant is not None:
                    of_tenant.setdefault(tenant, []).append(one)
            return {
                tenant: frame(self.kind, {self.kind: ones}, self.id)
                for tenant, ones in of_tenant.items()
            }
        if self.kind not in _OF_ONE or "terminal" not in self.data:
            return {}
        node = self.data["terminal"]
        told: dict[str, bytes] = {}
        if self.left is not None:
            # For the tenant that it has left, it is deleted.
            gone = {"terminal": node, "action": "deleted"}
            told[self.left] = frame(self.kind, gone, self.id)
        tenant = self.tenants.get(node)
        if tenant is not None:
            told[tenant] = self.frame
        return told

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

    `resumable`: no event is missing so far; the follower may continue from its last id.
    """

    def __init__(self, reason: str, *, resumable: bool = False) -> None:
        super().__init__(reason)
        self.resumable = resumable


class Listener(Protocol):
    """A part of the service that reacts to changes."""

    def on_change(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in a change, in the order of commits; it must not block."""

    def on_missed(self) -> None:
        """Note that changes may have been missed: all known state has to be read again."""


class Events:
    """The last events, and the followers that wait for the next."""

    def __init__(self) -> None:
        self._ring: deque[_Event] = deque()
        # The size of all frames in the ring.
        self._bytes = 0
        # By the id of each event in the ring: the place of a follower that has it as its last.
        self._places: dict[str, int] = {}
        self._listeners: list[Listener] = []
        self._count = 0
        # By terminal, its tenant; None until they have been read.
        self._tenants: dict[int, str] | None = None
        # For events up to this place the tenants of their terminals were not known.
        self._tenants_since = 0
        # Tenants that changed while they are being read; None for deleted terminals.
        self._changed_tenants: dict[int, str | None] = {}
        # Followers whose place is below this have missed something.
        self._whole_since = 0
        self._closed = False
        self._news = asyncio.Event()

    def tell(self, text: str) -> None:
        """Take in a change, as JSON with its `kind` and `event_id`."""
        data = json.loads(text)
        kind, event_id = data.pop("kind"), data.pop("event_id")
        if kind not in _ASIDE:
            self._keep(kind, data, event_id)
        for listener in self._listeners:
            listener.on_change(kind, data)

    def _keep(self, kind: str, data: dict[str, Any], event_id: str) -> None:
        """Put a change into the ring, and wake the followers."""
        left = self._learn_tenant(data) if kind == "terminal" else None
        tenants = self._tenants_of(kind, data)
        event = _Event(event_id, kind, data, frame(kind, data, event_id), tenants, left)
        self._ring.append(event)
        self._bytes += len(event.frame)
        self._count += 1
        self._places[event_id] = self._count
        while len(self._ring) > (_RING if self._bytes > _RING_BYTES else _MOST_SMALL):
            oldest = self._ring.popleft()
            self._bytes -= len(oldest.frame)
            del self._places[oldest.id]
        self._wake()

    def _tenants_of(self, kind: str, data: Mapping[str, Any]) -> dict[int, str]:
        """Return the tenants, as of now, of the terminals that a change names.

        Followers read an event later, when a terminal may belong to another tenant.
        """
        known = self._tenants or {}
        named = [data] if kind not in _LISTS else data[kind]
        terminals = [one["terminal"] for one in named if "terminal" in one]
        return {terminal: known[terminal] for terminal in terminals if terminal in known}

    def know_tenants(self, tenants: Mapping[int, str]) -> None:
        """Take in the tenants of all terminals, as they were read after the last interruption."""
        known = dict(tenants)
        for node, tenant in self._changed_tenants.items():
            if tenant is None:
                known.pop(node, None)
            else:
                known[node] = tenant
        self._changed_tenants.clear()
        if self._tenants is None:
            self._tenants_since = self._count
        self._tenants = known

    def _learn_tenant(self, data: Mapping[str, Any]) -> str | None:
        """Take in a change of a terminal; return the tenant that it has left, if any."""
        node, gone = data["terminal"], data["action"] == "deleted"
        tenant = data.get("state", {}).get("tenant")
        if not gone and tenant is None:
            return None
        if self._tenants is None:
            self._changed_tenants[node] = None if gone else tenant
            return None
        before = self._tenants.get(node)
        if gone:
            self._tenants.pop(node, None)
        else:
            self._tenants[node] = tenant
        return before if before != (None if gone else tenant) else None

    def listen(self, listener: Listener) -> None:
        """Notify a part of the service of all changes from the next one on."""
        self._listeners.append(listener)

    def interrupt(self) -> None:
        """Cut all followers: events have been missed."""
        # The interruption counts as an event, so that up-to-date followers are behind it, too.
        self._count += 1
        self._ring.clear()
        self._bytes = 0
        self._places.clear()
        self._whole_since = self._count
        self._tenants = None
        self._changed_tenants.clear()
        self._wake()
        for listener in self._listeners:
            listener.on_missed()

    def close(self) -> None:
        """Cut all followers, for good."""
        self._closed = True
        self._wake()

    def follow(self, wanted: Filter, after: str | None = None) -> Follower:
        """Begin to follow, with the next event, or with the event after an id.

        Raises:
            Cut: The ring has no event of that id, or the terminals' tenants are not known yet.
        """
        if wanted.tenant is not None and self._tenants is None:
            raise Cut("the vehicles are being read: try again")
        place = self._count if after is None else self._places.get(after)
        if place is not None and wanted.tenant is not None and place < self._tenants_since:
            # Some of the following events were given to no tenant.
            place = None
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
    """A follower's place among the events."""

    def __init__(self, events: Events, wanted: Filter, place: int) -> None:
        self._events = events
        self._wanted = wanted
        self._place = place

    def pending(self, most_bytes: int) -> bytes:
        """Return the new events, up to about `most_bytes`.

        Raises:
            Cut: Nothing more comes; the state can be read from the other endpoints.
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
        """The id of the newest event, if this follower has passed it and the ring still has it."""
        newest = self._events._ring[-1] if self._events._ring else None
        return newest.id if newest and self._place == self._events._count else None

    async def news(self) -> None:
        """Wait until there is a new event, for this follower or another."""
        if not self._events._closed and self._place == self._events._count:
            await self._events._changed()


def frame(kind: str, data: object, event_id: str | None) -> bytes:
    """Return an event as it is sent (HTML Standard, § 9.2, server-sent events)."""
    text = json.dumps(data, separators=(",", ":"))
    named = "" if event_id is None else f"id: {event_id}\n"
    return f"{named}event: {kind}\ndata: {text}\n\n".encode()
