"""Position reports are deleted once they are old."""

from __future__ import annotations

import asyncio
import time

import structlog

from underpass_control.metrics import Metrics
from underpass_control.settings import Settings
from underpass_control.storage import positions
from underpass_control.storage.database import Database, DatabaseLostError

_LOG = structlog.get_logger()
# Deleted in one transaction: reports that come in meanwhile wait for it on SQLite.
_AT_ONCE = 5_000


async def prune_for_ever(database: Database, settings: Settings, metrics: Metrics) -> None:
    """Delete old reports, now and each `prune_every_s`, until cancelled."""
    if settings.keep_positions_s is None:
        return
    keep_ms = round(settings.keep_positions_s * 1000)
    while True:
        try:
            count = await prune(database, time.time_ns() // 1_000_000 - keep_ms)
        except DatabaseLostError as error:
            _LOG.warning("old positions could not be deleted", error=str(error))
        else:
            if count:
                metrics.positions_pruned.inc(count)
                _LOG.info("old positions deleted", count=count)
        await asyncio.sleep(settings.prune_every_s)


async def prune(database: Database, before_ms: int) -> int:
    """Delete reports older than a time, all but each terminal's newest; return how many."""
    total = 0
    while True:
        async with database.transaction() as connection:
            count = await positions.prune(connection, before_ms, limit=_AT_ONCE)
        total += count
        if count < _AT_ONCE:
            return total
