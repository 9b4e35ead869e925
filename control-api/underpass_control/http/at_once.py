"""Limits how many requests for expensive work run at once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from weakref import WeakValueDictionary

from underpass_control.http.callers import party_of
from underpass_control.http.endpoint import Call
from underpass_control.http.problem import Problem


class AtOnce:
    """Admits a number of requests and refuses the others: a waiting one would keep its body."""

    def __init__(self, most: int, what: str) -> None:
        """Take how many, and what they are called in errors."""
        self._most = most
        self._what = what
        self._count = 0
        # How many each party has.
        self._of: Counter[Hashable] = Counter()

    @property
    def is_idle(self) -> bool:
        """Tell whether none is admitted at present."""
        return not self._count

    @contextmanager
    def one(self, party: Hashable = None) -> Iterator[None]:
        """Count one request while it lasts.

        If its party is given, a party has at most as many as there are free places, so it cannot
        lock the others out.

        Raises:
            Problem: 503, all places are taken; 429, the party has too many.
        """
        later = {"Retry-After": "10"}
        if self._count >= self._most:
            detail = f"{self._most} {self._what} are being worked on: try again later"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=later)
        own = self._of[party]
        if party is not None and own >= self._most - self._count:
            detail = f"{own} {self._what} of yours, or your tenant's, are being worked on"
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers=later)
        self._count += 1
        self._of[party] += 1
        try:
            yield
        finally:
            self._count -= 1
            self._of[party] -= 1
            if not self._of[party]:
                del self._of[party]


class Rotation:
    """Lets some work at a time; the parties that wait have one turn each, one after the other."""

    def __init__(self, most: int) -> None:
        """Take how many work at a time."""
        self._working = asyncio.Semaphore(most)
        # Only who holds its party's lock waits with those of other parties.
        self._first: WeakValueDictionary[Hashable, asyncio.Lock] = WeakValueDictionary()

    async def begin(self, party: Hashable) -> None:
        """Wait for a turn of a party; `end` has to follow."""
        async with self._first.setdefault(party, asyncio.Lock()):
            await self._working.acquire()

    def end(self) -> None:
        """Let the next one work."""
        self._working.release()


class InTurn:
    """Admits a number of requests, and lets some work while the others wait for their turn.

    A request reads what it needs when its turn has come, so waiting ones hold no memory.
    """

    def __init__(self, working: int, most: int, what: str) -> None:
        """Take how many work at a time, how many are admitted, and what they are called."""
        self._rotation = Rotation(working)
        self._admitted = AtOnce(most, what)

    @asynccontextmanager
    async def one(self, call: Call) -> AsyncIterator[None]:
        """Wait for a request's turn, and count it for its caller's party while it lasts.

        Raises:
            Problem: 503, too many are admitted, or its client did not wait; 429, too many of its
                party.
        """
        party = party_of(call.known_caller)
        with self._admitted.one(party):
            await self._rotation.begin(party)
            try:
                if call.request.transport is None:
                    # Clients that give up and ask again would have all work done twice.
                    raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, "its client has gone away")
                yield
            finally:
                self._rotation.end()
