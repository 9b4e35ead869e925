"""Tells `Events` which tenant each vehicle belongs to, from the database."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import structlog
from sqlalchemy import select

from underpass_control.events import Events
from underpass_control.storage.database import Database, DatabaseLostError
from underpass_control.storage.models import Terminal

_LOG = structlog.get_logger()
_AGAIN_AFTER_S = 0.5


class VehiclesOfTenants:
    """Reads the tenants of all vehicles at the start, and again after each interruption.

    `Events` itself follows the changes that come meanwhile and later.
    """

    def __init__(self, database: Database, events: Events) -> None:
        self._database = database
        self._events = events
        self._due = asyncio.Event()
        self._due.set()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin; `close` ends it."""
        self._task = asyncio.create_task(self._run(), name="vehicles-of-tenants")

    async def close(self) -> None:
        """End it."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def on_change(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in a change: `Events` has done so."""

    def on_missed(self) -> None:
        """Take in that changes may have been missed."""
        self._due.set()

    async def _run(self) -> None:
        while True:
            await self._due.wait()
            self._due.clear()
            try:
                async with self._database.reading() as connection:
                    rows = await connection.execute(select(Terminal.node, Terminal.tenant_id))
                    found = {row.node: row.tenant_id for row in rows}
            except Exception as error:
                # No caller waits for this task: after any error the vehicles are read again.
                is_lost = isinstance(error, DatabaseLostError)
                _LOG.warning("vehicles are not read", error=str(error), exc_info=not is_lost)
                await asyncio.sleep(_AGAIN_AFTER_S)
                self._due.set()
                continue
            if not self._due.is_set():
                # After another interruption this reading may be older than the missed changes.
                self._events.know_tenants(found)
