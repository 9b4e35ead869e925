"""Obstructions from an OpenStreetMap extract (`.osm.pbf`, `.osm` or any format osmium reads)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import osmium

from dama.prediction import Obstruction, ObstructionError
from dama.prediction.cover import obstructions_of
from dama.prediction.network import Network, Way, is_covered, is_road
from underpass_control.obstructions.extract import (
    ExtractError,
    Progress,
    Traffic,
    quiet,
    way_of,
    with_traffic,
)

# The extract is searched around covered ways by cells of this many degrees of latitude, some
# 3.3 km. A cell and its neighbours contain every approach road of a cover in it.
_CELL_DEG = 0.03
_REPORT_EVERY = 1_000


def import_osm(path: Path, *, progress: Progress = quiet) -> list[Obstruction]:
    """Read the tunnels and covered ways of an extract, with the roads that lead into them.

    The file is read twice: for covered ways, lights and turn restrictions, and for the roads around
    covered ways. So memory grows with these, not with all roads of a country. Ids are derived from
    the map's, so importing the same extract again gives the same obstructions.
    """
    if not path.is_file():
        raise ExtractError(f"{path}: no such file")
    try:
        traffic = Traffic()
        roads = _roads(path, traffic)
        covered, count = _ways(roads, "tunnels", progress, None, lambda way: is_covered(way.tags))
        cells = {cell for way in covered for cell in _cells_around(way)}
        near, _ = _ways(
            _roads(path), "roads", progress, count, lambda way: not cells.isdisjoint(_cells(way))
        )
        kept = {way.id for way in near}
        lights = traffic.lights.intersection(node for way in near for node in way.nodes)
        turns = [one for one in traffic.turns if not kept.isdisjoint(one.from_ways)]
    except (RuntimeError, OSError) as error:
        raise ExtractError(f"{path}: {error}") from error
    try:
        return obstructions_of(
            Network(near, turns, lights),
            progress=lambda done, total: progress("obstructions", done, total),
        )
    except ObstructionError as error:
        raise ExtractError(f"{path}: {error}") from error


def _ways(
    roads: Iterable[Way],
    step: str,
    progress: Progress,
    total: int | None,
    keep: Callable[[Way], bool],
) -> tuple[list[Way], int]:
    """Return the roads to keep, and how many there are; `total` is that number where it is known.

    How far a file has been read cannot be asked, so the first reading has no total.
    """
    kept, number = [], 0
    for number, way in enumerate(roads, 1):
        if keep(way):
            kept.append(way)
        if number % _REPORT_EVERY == 0:
            progress(step, number, total)
    progress(step, number, number)
    return kept, number


def _roads(path: Path, traffic: Traffic | None = None) -> Iterator[Way]:
    """Yield the roads of an extract, and have its traffic lights and restrictions taken in."""
    objects = osmium.FileProcessor(str(path)).with_locations()
    if traffic is None:
        objects = objects.with_filter(osmium.filter.EntityFilter(osmium.osm.WAY))
    else:
        objects = with_traffic(objects)
    highways = osmium.filter.KeyFilter("highway")
    highways.enable_for(osmium.osm.WAY)
    for one in objects.with_filter(highways):
        if isinstance(one, osmium.osm.Way):
            tags = {tag.k: tag.v for tag in one.tags}
            if is_road(tags):
                yield way_of(one, tags)
        elif traffic is not None:
            traffic.take(one)


def _cells(way: Way) -> Iterable[tuple[int, int]]:
    return {_cell(lon, lat) for lon, lat in way.line}


def _cells_around(way: Way) -> Iterator[tuple[int, int]]:
    for lon, lat in way.line:
        for y in (-1, 0, 1):
            # Rows have columns of different widths, so a place's column differs from row to row.
            column, row = _cell(lon, lat + y * _CELL_DEG)
            yield from (((column + x) % _columns(row), row) for x in (-1, 0, 1))


def _cell(lon: float, lat: float) -> tuple[int, int]:
    row = math.floor(lat / _CELL_DEG)
    columns = _columns(row)
    # The last column of a row is beside the first one, at the longitude of 0 degrees.
    return math.floor(lon % 360.0 / 360.0 * columns) % columns, row


def _columns(row: int) -> int:
    # Cells have about the same width in metres in every row: nearer to a pole, rows have fewer.
    return math.floor(360.0 / _CELL_DEG * max(math.cos(math.radians(row * _CELL_DEG)), 0.05))
