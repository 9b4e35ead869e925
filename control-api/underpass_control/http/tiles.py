"""Vector tiles, the background of maps: imported per map and served tile by tile."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus
from typing import Annotated

from aiohttp import web
from pydantic import Field
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access.audit import Changed
from underpass_control.http import models
from underpass_control.http.at_once import AtOnce
from underpass_control.http.conditions import etag, is_known
from underpass_control.http.endpoint import EVERYBODY, OPERATORS, Answer, Call, Endpoint
from underpass_control.http.map_names import source_of
from underpass_control.http.problem import Problem
from underpass_control.http.sequences import Pace, not_taken, texts
from underpass_control.http.tenancy import Tenancy
from underpass_control.storage import tilesets
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database
from underpass_control.tiles.encoding import TileContent
from underpass_control.tiles.grid import Tile
from underpass_control.tiles.sequence import MOST_TEXT_BYTES, TileError, from_text, unpacked

_TAKES = "application/json-seq"
_GIVES = "application/vnd.mapbox-vector-tile"
_MOST_BYTES = 2 << 30
_MOST_TILES = 1_000_000
# The tiles written in one transaction: others write between two.
_PORTION_BYTES = 4 << 20
# An import makes tiles while it sends them; each takes far less time and has far more bytes.
_PACE = Pace(silent_s=30.0, least_bytes_per_s=1_024.0, longest_s=6 * 3_600.0)
_WHAT = "set of tiles"
# A tile never changes under the same URL.
_FOR_A_DAY = "private, max-age=86400, immutable"


class TilesTaken(models.Model):
    """How many tiles a map has now, and their bytes, gzipped."""

    tiles: int
    content_bytes: int


class TileQuery(models.Model):
    """`tileset` is the map's (`GET /v1/maps`): with the current one, a tile may be cached."""

    tileset: Annotated[int, Field(ge=1, lt=2**53)] | None = None


class MapTiles:
    """The endpoints of tiles."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._taken = AtOnce(1, "sets of tiles")

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        return [
            Endpoint(
                "PUT",
                "/v1/maps/{source}/tiles",
                "Replace the vector tiles of a map: a JSON text sequence, a tile on each line",
                self._replace,
                OPERATORS,
                takes=_TAKES,
                is_large=True,
                answers=TilesTaken,
                problems=[HTTPStatus.CONFLICT],
            ),
            Endpoint(
                "GET",
                "/v1/maps/{source}/tiles/{z}/{x}/{y}",
                "A vector tile of a map (Mapbox Vector Tile 2.1); nothing where it has none",
                self._tile,
                EVERYBODY,
                tenancy=Tenancy.SHARED,
                query=TileQuery,
                media_type=_GIVES,
                others=[HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED],
            ),
        ]

    async def _tile(self, call: Call) -> Answer | web.StreamResponse:
        source, tile = call.path["source"], _tile_of(call)
        async with self._database.reading() as connection:
            tileset = await tilesets.current_id(connection, source)
            if tileset is None:
                # A console may not know yet that the map is gone: no error; it draws nothing.
                return Answer(None, HTTPStatus.NO_CONTENT, {"Cache-Control": "no-cache"})
            is_named = call.query(TileQuery).tileset == tileset
            headers = {
                "ETag": etag(tileset),
                "Cache-Control": _FOR_A_DAY if is_named else "no-cache",
                "Vary": "Accept-Encoding",
                "X-Content-Type-Options": "nosniff",
            }
            if is_known(call, headers["ETag"]):
                return Answer(None, HTTPStatus.NOT_MODIFIED, headers)
            content = await tilesets.content(connection, tileset, tile)
        if content is None:
            return Answer(None, HTTPStatus.NO_CONTENT, headers)
        if "gzip" in call.request.headers.get("Accept-Encoding", ""):
            headers["Content-Encoding"] = "gzip"
        else:
            content = await asyncio.to_thread(unpacked, content)
        return web.Response(body=content, content_type=_GIVES, headers=headers)

    async def _replace(self, call: Call) -> TilesTaken:
        source = source_of(call)

        async def record(connection: AsyncConnection, extent: tilesets.Extent) -> None:
            if not extent.tiles:
                raise _wrong("there is no tile in it: a map is removed by DELETE")
            target = f"/v1/maps/{source}/tiles"
            await call.record(connection, Changed("set", target, after=_done(extent).model_dump()))

        with self._taken.one():
            try:
                extent = await tilesets.replace(
                    self._database, self._changes, source, _portions(call), record
                )
            except tilesets.TwiceError as error:
                raise _wrong(str(error)) from error
            except tilesets.OvertakenError as error:
                raise Problem(HTTPStatus.CONFLICT, str(error)) from error
        return _done(extent)


def _done(extent: tilesets.Extent) -> TilesTaken:
    return TilesTaken(tiles=extent.tiles, content_bytes=extent.content_bytes)


async def _portions(call: Call) -> AsyncIterator[list[TileContent]]:
    held: list[TileContent] = []
    held_bytes = count = 0
    async for some in texts(
        call,
        _WHAT,
        "tile",
        most_bytes=_MOST_BYTES,
        most_text_bytes=MOST_TEXT_BYTES,
        pace=_PACE,
    ):
        held += await asyncio.to_thread(_read, some, count)
        count += len(some)
        held_bytes += sum(map(len, some))
        if held_bytes >= _PORTION_BYTES:
            yield held
            held, held_bytes = [], 0
    yield held


def _read(texts_: list[bytes], before: int) -> list[TileContent]:
    if before + len(texts_) > _MOST_TILES:
        raise _wrong(f"it has more than {_MOST_TILES} tiles")
    found = []
    for number, text in enumerate(texts_, before + 1):
        try:
            found.append(from_text(text))
        except TileError as error:
            raise _wrong(f"tile {number}: {error}") from error
    return found


def _tile_of(call: Call) -> Tile:
    tile = Tile(*map(call.path_number, ("z", "x", "y")))
    if not tile.is_on_map:
        raise Problem(HTTPStatus.NOT_FOUND, "there is no such tile on any map")
    return tile


def _wrong(detail: str) -> Problem:
    return not_taken(_WHAT, detail)
