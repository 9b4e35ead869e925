"""The grid of tiles: projects geometries onto it and cuts them into the tiles they lie in.

A tile has a zoom z, a column x from the west and a row y from the north, as in all web maps. There
are 2^z columns and rows, in the spherical Mercator projection (EPSG:3857). Here the whole map is
the unit square: the origin is its north-west corner, and y points south. A tile is 4,096 units
wide and high.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import NamedTuple

import numpy as np
import shapely
from numpy.typing import NDArray
from shapely.geometry.base import BaseGeometry

EXTENT = 4096
# A tile includes geometry up to this far beyond its edge (tile units), since lines have a width.
BUFFER = 64
MOST_ZOOM = 14
# The latitude of the map's edges, in degrees.
EDGE_DEG = math.degrees(math.atan(math.sinh(math.pi)))
# Half a pixel on a screen with 512 pixels per tile; less at the last zoom, which is shown enlarged.
_TOLERANCE, _LAST_TOLERANCE = 4.0, 1.0
# Areas smaller than 4 by 4 pixels are not drawn.
_LEAST_AREA = 32.0**2

Floats = NDArray[np.float64]


class Tile(NamedTuple):
    """A tile of the grid."""

    z: int
    x: int
    y: int

    def box(self) -> tuple[float, float, float, float]:
        """Return west, south, east and north, degrees."""
        count = 2**self.z
        west, east = (360.0 * x / count - 180.0 for x in (self.x, self.x + 1))
        north, south = (
            math.degrees(math.atan(math.sinh(math.pi * (1.0 - 2.0 * y / count))))
            for y in (self.y, self.y + 1)
        )
        return west, south, east, north

    @property
    def is_on_map(self) -> bool:
        """Whether the grid has such a tile."""
        return 0 <= self.z <= MOST_ZOOM and all(0 <= one < 2**self.z for one in (self.x, self.y))


class Piece(NamedTuple):
    """The part of a geometry that lies in a tile: points, lines or areas, in the tile's units."""

    tile: Tile
    geometry: BaseGeometry


class TooManyPiecesError(ValueError):
    """A geometry lies in more tiles than allowed."""


def projected(geometry: BaseGeometry) -> list[BaseGeometry]:
    """Project a point, a line, or areas from degrees to the unit square.

    Where the nearer way to a line's next position crosses the antimeridian, the line or area does
    so too: it is returned in parts, one on each side. Positions beyond the map's northern and
    southern edges are moved to the edges.
    """
    flat = shapely.transform(geometry, _mercator)
    west, _, east, _ = shapely.bounds(flat)
    if east - west <= 0.5:
        return [flat]
    whole = _unwrapped(flat)
    west, _, east, _ = shapely.bounds(whole)
    # The part on the other side is found by shifting the geometry by one world.
    found = []
    for world in range(math.floor(west), math.ceil(east)):
        shifted = shapely.transform(whole, _moved(-world))
        part = shapely.clip_by_rect(shifted, 0.0, 0.0, 1.0, 1.0)
        if not part.is_empty:
            found.append(part)
    return found


def _mercator(degrees: Floats) -> Floats:
    latitude = np.radians(np.clip(degrees[:, 1], -EDGE_DEG, EDGE_DEG))
    x = degrees[:, 0] / 360.0 + 0.5
    y = 0.5 - np.arcsinh(np.tan(latitude)) / (2.0 * math.pi)
    return np.column_stack((x, np.clip(y, 0.0, 1.0)))


def _moved(by: float) -> Callable[[Floats], Floats]:
    return lambda places: places + np.array([by, 0.0])


def _unwrapped(geometry: BaseGeometry) -> BaseGeometry:
    """Make each line go the nearer way around the Earth from one position to the next."""

    def line(places: Floats) -> Floats:
        return np.column_stack((np.unwrap(places[:, 0], period=1.0), places[:, 1]))

    def beside(ring: Floats, outer: Floats) -> Floats:
        """Shift a hole into the same world as its outer ring."""
        worlds = round(float(outer[:, 0].mean() - ring[:, 0].mean()))
        moved: Floats = ring + np.array([worlds, 0.0])
        return moved

    parts: list[BaseGeometry] = []
    for part in shapely.get_parts(geometry):
        if isinstance(part, shapely.Polygon):
            outer = line(shapely.get_coordinates(part.exterior))
            # A ring around a pole does not close on this map.
            if not np.allclose(outer[0], outer[-1]):
                return geometry
            holes = [line(shapely.get_coordinates(one)) for one in part.interiors]
            parts.append(shapely.Polygon(outer, [beside(one, outer) for one in holes]))
        elif isinstance(part, shapely.LineString):
            parts.append(shapely.LineString(line(shapely.get_coordinates(part))))
        else:
            parts.append(part)
    return parts[0] if len(parts) == 1 else shapely.MultiPolygon(parts)


