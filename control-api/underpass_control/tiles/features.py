"""The objects of an OpenStreetMap extract that are drawn, read from its file in one pass."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import osmium
import shapely
from shapely.geometry.base import BaseGeometry

from underpass_control.obstructions.extract import ExtractError, Progress, quiet
from underpass_control.tiles.kinds import AREA_KEYS, KEYS, Kind, area_kind, line_kind, place_kind

# A forest has some ten thousand positions; OpenStreetMap allows a way 2,000.
_MOST_POSITIONS = 200_000
_REPORT_EVERY = 10_000
_INTERESTING = osmium.osm.NODE | osmium.osm.WAY | osmium.osm.AREA


@dataclass(frozen=True)
class Feature:
    """A point, line or area (degrees), and the kind by which it is drawn."""

    kind: Kind
    geometry: BaseGeometry


def features(path: Path, progress: Progress = quiet) -> Iterator[Feature]:
    """Yield the features of an extract that are drawn.

    The positions of its nodes are kept in a temporary file, so that memory does not grow with the
    extract.

    Raises:
        ExtractError: The extract cannot be read.
    """
    if not path.is_file():
        raise ExtractError(f"{path}: no such file")
    count = 0
    try:
        with tempfile.TemporaryDirectory() as folder:
            for number, one in enumerate(_objects(path, Path(folder) / "nodes"), 1):
                if number % _REPORT_EVERY == 0:
                    progress("ground", number, None)
                found = _feature(one)
                if found is not None:
                    count += 1
                    yield found
    except (RuntimeError, OSError) as error:
        raise ExtractError(f"{path}: {error}") from error
    progress("ground", count, count)


def _objects(path: Path, nodes: Path) -> Iterator[object]:
    return iter(
        osmium.FileProcessor(str(path))
        .with_locations(f"sparse_file_array,{nodes}")
        .with_areas(osmium.filter.KeyFilter(*AREA_KEYS))
        .with_filter(osmium.filter.EntityFilter(_INTERESTING))
        .with_filter(osmium.filter.KeyFilter(*KEYS))
    )


def _feature(one: object) -> Feature | None:
    if isinstance(one, osmium.osm.Node):
        kind = place_kind(_tags(one.tags))
        if kind is None or not one.location.valid():
            return None
        return Feature(kind, shapely.Point(one.location.lon, one.location.lat))
    if isinstance(one, osmium.osm.Way):
        kind = line_kind(_tags(one.tags))
        return None if kind is None else _line(kind, one)
    if isinstance(one, osmium.osm.Area):
        kind = area_kind(_tags(one.tags))
        return None if kind is None else _area(kind, one)
    return None


def _line(kind: Kind, way: osmium.osm.Way) -> Feature | None:
    # An extract cuts ways at its border: nodes beyond it have no position.
    places = [(node.lon, node.lat) for node in way.nodes if node.location.valid()]
    if len(set(places)) < 2 or len(places) > _MOST_POSITIONS:
        return None
    return Feature(kind, shapely.LineString(places))


def _area(kind: Kind, area: osmium.osm.Area) -> Feature | None:
    polygons = []
    left = _MOST_POSITIONS
    for outer in area.outer_rings():
        rings = []
        for ring in (outer, *area.inner_rings(outer)):
            left -= len(ring)
            if left < 0:
                return None
            rings.append([(node.lon, node.lat) for node in ring])
        polygons.append(shapely.Polygon(rings[0], rings[1:]))
    if not polygons:
        return None
    return Feature(kind, polygons[0] if len(polygons) == 1 else shapely.MultiPolygon(polygons))


def _tags(tags: osmium.osm.TagList) -> dict[str, str]:
    return {tag.k: tag.v for tag in tags}
