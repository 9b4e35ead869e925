"""Vector tiles of maps: a set arrives in portions, and replaces the former one as a whole."""

from __future__ import annotations

from collections.abc import AsyncIterable, Awaitable, Callable, Sequence

from sqlalchemy import delete, exists, insert, or_, select, tuple_, update
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.changes import Changes, Publish
from underpass_control.storage.database import Database
from underpass_control.storage.models import MapTile, Tileset
from underpass_control.storage.models.tiles import CURRENT
from underpass_control.tiles.encoding import TileContent
from underpass_control.tiles.grid import Tile

_COMING, _FORMER = "coming", "former"


class Extent:
    """The zooms and bounds of a set of tiles, counted as its tiles arrive in any order."""

    def __init__(self) -> None:
        self.tiles = 0
        self.content_bytes = 0
        self._zooms: set[int] = set()
        # The bounds of the tiles of the largest zoom: those of smaller zooms reach further.
        self._box: tuple[float, float, float, float] | None = None

    def add(self, one: TileContent) -> None:
        """Count a tile."""
        self.tiles += 1
        self.content_bytes += len(one.content)
        box = one.tile.box()
        if not self._zooms or one.tile.z > max(self._zooms):
            self._box = box
        elif one.tile.z == max(self._zooms) and self._box is not None:
            west, south, east, north = self._box
            self._box = (
                min(west, box[0]),
                min(south, box[1]),
                max(east, box[2]),
                max(north, box[3]),
            )
        self._zooms.add(one.tile.z)

    def columns(self) -> dict[str, float | int]:
        """Return the columns of a set's row that describe it."""
        box = self._box or (0.0, 0.0, 0.0, 0.0)
        return {
            "tiles": self.tiles,
            "content_bytes": self.content_bytes,
            "from_zoom": min(self._zooms, default=0),
            "to_zoom": max(self._zooms, default=0),
            **dict(zip(("west", "south", "east", "north"), box, strict=True)),
        }


class TwiceError(ValueError):
    """A tile has come twice."""


class OvertakenError(RuntimeError):
    """Another caller has set the same map, or its tiles, in the meantime."""


Record = Callable[[AsyncConnection, Extent], Awaitable[None]]


async def replace(
    database: Database,
    changes: Changes,
    source: str,
    portions: AsyncIterable[Sequence[TileContent]],
    record: Record | None = None,
) -> Extent:
    """Replace a map's tiles once all have come; if any is wrong, the map keeps its present ones.

    Each portion is written by itself, so that others can write in between. `record` logs the
    change, in the transaction that makes it.

    Raises:
        TwiceError: A tile has come twice.
        OvertakenError: In the meantime the map was replaced, or got other tiles.
    """
    async with database.transaction() as connection:
        row = {"source": source, "state": _COMING, "begun_ms": database.clock.now_ms()}
        result = await connection.execute(insert(Tileset).values(row).returning(Tileset.id))
        tileset = int(result.scalar_one())
    extent = Extent()
    try:
        async for some in portions:
            for one in some:
                extent.add(one)
            await _add(database, source, tileset, some)
        await _finish(changes, source, tileset, extent, record)
    except BaseException:
        # The tiles that have come are deleted with those of other sets.
        async with database.transaction() as connection:
            await connection.execute(
                update(Tileset).where(Tileset.id == tileset).values(state=_FORMER)
            )
        raise
    return extent


async def _add(database: Database, source: str, tileset: int, tiles: Sequence[TileContent]) -> None:
    rows = [{"tileset": tileset, **one.tile._asdict(), "content": one.content} for one in tiles]
    if not rows:
        return
    try:
        async with database.transaction() as connection:
            query = select(Tileset.id).where(Tileset.id == tileset, Tileset.state == _COMING)
            if await connection.scalar(query) is None:
                raise _overtaken(source)
            await connection.execute(insert(MapTile), rows)
    except IntegrityError as error:
        raise TwiceError("a tile is in it twice") from error


async def _finish(
    changes: Changes, source: str, tileset: int, extent: Extent, record: Record | None
) -> None:
    values = {"state": CURRENT, **extent.columns()}
    try:
        async with changes.transaction() as (connection, publish):
            await _end(connection, source, CURRENT)
            coming = Tileset.id == tileset, Tileset.state == _COMING
            done = await connection.execute(update(Tileset).where(*coming).values(values))
            if not done.rowcount:
                raise _overtaken(source)
            publish({"kind": "tiles", "action": "set", "map": source})
            if record is not None:
                await record(connection, extent)
    except IntegrityError as error:
        raise _overtaken(source) from error


def _overtaken(source: str) -> OvertakenError:
    return OvertakenError(f"somebody else has set {source}, or its tiles, meanwhile")


async def remove(connection: AsyncConnection, publish: Publish, source: str) -> bool:
    """Remove a map's tiles, and those that are arriving; tell whether there were any."""
    await _end(connection, source, _COMING)
    removed = await _end(connection, source, CURRENT)
    if removed:
        publish({"kind": "tiles", "action": "deleted", "map": source})
    return removed


async def _end(connection: AsyncConnection, source: str, state: str) -> bool:
    # Its tiles are deleted in portions, later: there may be gigabytes.
    result = await connection.execute(
        update(Tileset)
        .where(Tileset.source == source, Tileset.state == state)
        .values(state=_FORMER)
    )
    return result.rowcount > 0


async def current(
    connection: AsyncConnection, sources: Sequence[str]
) -> dict[str, Row[tuple[object, ...]]]:
    """Return the rows of the current sets, by map."""
    query = select(Tileset.__table__).where(Tileset.source.in_(sources), Tileset.state == CURRENT)
    return {row.source: row for row in await connection.execute(query)}


async def current_id(connection: AsyncConnection, source: str) -> int | None:
    """Return the id of a map's current set."""
    query = select(Tileset.id).where(Tileset.source == source, Tileset.state == CURRENT)
    found: int | None = await connection.scalar(query)
    return found


async def content(connection: AsyncConnection, tileset: int, tile: Tile) -> bytes | None:
    """Return the gzipped content of a tile; None if the set has no such tile."""
    query = select(MapTile.content).where(
        MapTile.tileset == tileset, MapTile.z == tile.z, MapTile.x == tile.x, MapTile.y == tile.y
    )
    found: bytes | None = await connection.scalar(query)
    return found


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete tiles of former sets, and of those that began before a time and never completed."""
    gone = select(Tileset.id).where(
        or_(
            Tileset.state == _FORMER,
            (Tileset.state == _COMING) & (Tileset.begun_ms < before_ms),
        )
    )
    key = (MapTile.tileset, MapTile.z, MapTile.x, MapTile.y)
    some = select(*key).where(MapTile.tileset.in_(gone)).limit(limit)
    result = await connection.execute(delete(MapTile).where(tuple_(*key).in_(some)))
    if result.rowcount < limit:
        left = exists().where(MapTile.tileset == Tileset.id)
        await connection.execute(delete(Tileset).where(Tileset.id.in_(gone), ~left))
    return result.rowcount
