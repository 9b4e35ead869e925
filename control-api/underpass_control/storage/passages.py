"""How often terminals lost their links at obstructions of the map, and how often they held."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction.learning import KIND, SURE, Counts
from underpass_control.storage.bulk import BulkInsert
from underpass_control.storage.changes import Publish
from underpass_control.storage.membership import kept, portions_of
from underpass_control.storage.models import Obstruction
from underpass_control.storage.models import ObstructionCount as Table

# A change of an obstruction's certainty is announced in such steps: with each, all maps are read.
_STEPS = 10
_COLUMNS = ("obstruction", "terminal", "lost", "held", "last_ms")
_PUT = BulkInsert(
    Table,
    _COLUMNS,
    "(obstruction, terminal) DO UPDATE SET"
    " lost = excluded.lost, held = excluded.held, last_ms = excluded.last_ms",
)


async def put(
    connection: AsyncConnection,
    publish: Publish,
    passed: Mapping[tuple[str, int], tuple[int, int]],
    now_ms: int,
) -> None:
    """Count passages: by obstruction and terminal, how often the link was lost, and held.

    A terminal's passages are counted by one process, the one that plans its beam. Left out are
    unknown terminals, and obstructions that are unknown, learned, or certain by the map.
    """
    mapped = await _mapped(connection, {name for name, _ in passed})
    known = await kept(connection, {terminal for _, terminal in passed})
    keys = sorted((name, terminal) for name, terminal in passed if name in mapped)
    keys = [key for key in keys if key[1] in known]
    whole_before = await totals(connection, mapped)
    whole = dict(whole_before)
    before = await _counts(connection, keys)
    rows = []
    for key in keys:
        counts, last_ms = before.get(key, (Counts(), now_ms))
        after = counts.after(*passed[key], now_ms - last_ms)
        rows.append((*key, after.lost, after.held, now_ms))
        of_all = whole.get(key[0], Counts())
        whole[key[0]] = Counts(
            of_all.lost + after.lost - counts.lost, of_all.held + after.held - counts.held
        )
    await _PUT.execute(connection, rows)
    moved = [
        name
        for name, certainty in mapped.items()
        if _step(whole.get(name), certainty) != _step(whole_before.get(name), certainty)
    ]
    if moved:
        # As with changes of learned places, tenants get no event of it.
        change = {"kind": "obstructions", "action": "set", "source": KIND, "count": len(moved)}
        publish(change)


async def totals(
    connection: AsyncConnection, obstructions: Collection[str] | None = None
) -> dict[str, Counts]:
    """Return the counts of all terminals together, by obstruction; None: all of them."""
    query = select(
        Table.obstruction, func.sum(Table.lost).label("lost"), func.sum(Table.held).label("held")
    ).group_by(Table.obstruction)
    found: list[Any] = []
    if obstructions is None:
        found += await connection.execute(query)
    else:
        for some in portions_of(obstructions):
            found += await connection.execute(query.where(Table.obstruction.in_(some)))
    return {row.obstruction: Counts(row.lost, row.held) for row in found}


async def corrected(connection: AsyncConnection, by_map: Mapping[str, float]) -> dict[str, float]:
    """Return what passages have made of the map's certainties of some obstructions.

    Those that nobody has passed, or that the map is sure of, are left out.
    """
    unsure = [name for name, certainty in by_map.items() if certainty < SURE]
    passed = await totals(connection, unsure)
    return {name: counts.certainty(by_map[name]) for name, counts in passed.items()}


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` counts whose last passage was before a time; return how many."""
    key = (Table.obstruction, Table.terminal)
    old = select(*key).where(Table.last_ms < before_ms).limit(limit)
    return (await connection.execute(delete(Table).where(tuple_(*key).in_(old)))).rowcount


async def _mapped(connection: AsyncConnection, names: Collection[str]) -> dict[str, float]:
    """Return the certainties by the map of those obstructions that it is not sure of."""
    found: dict[str, float] = {}
    columns = (Obstruction.id, Obstruction.properties)
    for some in portions_of(names):
        query = select(*columns).where(Obstruction.id.in_(some), Obstruction.source != KIND)
        for row in await connection.execute(query):
            certainty = row.properties.get("certainty")
            if isinstance(certainty, int | float) and 0.0 < certainty < SURE:
                found[row.id] = certainty
    return found


async def _counts(
    connection: AsyncConnection, keys: Collection[tuple[str, int]]
) -> dict[tuple[str, int], tuple[Counts, int]]:
    """Return the counts of terminals at obstructions, and when they last passed there."""
    found: dict[tuple[str, int], tuple[Counts, int]] = {}
    columns = [getattr(Table, name) for name in _COLUMNS]
    for some in portions_of(keys):
        query = select(*columns).where(tuple_(Table.obstruction, Table.terminal).in_(some))
        for row in await connection.execute(query):
            found[row.obstruction, row.terminal] = Counts(row.lost, row.held), row.last_ms
    return found


def _step(counts: Counts | None, by_map: float) -> int:
    return round(_STEPS * (counts or Counts()).certainty(by_map))
