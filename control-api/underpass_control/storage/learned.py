"""Obstructions that were learned, among the others; and all of them as a map."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction import Obstruction, ObstructionMap
from dama.prediction.geojson import from_geojson
from dama.prediction.learning import KIND, Learned
from underpass_control.prediction import Lesson
from underpass_control.storage import obstructions
from underpass_control.storage.changes import Announce
from underpass_control.storage.models import Obstruction as Table

SOURCE = KIND


async def put(connection: AsyncConnection, announce: Announce, lessons: Iterable[Lesson]) -> None:
    """Store what was learned, and delete what is to be forgotten."""
    places = []
    for lesson in lessons:
        if lesson.learned is None:
            await obstructions.remove(connection, announce, lesson.id)
        else:
            places.append(lesson.learned)
    counts = {place.id: {"lost": place.lost, "held": place.held} for place in places}
    found = [place.obstruction for place in places]
    await obstructions.put(connection, announce, SOURCE, found, properties=counts)


async def load_map(connection: AsyncConnection) -> tuple[ObstructionMap, dict[str, Learned]]:
    """Return all obstructions as a map, and those of them that were learned, by id."""
    columns = (Table.id, Table.source, Table.geometry, Table.properties)
    rows = (await connection.execute(select(*columns).order_by(Table.id))).all()
    # A country's map takes seconds to read: others go on meanwhile.
    return await asyncio.to_thread(_map, rows)


def _map(rows: Iterable[Any]) -> tuple[ObstructionMap, dict[str, Learned]]:
    found: list[Obstruction] = []
    learned: dict[str, Learned] = {}
    for row in rows:
        feature = {
            "type": "Feature",
            "id": row.id,
            "geometry": row.geometry,
            "properties": row.properties,
        }
        (obstruction,) = from_geojson(feature)
        found.append(obstruction)
        place = _learned(obstruction, row.properties) if row.source == SOURCE else None
        if place is not None:
            learned[place.id] = place
    return ObstructionMap(found), learned


def _learned(obstruction: Obstruction, properties: Mapping[str, Any]) -> Learned | None:
    """Return what an obstruction was made of, None where it is not one that was learned."""
    roads = obstruction.roads
    lost, held = properties.get("lost"), properties.get("held")
    if len(roads) != 2 or not (isinstance(lost, int) and isinstance(held, int)):
        return None
    axis, approach = roads
    return Learned(obstruction.id, approach.line, axis.line, lost, held)
