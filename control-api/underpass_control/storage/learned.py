"""The learned obstructions among the stored ones; and all obstructions as a map."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import structlog
from sqlalchemy import delete, func, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction import Obstruction, ObstructionMap
from dama.prediction.geojson import GeoJsonError, from_geojson
from dama.prediction.learning import (
    KIND,
    Counts,
    Learned,
    Observation,
    certainty_of,
    taken_in,
)
from underpass_control.prediction.lessons import Lesson, new_id
from underpass_control.storage import obstructions, passages
from underpass_control.storage.boxes import Box, touching
from underpass_control.storage.changes import Publish
from underpass_control.storage.models import Obstruction as Table

_LOG = structlog.get_logger()
SOURCE = KIND
_NO_MAP = ObstructionMap([])
# Some 200 m of latitude: the same place is entered within 60 m.
_NEAR_DEG = 0.002
# As earlier versions named a place: by the terminal, and when its link was lost.
_TELLING = re.compile(r"learned:\d+:\d+", re.ASCII)
# The greatest number of passages that is accepted of a place.
_MOST_SEEN = 1_000_000_000
# The obstructions that are decoded at once, between other work: each may have thousands of roads.
_READ_AT_ONCE = 200
_ADVISORY_LOCK = 0x756E_6C65
# After this time without a loss at a place its counts are halved, and again after the same time.
FADES_S = 90 * 86_400.0
_FADES_MS = round(1_000 * FADES_S)
# The most places in one transaction of that.
_FADED_AT_ONCE = 500


async def put(connection: AsyncConnection, publish: Publish, lessons: Iterable[Lesson]) -> None:
    """Count lessons at the stored places, which other processes may have changed meanwhile."""
    await _lock(connection)
    for lesson in lessons:
        before = await _near(connection, lesson)
        # Losses that the map explains were left out earlier.
        await _change(connection, publish, before, lesson.applied(before, _NO_MAP))


async def take_in(connection: AsyncConnection, publish: Publish, places: Iterable[Learned]) -> None:
    """Store exported places; for a place that is stored already, the more observed one counts."""
    await _lock(connection)
    for place in places:
        seen = Lesson(place.id, Observation(place.approach, place.axis))
        passed = Lesson(place.id, None)
        near = {one.id: one for lesson in (seen, passed) for one in await _near(connection, lesson)}
        before = list(near.values())
        await _change(connection, publish, before, taken_in(before, place))


async def fade(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Halve the counts of places that no loss has confirmed since a time `FADES_S` ago.

    Those that are left without a loss are deleted. Takes a part of them at once: the rest is taken
    at the next call. Returns how many it took.
    """
    await _lock(connection)
    since_ms, is_learned = Table.unconfirmed_since_ms, Table.source == SOURCE
    await connection.execute(
        update(Table)
        .where(is_learned, since_ms.is_(None))
        .values(unconfirmed_since_ms=before_ms + _FADES_MS)
    )
    query = select(Table.id, Table.properties, since_ms).where(is_learned, since_ms <= before_ms)
    rows = await connection.execute(query.limit(min(limit, _FADED_AT_ONCE)))
    taken, gone = 0, []
    for row in rows.all():
        taken += 1
        times = 1 + (before_ms - row.unconfirmed_since_ms) // _FADES_MS
        lost, held = (count >> times for count in _counts(row.properties) or (0, 0))
        if lost == 0:
            gone.append(row.id)
            continue
        counts = {"lost": lost, "held": held, "certainty": certainty_of(lost, held)}
        await connection.execute(
            update(Table)
            .where(Table.id == row.id)
            .values(
                properties={**row.properties, **counts},
                unconfirmed_since_ms=row.unconfirmed_since_ms + times * _FADES_MS,
            )
        )
    await connection.execute(delete(Table).where(Table.id.in_(gone)))
    return taken


def place_of(obstruction: Obstruction, properties: Mapping[str, Any]) -> Learned | None:
    """Return the learned place of an exported obstruction; None if it is not a learned one.

    The id that an earlier version gave it tells a terminal and a time, and is replaced.
    """
    if properties.get("source") != SOURCE or obstruction.kind != KIND:
        return None
    place = _learned(obstruction, properties)
    if place is None or not all(0 <= count <= _MOST_SEEN for count in (place.lost, place.held)):
        return None
    if _TELLING.fullmatch(place.id):
        return replace(place, id=new_id(place.axis, place.satellite))
    return place


