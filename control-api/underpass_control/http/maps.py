"""Maps: the obstructions of one source, replaced as a whole."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from http import HTTPStatus
from typing import IO, Any

from sqlalchemy.engine import Row

from dama.prediction import Obstruction
from dama.prediction.geojson import GeoJsonError, from_geojson
from underpass_control.access.audit import Changed
from underpass_control.http import models
from underpass_control.http.at_once import AtOnce, InTurn
from underpass_control.http.cursor import next_page, text_after
from underpass_control.http.endpoint import EVERYBODY, OPERATORS, Answer, Call, Endpoint
from underpass_control.http.map_names import source_of
from underpass_control.http.problem import Problem
from underpass_control.http.sequences import Pace, not_taken, texts
from underpass_control.http.tenancy import Tenancy
from underpass_control.storage import obstructions, tilesets
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database

_MEDIA_TYPE = "application/geo+json-seq"
_MOST_BYTES = 256 << 20
_MOST_FEATURES = 100_000
_MOST_FEATURE_BYTES = 1 << 20
_PACE = Pace(silent_s=30.0, least_bytes_per_s=16_384.0, longest_s=2 * 3_600.0)
# Maps that may be imported at once: each has a temporary file.
_AT_ONCE = 2
_PORTION = 500
# Lists of maps that may wait for the one that is made: it counts all obstructions.
_MOST_WAITING = 1_024


class MapTileset(models.Model):
    """The vector tiles of a map: `id` changes with them; `bounds` are west, south, east, north."""

    id: int
    tiles: int
    content_bytes: int
    from_zoom: int
    to_zoom: int
    bounds: list[float]


class Map(models.Model):
    """A map, how many obstructions come from it, and its vector tiles, if it has any."""

    source: str
    obstructions: int
    tiles: MapTileset | None = None


class MapList(models.Model):
    """A page of maps."""

    maps: list[Map]
    next: str | None = None


class MapTaken(models.Model):
    """How many obstructions a map has now, and how many of the former one are gone."""

    obstructions: int
    removed: int


class Maps:
    """The endpoints of maps."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._taken = AtOnce(_AT_ONCE, "maps")
        self._turns = InTurn(1, _MOST_WAITING, "lists of maps")

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        one = "/v1/maps/{source}"
        return [
            Endpoint(
                "GET",
                "/v1/maps",
                "All maps, with how many obstructions come from each, and what tiles it has",
                self._page,
                EVERYBODY,
                tenancy=Tenancy.SHARED,
                query=models.Page,
                answers=MapList,
            ),
            Endpoint(
                "PUT",
                one,
                "Replace a map: GeoJSON features, one on each line; what it had besides is deleted",
                self._replace,
                OPERATORS,
                takes=_MEDIA_TYPE,
                is_large=True,
                answers=MapTaken,
                problems=[HTTPStatus.CONFLICT],
            ),
            Endpoint(
                "DELETE",
                one,
                "Delete a map: all obstructions that come from it, and its tiles",
                self._delete,
                OPERATORS,
                problems=[HTTPStatus.CONFLICT],
            ),
        ]

    async def _page(self, call: Call) -> MapList:
        query = call.query(models.Page)
        async with self._turns.one(call), self._database.reading() as connection:
            rows = await obstructions.page_of_maps(
                connection, after=text_after(query.cursor), limit=query.limit
            )
            sets = await tilesets.current(connection, [row.source for row in rows])
        found = [
            Map(source=row.source, obstructions=row.obstructions, tiles=_tiles(sets, row.source))
            for row in rows
        ]
        last = next_page(rows, query.limit, lambda row: row.source)
        return MapList(maps=found, next=last)

    async def _replace(self, call: Call) -> MapTaken:
        source = source_of(call)
        with self._taken.one(), tempfile.TemporaryFile() as file:
            # All of it has come and can be parsed before the database is touched.
            await _take(call, file)
            return await self._store(call, source, file)

    async def _store(self, call: Call, source: str, file: IO[bytes]) -> MapTaken:
        try:
            async with self._changes.transaction() as (connection, publish):
                done = await obstructions.replace(connection, publish, source, _portions(file))
                # These tiles were made from the former map.
                await tilesets.remove(connection, publish, source)
                after = {"obstructions": done.count, "removed": done.removed}
                await call.record(connection, Changed("set", f"/v1/maps/{source}", after=after))
        except obstructions.UnstorableError as error:
            raise _wrong(str(error)) from error
        return MapTaken(obstructions=done.count, removed=done.removed)

    async def _delete(self, call: Call) -> Answer:
        source = source_of(call)
        async with self._changes.transaction() as (connection, publish):
            removed = await obstructions.remove_map(connection, publish, source)
            had_tiles = await tilesets.remove(connection, publish, source)
            if not removed and not had_tiles:
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no map {source}")
            before = {"obstructions": removed}
            await call.record(connection, Changed("delete", f"/v1/maps/{source}", before=before))
        return Answer(None, HTTPStatus.NO_CONTENT)


def _tiles(sets: Mapping[str, Row[Any]], source: str) -> MapTileset | None:
    row = sets.get(source)
    if row is None:
        return None
    return MapTileset(
        id=row.id,
        tiles=row.tiles,
        content_bytes=row.content_bytes,
        from_zoom=row.from_zoom,
        to_zoom=row.to_zoom,
        bounds=[row.west, row.south, row.east, row.north],
    )


async def _take(call: Call, file: IO[bytes]) -> None:
    """Check the features of a request, and write each to its own line of a file."""
    ids: set[str] = set()
    async for some in texts(
        call,
        "map",
        "feature",
        most_bytes=_MOST_BYTES,
        most_text_bytes=_MOST_FEATURE_BYTES,
        pace=_PACE,
    ):
        await asyncio.to_thread(_check, some, ids, file)
    if not ids:
        raise _wrong("there is no feature in it: a map is removed by DELETE")


def _check(texts_: list[bytes], ids: set[str], file: IO[bytes]) -> None:
    for text in texts_:
        number = len(ids) + 1
        if number > _MOST_FEATURES:
            raise _wrong(f"it has more than {_MOST_FEATURES} features")
        try:
            one = _feature(text)
        except (GeoJsonError, ValueError, RecursionError) as error:
            reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
            raise _wrong(f"feature {number}: {reason}") from error
        if one.id in ids:
            raise _wrong(f"feature {number}: another one has its id, {one.id[:100]!r}")
        ids.add(one.id)
        file.write(text + b"\n")


def _feature(text: bytes) -> Obstruction:
    document = json.loads(text)
    if not isinstance(document, dict) or document.get("type") != "Feature":
        raise GeoJsonError("it is no GeoJSON feature; each has a line of its own")
    return from_geojson(document)[0]


async def _portions(file: IO[bytes]) -> AsyncIterator[list[Obstruction]]:
    file.seek(0)
    while some := await asyncio.to_thread(_next, file):
        yield some


def _next(file: IO[bytes]) -> list[Obstruction]:
    lines: Iterator[bytes] = (line for _, line in zip(range(_PORTION), file, strict=False))
    return [_feature(line) for line in lines]


def _wrong(detail: str) -> Problem:
    return not_taken("map", detail)
