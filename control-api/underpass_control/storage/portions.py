"""Deletes many rows in portions, each in a transaction of its own.

Between two of them other work has its turn, above all incoming reports.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine
from typing import Any, Protocol

from sqlalchemy import delete, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import InstrumentedAttribute

from underpass_control.storage.database import Database
from underpass_control.storage.models import Base

# The most rows in one transaction.
_AT_ONCE = 5_000


class Portion(Protocol):
    """Deletes at most `limit` rows, and returns how many."""

    def __call__(self, connection: AsyncConnection, *, limit: int) -> Coroutine[Any, Any, int]:
        """Delete them."""


def rows_of(table: type[Base], column: InstrumentedAttribute[Any], value: object) -> Portion:
    """Return a function that deletes the rows of a table that have a value in a column."""
    key = list(table.__table__.primary_key)

    async def portion(connection: AsyncConnection, *, limit: int) -> int:
        some = select(*key).where(column == value).limit(limit)
        result = await connection.execute(delete(table).where(tuple_(*key).in_(some)))
        return result.rowcount

    return portion


async def delete_all(database: Database, portion: Portion) -> int:
    """Delete portion by portion until there is nothing left; return how many rows."""
    total = 0
    while True:
        began = time.monotonic()
        async with database.transaction() as connection:
            count = await portion(connection, limit=_AT_ONCE)
        total += count
        if count < _AT_ONCE:
            return total
        # SQLite has one writer: leave half of the time to others.
        await asyncio.sleep(time.monotonic() - began)