async def _lock(connection: AsyncConnection) -> None:
    if connection.dialect.name != "sqlite":
        # Without it, two processes that learn a new place at once would both store it.
        await connection.execute(select(func.pg_advisory_xact_lock(_ADVISORY_LOCK)))


async def _change(
    connection: AsyncConnection,
    publish: Publish,
    known: Iterable[Learned],
    changed: Iterable[Learned],
) -> None:
    """Store changed places, and delete those that were forgotten."""
    before = {place.id: place for place in known}
    after = {place.id: place for place in changed}
    for forgotten in before.keys() - after.keys():
        await obstructions.remove(connection, publish, forgotten)
    others = [place for place in after.values() if before.get(place.id) != place]
    counts = {place.id: {"lost": place.lost, "held": place.held} for place in others}
    found = [place.obstruction for place in others]
    await obstructions.put(connection, publish, SOURCE, found, properties=counts)
    confirmed = [one.id for one in others if one.id in before and one.lost > before[one.id].lost]
    if confirmed:
        again = update(Table).where(Table.id.in_(confirmed)).values(unconfirmed_since_ms=None)
        await connection.execute(again)


async def _near(connection: AsyncConnection, lesson: Lesson) -> list[Learned]:
    """Return the stored places to which a lesson may belong."""
    columns = (Table.id, Table.source, Table.geometry, Table.properties)
    query = select(*columns).where(Table.source == SOURCE).order_by(Table.id)
    if lesson.seen is None:
        query = query.where(Table.id == lesson.id)
    else:
        lon, lat = lesson.seen.axis[0]
        # Except at the poles, this exceeds the distance between two entries of the same place.
        far = _NEAR_DEG / max(0.05, math.cos(math.radians(lat)))
        near = Box(lon - far, lat - _NEAR_DEG, lon + far, lat + _NEAR_DEG)
        found = touching(near).subquery()
        query = query.where(Table.id.in_(select(found.c.id)))
    rows = (await connection.execute(query)).all()
    learned = (_learned(from_geojson(_feature(row))[0], row.properties) for row in rows)
    return [place for place in learned if place is not None]


async def load_map(connection: AsyncConnection) -> tuple[ObstructionMap, dict[str, Learned]]:
    """Return all obstructions as a map, and those of them that were learned, by id.

    The certainties of the others are what terminals' passages have made of them.
    """
    columns = (Table.id, Table.source, Table.geometry, Table.properties)
    query = select(*columns).order_by(Table.id).limit(_READ_AT_ONCE)
    rows = list(await connection.execute(query))
    last = _READ_AT_ONCE
    while len(rows) == last:
        rows += await connection.execute(query.where(Table.id > rows[-1].id))
        last += _READ_AT_ONCE
    # Reading the map of a country takes seconds, so it is done in a thread.
    return await asyncio.to_thread(_map, rows, await passages.totals(connection))


def _map(
    rows: Iterable[Any], passed: Mapping[str, Counts]
) -> tuple[ObstructionMap, dict[str, Learned]]:
    found: list[Obstruction] = []
    learned: dict[str, Learned] = {}
    for row in rows:
        try:
            (obstruction,) = from_geojson(_feature(row))
        except GeoJsonError as error:
            # An earlier version accepted it. Leave it out, and use all others.
            _LOG.error("an obstruction does not count", id=row.id, why=str(error))
            continue
        counts = passed.get(obstruction.id)
        if counts is not None and row.source != SOURCE:
            certainty = counts.certainty(obstruction.certainty)
            obstruction = replace(obstruction, certainty=certainty)
        found.append(obstruction)
        place = _learned(obstruction, row.properties) if row.source == SOURCE else None
        if place is not None:
            learned[place.id] = place
    return ObstructionMap(found), learned


def _feature(row: Any) -> dict[str, Any]:
    return {
        "type": "Feature",
        "id": row.id,
        "geometry": row.geometry,
        "properties": row.properties,
    }


def _learned(obstruction: Obstruction, properties: Mapping[str, Any]) -> Learned | None:
    """Return the learned place of an obstruction; None if it was not learned."""
    roads = obstruction.roads
    counts = _counts(properties)
    if len(roads) != 2 or counts is None:
        return None
    axis, approach = roads
    return Learned(
        obstruction.id, approach.line, axis.line, *counts, satellite=obstruction.satellite
    )


def _counts(properties: Mapping[str, Any]) -> tuple[int, int] | None:
    """Return how often the link was lost and held at a place; None if it was not learned."""
    lost, held = properties.get("lost"), properties.get("held")
    return (lost, held) if isinstance(lost, int) and isinstance(held, int) else None
