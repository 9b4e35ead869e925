"""A tile's content: layers of features as Mapbox Vector Tile 2.1."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import mapbox_vector_tile
import shapely
from shapely.errors import GEOSException
from shapely.geometry.base import BaseGeometry

from underpass_control.tiles.grid import EXTENT, Tile
from underpass_control.tiles.kinds import LAYERS

# Before compression, to limit a browser's work for one tile.
MOST_TILE_BYTES = 1 << 20
# In the grid, y already points south.
_OPTIONS = {"y_coord_down": True, "extents": EXTENT}


@dataclass(frozen=True)
class TileContent:
    """A tile, gzipped."""

    tile: Tile
    content: bytes


def encoded(rows: Iterable[tuple[int, str, BaseGeometry]]) -> bytes | None:
    """Encode a tile of layers (by number in `LAYERS`), properties (JSON) and geometries.

    If the tile would be too large, the last features are left out. Returns None if nothing is left.
    """
    found = _features(rows)
    while found:
        layers = [
            {"name": name, "features": [one for layer, one in found if layer == number]}
            for number, name in enumerate(LAYERS)
        ]
        made: bytes = mapbox_vector_tile.encode(
            [layer for layer in layers if layer["features"]], default_options=_OPTIONS
        )
        if len(made) <= MOST_TILE_BYTES:
            return made or None
        found = found[: len(found) // 2]
    return None


def _features(rows: Iterable[tuple[int, str, BaseGeometry]]) -> list[tuple[int, dict[str, Any]]]:
    """Return features with their layers, the most important first; lines of one kind are one."""
    lines: dict[tuple[int, str], list[BaseGeometry]] = {}
    points: list[tuple[int, dict[str, Any]]] = []
    areas: list[tuple[int, dict[str, Any]]] = []
    for layer, properties, geometry in rows:
        dimensions = shapely.get_dimensions(geometry)
        # Making an area valid may give a collection of areas, lines and points.
        for part in shapely.get_parts(shapely.get_parts(_on_units(geometry))):
            if part.is_empty or shapely.get_dimensions(part) != dimensions:
                continue
            if dimensions == 1:
                lines.setdefault((layer, properties), []).append(part)
            else:
                one = {"geometry": part, "properties": json.loads(properties)}
                (areas if dimensions == 2 else points).append((layer, one))
    whole = [
        (layer, {"geometry": shapely.MultiLineString(some), "properties": json.loads(properties)})
        for (layer, properties), some in lines.items()
    ]
    return points + whole + areas


def _on_units(geometry: BaseGeometry) -> BaseGeometry:
    """Round a geometry to whole units, with valid areas; it is empty if nothing is left.

    Cutting and rounding can make rings cross or touch themselves.
    """
    try:
        valid = geometry if shapely.is_valid(geometry) else shapely.make_valid(geometry)
        return shapely.set_precision(valid, 1.0)
    except GEOSException:
        return shapely.Point()
