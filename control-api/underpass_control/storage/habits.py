"""The remembered drives of terminals."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Collection, Iterable, Mapping
from itertools import groupby
from typing import Any

from sqlalchemy import Select, delete, insert, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction import ObstructionMap
from dama.prediction.habits import MOST_DRIVES, Habits, RememberedDrive, TurnCounts
from dama.prediction.paces import RoadPaces
from underpass_control.storage.membership import among, kept
from underpass_control.storage.models import RememberedDrive as Table
from underpass_control.storage.models import Terminal

# The terminals whose drives are read at once: each may have some thousand roads.
_AT_ONCE = 20
_COLUMNS = (Table.terminal, Table.roads, Table.times, Table.last_ms, Table.paces)


async def put(connection: AsyncConnection, habits: Mapping[int, Habits]) -> None:
    """Set the remembered drives of terminals; unknown terminals are left out."""
    for terminal in sorted(await kept(connection, habits)):
        await connection.execute(delete(Table).where(Table.terminal == terminal))
        rows = [
            {
                "terminal": terminal,
                "number": number,
                "roads": list(drive.roads),
                "times": drive.times,
                "last_ms": drive.last_ms,
                "paces": list(drive.paces),
            }
            for number, drive in enumerate(habits[terminal].drives)
        ]
        if rows:
            await connection.execute(insert(Table), rows)


async def of_beam(
    connection: AsyncConnection, beam: str, terminals: Collection[int] | None = None
) -> dict[int, Habits]:
    """Return the remembered drives of a beam's terminals, or of some of them."""
    theirs = select(Table.terminal).join(Terminal, Terminal.node == Table.terminal)
    return await _of(connection, theirs.where(among(beam, terminals)).distinct())


async def taught(
    connection: AsyncConnection, drawn: Iterable[ObstructionMap], now_ms: int
) -> list[ObstructionMap]:
    """Return maps with the remembered drives of all terminals counted in.

    They count the turns taken, and the speeds driven at this hour of the day.
    """
    found = (await _of(connection, select(Table.terminal).distinct())).values()
    return await asyncio.to_thread(lambda: [_taught(found, one, now_ms) for one in drawn])


def _taught(found: Iterable[Habits], drawn: ObstructionMap, now_ms: int) -> ObstructionMap:
    counts, paces = TurnCounts(), RoadPaces(now_ms)
    for habits in found:
        counts.add(habits, now_ms, drawn.turn)
        paces.add(habits)
    return drawn.turned(counts).paced(paces) if any(counts) else drawn


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` drives that were last made before a time; return how many."""
    key = (Table.terminal, Table.number)
    old = select(*key).where(Table.last_ms < before_ms).limit(limit)
    return (await connection.execute(delete(Table).where(tuple_(*key).in_(old)))).rowcount


async def _of(connection: AsyncConnection, terminals: Select[Any]) -> dict[int, Habits]:
    """Return the remembered drives of the terminals that a query gives, in order.

    Other work goes on between a few terminals and the next: to decode all would take seconds.
    """
    nodes = sorted(await connection.scalars(terminals))
    query = select(*_COLUMNS).order_by(Table.terminal, Table.number)
    found: dict[int, Habits] = {}
    for start in range(0, len(nodes), _AT_ONCE):
        some = query.where(Table.terminal.in_(nodes[start : start + _AT_ONCE]))
        found.update(_habits(await connection.execute(some)))
    return found


def _habits(rows: Iterable[Any]) -> Iterable[tuple[int, Habits]]:
    for terminal, drives in groupby(rows, key=lambda row: row.terminal):
        # Many vehicles drive the same roads: each id is kept once.
        found = (
            RememberedDrive(
                tuple(map(sys.intern, row.roads)), row.times, row.last_ms, tuple(row.paces)
            )
            for row in drives
        )
        yield terminal, Habits(tuple(found)[:MOST_DRIVES])
