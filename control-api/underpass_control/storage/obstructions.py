"""Obstructions, by id; setting the same ones again changes nothing."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import AsyncIterable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, case, delete, func, literal, select, union_all
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction import Obstruction
from dama.prediction.geojson import to_feature
from dama.prediction.learning import KIND as LEARNED
from dama.prediction.obstruction import MAX_NAME
from dama.prediction.places import Position
from underpass_control.storage.boxes import Box, box_of, touches, touching
from underpass_control.storage.changes import Publish
from underpass_control.storage.models import Obstruction as Table
from underpass_control.storage.models import Tileset
from underpass_control.storage.models.tiles import CURRENT

_MOST_ID = 128
# Databases store neither NUL nor half a surrogate pair; the other control characters have no use in
# a name of one line. Names may have what is invisible otherwise: it joins the letters of Persian
# words, and directs those of Arabic and Hebrew ones.
_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f-\x9f\ud800-\udfff]")
# The most rows in one statement: each may have some kilobytes of roads.
_AT_ONCE = 500
# In a part of the map with more obstructions than this, a page is soon found in order of ids; in
# others, all are found first.
_MOST_FOUND = 10_000
# The most obstructions that a change names.
_MOST_TOLD = 4
_ADVISORY_LOCK = 0x756E_6D61


class UnstorableError(ValueError):
    """The database cannot store such an id or name, or a learned place has the id."""


async def put(
    connection: AsyncConnection,
    publish: Publish,
    source: str,
    obstructions: Sequence[Obstruction],
    *,
    properties: Mapping[str, Mapping[str, Any]] | None = None,
) -> None:
    """Set obstructions; those of the same id are replaced.

    `properties` has, by id, further properties to store with them.

    Raises:
        UnstorableError: One has such an id or name; the transaction has to be rolled back.
    """
    rows = await _rows(source, obstructions)
    for row in rows:
        row["properties"] |= (properties or {}).get(row["id"], {})
    await _put_rows(connection, source, rows)
    if rows:
        _publish_ids(publish, "set", source, [one.id for one in obstructions])


@dataclass(frozen=True)
class Replaced:
    """The result of replacing a map: how many obstructions it has, and how many were removed."""

    count: int
    removed: int


async def replace(
    connection: AsyncConnection,
    publish: Publish,
    source: str,
    portions: AsyncIterable[Sequence[Obstruction]],
) -> Replaced:
    """Replace a map's obstructions by these; all others that it had are deleted.

    If another map has one of the same id, it belongs to this map from now on; learned places belong
    to no map.

    Raises:
        UnstorableError: One has such an id or name; the transaction has to be rolled back.
    """
    await _lock_maps(connection)
    kept: set[str] = set()
    async for some in portions:
        await _put_rows(connection, source, await _rows(source, some))
        kept.update(one.id for one in some)
    # Read last: SQLite locks the file with the first row that is written.
    had = await connection.scalars(select(Table.id).where(Table.source == source))
    gone = set(had) - kept
    await _delete(connection, sorted(gone))
    _publish_ids(publish, "set", source, sorted(kept | gone))
    return Replaced(len(kept), len(gone))


async def remove_map(connection: AsyncConnection, publish: Publish, source: str) -> int:
    """Delete all obstructions of a map; return how many."""
    await _lock_maps(connection)
    gone = list(
        await connection.scalars(delete(Table).where(Table.source == source).returning(Table.id))
    )
    if gone:
        _publish_ids(publish, "deleted", source, gone)
    return len(gone)


async def _lock_maps(connection: AsyncConnection) -> None:
    """Make others that replace maps wait until the transaction ends; they then see its result."""
    if connection.dialect.name != "sqlite":
        await connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))


async def page_of_maps(
    connection: AsyncConnection, *, after: str | None, limit: int
) -> Sequence[Row[str, int]]:
    """Return the sources after a given one, in order, each with its number of obstructions.

    A map that has only vector tiles is included.
    """
    each = union_all(
        select(Table.source, literal(1).label("count")),
        select(Tileset.source, literal(0)).where(Tileset.state == CURRENT),
    ).subquery()
    query = (
        select(each.c.source, func.sum(each.c.count).label("obstructions"))
        .group_by(each.c.source)
        .order_by(each.c.source)
        .limit(limit)
    )
    if after is not None:
        query = query.where(each.c.source > after)
    return (await connection.execute(query)).all()


async def _delete(connection: AsyncConnection, ids: Sequence[str]) -> None:
    for start in range(0, len(ids), _AT_ONCE):
        some = ids[start : start + _AT_ONCE]
        await connection.execute(delete(Table).where(Table.id.in_(some)))


async def _put_rows(
    connection: AsyncConnection, source: str, rows: Sequence[dict[str, Any]]
) -> None:
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    # A map has no counts: it would replace a learned place by one that nothing was learned of.
    others = None if source == LEARNED else Table.source != LEARNED
    for start in range(0, len(rows), _AT_ONCE):
        some = rows[start : start + _AT_ONCE]
        insert = dialect.insert(Table)
        replaced = {name: insert.excluded[name] for name in rows[0] if name != "id"}
        statement = insert.on_conflict_do_update(index_elements=["id"], set_=replaced, where=others)
        await connection.execute(statement, some)
        if others is not None:
            await _check_not_learned(connection, [row["id"] for row in some])


async def _check_not_learned(connection: AsyncConnection, ids: Sequence[str]) -> None:
    query = select(Table.id).where(Table.id.in_(ids), Table.source == LEARNED)
    learned = await connection.scalar(query.order_by(Table.id).limit(1))
    if learned is not None:
        raise UnstorableError(
            f"{learned[:40]!r} is a learned place, whose counts would be lost: leave it out, or "
            "send its export with its counts by POST /v1/obstructions"
        )


async def remove(connection: AsyncConnection, publish: Publish, obstruction_id: str) -> bool:
    """Delete one; tell whether it was there."""
    removal = delete(Table).where(Table.id == obstruction_id).returning(Table.source)
    source = await connection.scalar(removal)
    if source is not None:
        _publish_ids(publish, "deleted", source, [obstruction_id])
    return source is not None


async def page(
    connection: AsyncConnection, *, box: Box | None, after: str | None, limit: int
) -> list[dict[str, Any]]:
    """Return the obstructions after an id, in order of ids, as GeoJSON features."""
    query = select(Table.__table__).order_by(Table.id).limit(limit)
    if after is not None:
        query = query.where(Table.id > after)
    if box is not None:
        found = touching(box).subquery()
        some = select(found.c.id).limit(_MOST_FOUND + 1).subquery()
        count = await connection.scalar(select(func.count()).select_from(some)) or 0
        few = count <= _MOST_FOUND
        query = query.where(Table.id.in_(select(found.c.id)) if few else touches(box))
    return [_feature(row) for row in await connection.execute(query)]


async def around(
    connection: AsyncConnection, place: Position, box: Box, *, limit: int
) -> list[dict[str, Any]]:
    """Return the obstructions that touch a part of the map, as GeoJSON features.

    Of more than `limit`, those nearest to a place, by the boxes around them.
    """
    lon, lat = place
    found = touching(box).subquery().c
    east = _beyond(found.west, found.east, lon) * math.cos(math.radians(lat))
    north = _beyond(found.south, found.north, lat)
    away = func.min(east * east + north * north)
    nearest = select(found.id).group_by(found.id).order_by(away, found.id).limit(limit)
    rows = await connection.execute(select(Table.__table__).where(Table.id.in_(nearest)))
    return [_feature(row) for row in rows]


def _beyond(
    least: ColumnElement[float], most: ColumnElement[float], at: float
) -> ColumnElement[float]:
    """Return how far a place on a line is from a section of it."""
    return case((least > at, least - at), (most < at, at - most), else_=0.0)


def _feature(row: Any) -> dict[str, Any]:
    return {
        "type": "Feature",
        "id": row.id,
        "geometry": row.geometry,
        "properties": {**row.properties, "source": row.source},
    }


def _publish_ids(publish: Publish, action: str, source: str, ids: Sequence[str]) -> None:
    change: dict[str, object] = {
        "kind": "obstructions",
        "action": action,
        "source": source,
        "count": len(ids),
    }
    if len(ids) <= _MOST_TOLD:
        change["ids"] = list(ids)
    publish(change)


def check(obstructions: Iterable[Obstruction]) -> None:
    """Make sure that all can be stored.

    Raises:
        UnstorableError: One has an id or a name that cannot be.
    """
    for one in obstructions:
        if len(one.id) > _MOST_ID or len(one.name) > MAX_NAME:
            raise UnstorableError(
                f"{one.id[:40]!r}: the id has more than {_MOST_ID} characters, "
                f"or the name more than {MAX_NAME}"
            )
        if not one.id.isprintable():
            raise UnstorableError(f"{one.id[:40]!r}: the id is not printable")
        if _UNSTORABLE.search(one.name):
            raise UnstorableError(f"{one.id[:40]!r}: the name has control characters")


async def _rows(source: str, obstructions: Sequence[Obstruction]) -> list[dict[str, Any]]:
    """Return the rows of obstructions; beside the event loop: those of thousands take seconds."""
    return await asyncio.to_thread(lambda: [_row(source, one) for one in obstructions])


def _row(source: str, obstruction: Obstruction) -> dict[str, Any]:
    check([obstruction])
    feature = to_feature(obstruction)
    lines: Iterable[Any] = obstruction.area or [road.line for road in obstruction.covered]
    places = [place for line in lines for place in line]
    box = box_of(places, is_area=bool(obstruction.area))
    return {
        "id": obstruction.id,
        "source": source,
        "name": obstruction.name or None,
        "geometry": feature["geometry"],
        "properties": feature["properties"],
        "west": box.west,
        "south": box.south,
        "east": box.east,
        "north": box.north,
        "strip": box.strip,
    }