def pieces(geometry: BaseGeometry, from_zoom: int, to_zoom: int, most: int) -> Iterator[Piece]:
    """Cut a projected geometry into the tiles of some zooms, simplified for each.

    Areas are included from the zoom at which they are large enough to be seen.

    Raises:
        TooManyPiecesError: There would be more than `most` pieces.
    """
    is_area = shapely.get_dimensions(geometry) == 2
    if is_area:
        # At zoom z one unit of the tile is 1 / (4096 · 2^z).
        size = math.sqrt(max(shapely.area(geometry), 1e-30)) * EXTENT
        needed = math.ceil(math.log2(math.sqrt(_LEAST_AREA) / size)) if size > 0 else to_zoom
        from_zoom = max(from_zoom, min(needed, to_zoom))
    count = 0
    # Tiles to process, each with the part of the geometry that lies in and around it.
    waiting = [(_least_around(geometry, from_zoom), geometry)]
    while waiting:
        tile, inside = waiting.pop()
        if tile.z >= from_zoom:
            shown = _shown(inside, tile, is_last=tile.z == to_zoom)
            if shown is not None:
                count += 1
                if count > most:
                    raise TooManyPiecesError(f"it lies in more than {most} tiles")
                yield Piece(tile, shown)
        if tile.z < to_zoom:
            waiting += _quarters(tile, inside)


def _least_around(geometry: BaseGeometry, most_zoom: int) -> Tile:
    """Return the smallest tile that contains a geometry, with a margin to its edges."""
    west, north, east, south = shapely.bounds(geometry)
    margin = 2.0 * BUFFER / EXTENT
    for z in range(most_zoom, 0, -1):
        count = 2**z
        x, y = (min(int(one * count), count - 1) for one in (west, north))
        if (
            x + margin <= west * count
            and east * count <= x + 1 - margin
            and y + margin <= north * count
            and south * count <= y + 1 - margin
        ):
            return Tile(z, x, y)
    return Tile(0, 0, 0)


def _quarters(tile: Tile, geometry: BaseGeometry) -> Iterator[tuple[Tile, BaseGeometry]]:
    """Yield those of a tile's four quarters that the geometry reaches, each with its part of it."""
    west, north, east, south = shapely.bounds(geometry)
    size = 1.0 / 2 ** (tile.z + 1)
    margin = size * BUFFER / EXTENT
    for x in (2 * tile.x, 2 * tile.x + 1):
        for y in (2 * tile.y, 2 * tile.y + 1):
            left, top = x * size - margin, y * size - margin
            right, bottom = (x + 1) * size + margin, (y + 1) * size + margin
            if west > right or east < left or north > bottom or south < top:
                continue
            inside = geometry
            if west < left or east > right or north < top or south > bottom:
                inside = shapely.clip_by_rect(geometry, left, top, right, bottom)
            if not inside.is_empty:
                yield Tile(tile.z + 1, x, y), inside


def _shown(geometry: BaseGeometry, tile: Tile, *, is_last: bool) -> BaseGeometry | None:
    """Return a geometry as it is drawn, in the tile's units; None if nothing is visible."""
    scale = float(EXTENT * 2**tile.z)
    origin = np.array([tile.x * EXTENT, tile.y * EXTENT], dtype=np.float64)
    scaled = shapely.transform(geometry, lambda places: places * scale - origin)
    dimensions = shapely.get_dimensions(scaled)
    if dimensions == 0:
        place = shapely.get_coordinates(scaled)[0]
        # A place near an edge is drawn only by the tile that contains it.
        return scaled if (place >= 0).all() and (place < EXTENT).all() else None
    tolerance = _LAST_TOLERANCE if is_last else _TOLERANCE
    simple = shapely.simplify(scaled, tolerance, preserve_topology=dimensions == 2)
    if dimensions == 2 and not is_last and shapely.area(simple) < _LEAST_AREA / 4:
        return None
    return None if simple.is_empty else simple
