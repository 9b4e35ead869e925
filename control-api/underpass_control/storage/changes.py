"""Changes, announced to every process through the database.

A change is announced in the transaction that makes it. PostgreSQL passes it on to all processes
that listen (LISTEN, NOTIFY), this one included, once the transaction is committed and in the order
of commits; SQLite has one process, which is told after the commit.
"""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg
import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.database import Database

_LOG = structlog.get_logger()
_CHANNEL = "underpass_changes"
_NOTIFY = "SELECT pg_notify($1, told) FROM unnest($2::text[]) AS told"
# PostgreSQL takes less than 8,000 bytes; JSON in ASCII has one byte per character.
_MOST_PAYLOAD = 7_980
# The most that a change may have without its id.
MOST_BYTES = 7_900
_ID_BYTES = 8
# The most that the members of a list may have; the rest is for its name.
_LISTED_BYTES = MOST_BYTES - 100
_CHECK_EVERY_S = 10.0
_AGAIN_AFTER_S = 1.0
_START_WITHIN_S = 5.0

# An encoder of its own for each of a thousand positions would take longer than encoding them.
_encode = json.JSONEncoder(separators=(",", ":")).encode


class RevisionError(RuntimeError):
    """The object to change is not at the revision that the caller shows."""


Change = Mapping[str, Any]
Publish = Callable[[Change], None]


def listed(kind: str, members: Iterable[Mapping[str, Any]]) -> Iterator[Change]:
    """Yield changes of a kind that list members under its name, in each as many as it holds."""
    held: list[Mapping[str, Any]] = []
    room = _LISTED_BYTES
    for one in members:
        size = len(_encode(one)) + 1
        if held and size > room:
            yield {"kind": kind, kind: held}
            held, room = [], _LISTED_BYTES
        held.append(one)
        room -= size
    if held:
        yield {"kind": kind, kind: held}


class Changes:
    """Transactions that announce what they change, and the announcements of all processes."""

    def __init__(
        self, database: Database, tell: Callable[[str], None], interrupted: Callable[[], None]
    ) -> None:
        """Take the functions to call with each change, as JSON, and after missed changes."""
        self._database = database
        self._tell = tell
        self._interrupted = interrupted
        self._task: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    def over(self, database: Database, loop: asyncio.AbstractEventLoop) -> Changes:
        """Return the same for another thread, over its own connections to the same database.

        What is told is told in the event loop that is given.
        """

        def tell(text: str) -> None:
            with suppress(RuntimeError):
                # The loop may just have ended.
                loop.call_soon_threadsafe(self._tell, text)

        return Changes(database, tell, lambda: None)

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[tuple[AsyncConnection, Publish]]:
        """Begin; changes published meanwhile are announced only if it is committed.

        Each change gets an `event_id`, the same for all processes that are told of it.
        """
        told: list[str] = []

        def publish(change: Change) -> None:
            identified = {**change, "event_id": secrets.token_hex(_ID_BYTES)}
            text = _encode(identified)
            assert len(text) <= _MOST_PAYLOAD, "a change is announced by what names it"
            told.append(text)

        async with self._database.transaction() as connection:
            yield connection, publish
            if told and not self._database.is_sqlite:
                # All in one statement: a file of terminals makes thousands.
                await connection.exec_driver_sql(_NOTIFY, (_CHANNEL, told))
        if self._database.is_sqlite:
            for text in told:
                self._tell(text)

    async def start(self) -> None:
        """Listen, until `close`; return once it does, or soon if the database is away."""
        if not self._database.is_sqlite:
            self._task = asyncio.create_task(self._listen_for_ever(), name="listen")
            with suppress(TimeoutError):
                async with asyncio.timeout(_START_WITHIN_S):
                    await self._listening.wait()

    async def close(self) -> None:
        """Listen no more."""
        if self._task:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _listen_for_ever(self) -> None:
        while True:
            try:
                await self._listen()
            except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
                _LOG.warning("changes of other processes are missed", error=str(error))
            self._interrupted()
            await asyncio.sleep(_AGAIN_AFTER_S)

    async def _listen(self) -> None:
        # As the pool connects: in a text, asyncpg takes `ssl` and others for the server's settings.
        dialect = self._database.engine.dialect
        _, options = dialect.create_connect_args(self._database.url)
        # SQLAlchemy's own.
        options.pop("prepared_statement_cache_size", None)
        connection = await asyncpg.connect(**options, timeout=10)
        try:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda *_: lost.set())
            await connection.add_listener(_CHANNEL, lambda *heard: self._tell(heard[3]))
            # Changes before this were missed: followers have to read the state again.
            self._interrupted()
            self._listening.set()
            while not lost.is_set():
                with suppress(TimeoutError):
                    async with asyncio.timeout(_CHECK_EVERY_S):
                        await lost.wait()
                # A host that vanishes does not close its connections; only a query detects that.
                await connection.execute("SELECT 1", timeout=_CHECK_EVERY_S)
        finally:
            connection.terminate()
