"""Maps: the obstructions of one source, replaced as a whole."""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import AsyncIterator, Iterator
from http import HTTPStatus
from typing import IO

from dama.prediction import Obstruction
from dama.prediction.geojson import GeoJsonError, from_geojson
from underpass_control.access.audit import Changed
from underpass_control.http import models
from underpass_control.http.at_once import AtOnce
from underpass_control.http.cursor import next_page, text_after
from underpass_control.http.endpoint import EVERYBODY, OPERATORS, Answer, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.storage import learned, obstructions
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database

_MEDIA_TYPE = "application/geo+json-seq"
_MOST_BYTES = 256 << 20
_MOST_FEATURES = 100_000
_MOST_FEATURE_BYTES = 1 << 20
# Whoever sends nothing for so long is refused.
_SILENT_S = 30.0
# Maps that are being taken in: each has its file.
_AT_ONCE = 2
_PORTION = 500
_LONGEST_SOURCE = 64


class Map(models.Model):
    """A map, and how many obstructions come from it."""

    source: str
    obstructions: int


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

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        one = "/v1/maps/{source}"
        return [
            Endpoint(
                "GET",
                "/v1/maps",
                "All maps, with how many obstructions come from each",
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
                recorded=True,
                takes=_MEDIA_TYPE,
                is_large=True,
                answers=MapTaken,
                problems=[HTTPStatus.CONFLICT],
            ),
            Endpoint(
                "DELETE",
                one,
                "Delete a map: all obstructions that come from it",
                self._delete,
                OPERATORS,
                recorded=True,
                status=HTTPStatus.NO_CONTENT,
                problems=[HTTPStatus.CONFLICT],
            ),
        ]

    async def _page(self, call: Call) -> MapList:
        query = call.query(models.Page)
        async with self._database.reading() as connection:
            rows = await obstructions.page_of_maps(
                connection, after=text_after(query.cursor), limit=query.limit
            )
        found = [Map(source=row.source, obstructions=row.obstructions) for row in rows]
        last = next_page(rows, query.limit, lambda row: row.source)
        return MapList(maps=found, next=last)

    async def _replace(self, call: Call) -> MapTaken:
        source = _source(call)
        with self._taken.one(), tempfile.TemporaryFile() as file:
            # All of it has come, and can be read, before the database is touched.
            await _take(call, file)
            return await self._store(call, source, file)

    async def _store(self, call: Call, source: str, file: IO[bytes]) -> MapTaken:
        try:
            async with self._changes.transaction() as (connection, publish):
                done = await obstructions.replace(connection, publish, source, _portions(file))
                after = {"obstructions": done.count, "removed": done.removed}
                await call.record(connection, Changed("set", f"/v1/maps/{source}", after=after))
        except obstructions.UnstorableError as error:
            raise _wrong(str(error)) from error
        return MapTaken(obstructions=done.count, removed=done.removed)

    async def _delete(self, call: Call) -> Answer:
        source = _source(call)
        async with self._changes.transaction() as (connection, publish):
            removed = await obstructions.remove_map(connection, publish, source)
            if not removed:
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no map {source}")
            before = {"obstructions": removed}
            await call.record(connection, Changed("delete", f"/v1/maps/{source}", before=before))
        return Answer(None, HTTPStatus.NO_CONTENT)


async def _take(call: Call, file: IO[bytes]) -> None:
    """Write the features of a request into a file, each on its line, once they can be read."""
    if (call.request.content_length or 0) > _MOST_BYTES:
        raise _too_large()
    ids: set[str] = set()
    rest = b""
    taken = 0
    while True:
        try:
            async with asyncio.timeout(_SILENT_S):
                part = await call.request.content.read(1 << 18)
        except TimeoutError as error:
            detail = f"nothing has come for {_SILENT_S:.0f} s"
            raise Problem(HTTPStatus.REQUEST_TIMEOUT, detail) from error
        taken += len(part)
        if taken > _MOST_BYTES:
            raise _too_large()
        *lines, rest = (rest + part).split(b"\n") if part else [rest, b""]
        if len(rest) > _MOST_FEATURE_BYTES:
            raise _wrong(f"feature {len(ids) + 1} has more than {_MOST_FEATURE_BYTES} bytes")
        await asyncio.to_thread(_check, lines, ids, file)
        if not part:
            break
    if not ids:
        raise _wrong("there is no feature in it: a map is removed by DELETE")


def _check(lines: list[bytes], ids: set[str], file: IO[bytes]) -> None:
    for line in lines:
        # Texts of a sequence begin with a record separator (RFC 8142), or with nothing.
        text = line.strip(b"\x1e\r\n\t ")
        if not text:
            continue
        number = len(ids) + 1
        if number > _MOST_FEATURES:
            raise _wrong(f"it has more than {_MOST_FEATURES} features")
        if len(text) > _MOST_FEATURE_BYTES:
            raise _wrong(f"feature {number} has more than {_MOST_FEATURE_BYTES} bytes")
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


def _source(call: Call) -> str:
    source = call.path["source"]
    if len(source) > _LONGEST_SOURCE:
        raise Problem(HTTPStatus.NOT_FOUND, f"no map has a name of over {_LONGEST_SOURCE} letters")
    if source == learned.SOURCE:
        detail = f"{source} is no map: places are learned, and forgotten, by themselves"
        raise Problem(HTTPStatus.CONFLICT, detail)
    return source


def _wrong(detail: str) -> Problem:
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"the map is not taken: {detail}")


def _too_large() -> Problem:
    detail = (
        f"the map has more than {_MOST_BYTES >> 20} MiB: import it in parts, or at the database"
    )
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
