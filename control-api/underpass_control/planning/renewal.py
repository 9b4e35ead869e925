"""Keeps this process's leases, in a thread of its own.

So leases are renewed in time even if something blocks the event loop: a large plan, the reading of
a map, a slow database. If the loop has not run for long, it does no work either. Then leases are
not renewed, and another process takes the beams.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

import structlog

from underpass_control.clock import host_ms
from underpass_control.planning import lease
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database, DatabaseLostError

_LOG = structlog.get_logger()
# An event loop that has not run for this long counts as dead.
_DEAD_AFTER_S = 20.0
# A renewal that takes longer than this is given up: the lease has run out by then.
_WITHIN_S = lease.LASTS_MS / 1000
_END_WITHIN_S = 5.0


@dataclass(frozen=True, slots=True)
class Held:
    """The leases that are held, with their fences, and until when that is certain."""

    fences: Mapping[str, int]
    # By this process's monotonic clock, counted from the request for the renewal.
    until_s: float
    # The database was away when a renewal was due.
    away: bool = False


class Renewal:
    """The thread that renews leases, and the leases that it holds."""

    def __init__(
        self,
        database: Database,
        changes: Changes,
        holder: str,
        renewed: Callable[[Mapping[str, int]], None],
    ) -> None:
        """Also take a function to call in the event loop with the leases held."""
        self._main = database
        self._main_changes = changes
        self._holder = holder
        self._renewed = renewed
        self._held = Held({}, 0.0)
        self._moved_s = time.monotonic()
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        # The thread's own event loop.
        self._own_loop: asyncio.AbstractEventLoop | None = None
        self._look: asyncio.Event | None = None
        self._ending = False

    @property
    def held(self) -> Mapping[str, int]:
        """The fences of the leases that are certainly held now, by beam."""
        held = self._held
        return held.fences if time.monotonic() < held.until_s else {}

    @property
    def followed(self) -> Mapping[str, int]:
        """The fences of the leases whose plans are passed on.

        While the database is away, these are the last ones held: no other process can take them.
        """
        held = self._held
        return held.fences if held.away else self.held

    def start(self) -> None:
        """Begin to take leases; `close` ends it."""
        self._loop = asyncio.get_running_loop()
        self.move()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._keep()), name="leases", daemon=True
        )
        self._thread.start()

    def move(self) -> None:
        """Note that the event loop runs; call this often."""
        self._moved_s = time.monotonic()

    def look(self) -> None:
        """Look for free leases at once."""
        own_loop, look = self._own_loop, self._look
        if own_loop is not None and look is not None:
            with suppress(RuntimeError):
                # The thread may just have ended.
                own_loop.call_soon_threadsafe(look.set)

    async def close(self) -> None:
        """Give up the leases, so that another process need not wait for their end."""
        if self._thread is None:
            return
        self._ending = True
        self.look()
        await asyncio.to_thread(self._thread.join, _END_WITHIN_S)

    async def _keep(self) -> None:
        self._own_loop = asyncio.get_running_loop()
        self._look = asyncio.Event()
        # It has its own connections, so that leases are renewed even if all others are busy.
        database = Database(self._main.url, pool_size=1)
        assert self._loop is not None
        changes = self._main_changes.over(database, self._loop)
        try:
            await self._renew_for_ever(database, changes, self._look)
        finally:
            self._held = Held({}, 0.0)
            with suppress(DatabaseLostError, TimeoutError):
                async with _bounded(database):
                    await self._release(changes)
            await database.close()

    async def _renew_for_ever(
        self, database: Database, changes: Changes, look: asyncio.Event
    ) -> None:
        renewed_s = 0.0
        dead = False
        while not self._ending:
            look.clear()
            now_s = time.monotonic()
            was_dead, dead = dead, now_s - self._moved_s > _DEAD_AFTER_S
            if dead and not was_dead:
                _LOG.error("leases are not renewed: the event loop does not move")
            if not dead:
                try:
                    async with _bounded(database):
                        if now_s - renewed_s >= lease.RENEW_EVERY_S or await _any_free(database):
                            await self._renew(changes)
                            renewed_s = now_s
                except (DatabaseLostError, TimeoutError) as error:
                    # Plans continue to be passed on; leases end by themselves.
                    self._held = replace(self._held, away=True)
                    _LOG.warning("leases are not renewed", error=str(error) or "no answer in time")
                except Exception:
                    # No caller waits for this thread: after any error it has to go on.
                    _LOG.exception("leases are not renewed")
            with suppress(TimeoutError):
                async with asyncio.timeout(lease.RETRY_S):
                    await look.wait()

    async def _renew(self, changes: Changes) -> None:
        asked_s = time.monotonic()
        async with changes.transaction() as (connection, publish):
            asked_ms = host_ms()
            database_ms = await lease.now_ms(connection)
            self._main.clock.measured(asked_ms, database_ms, host_ms())
            fences = await lease.renew(connection, publish, self._holder)
        self._held = Held(fences, asked_s + lease.LASTS_MS / 1000)
        assert self._loop is not None
        with suppress(RuntimeError):
            # The loop may just have ended.
            self._loop.call_soon_threadsafe(self._renewed, fences)

    async def _release(self, changes: Changes) -> None:
        async with changes.transaction() as (connection, publish):
            for beam in await lease.release(connection, self._holder):
                publish({"kind": "lease", "beam": beam, "holder": None})


def _bounded(database: Database) -> asyncio.Timeout:
    # On SQLite, its own limit ends a wait for another's lock.
    return asyncio.timeout(None if database.is_sqlite else _WITHIN_S)


async def _any_free(database: Database) -> bool:
    async with database.reading() as connection:
        return await lease.any_free(connection)
