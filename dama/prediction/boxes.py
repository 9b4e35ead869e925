"""Boxes and lines of longitudes and latitudes, to find by what is beside a place or another line.

The 180th meridian is no border: what lies on both sides of it is found from both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import shapely

from dama.prediction.places import METRES_PER_DEGREE, Line, Position

Box: TypeAlias = tuple[float, float, float, float]
"""Least longitude and latitude, and greatest ones."""

Geometries: TypeAlias = npt.NDArray[np.object_]

_TURNS = (0.0, 360.0, -360.0)


def spans(lons: Sequence[float]) -> list[tuple[float, float]]:
    """Return from where to where longitudes reach: two spans across the 180th meridian.

    What surrounds a pole reaches all around.
    """
    least, most = min(lons), max(lons)
    if most - least <= 180.0:
        return [(least, most)]
    west, east = min(lon for lon in lons if lon >= 0.0), max(lon for lon in lons if lon < 0.0)
    return [(-180.0, east), (west, 180.0)] if west - east > 180.0 else [(-180.0, 180.0)]


def boxes_of(line: Sequence[Position]) -> Iterator[Box]:
    """Yield the box around a line; two boxes across the 180th meridian."""
    lons, lats = zip(*line, strict=True)
    for west, east in spans(lons):
        yield west, min(lats), east, max(lats)


def tree_of(boxes: Sequence[Box]) -> shapely.STRtree:
    """Return an index of boxes by their number."""
    return shapely.STRtree(shapely.box(*np.array(boxes).reshape(-1, 4).T))


def around(place: Position, radius_m: float) -> shapely.Geometry:
    """Return the box around a place that reaches this far to each side."""
    lon, lat = place
    north = radius_m / METRES_PER_DEGREE
    east = north / max(math.cos(math.radians(lat)), 1e-3)
    return shapely.box(lon - east, lat - north, lon + east, lat + north)


def on_both_sides(place: Position, radius_m: float) -> Iterator[Position]:
    """Yield a place; again, with a longitude beyond 180 degrees, if that meridian is so near."""
    yield place
    lon, lat = place
    # Places on the other side of the meridian have longitudes of the other sign.
    if abs(lon) + radius_m / METRES_PER_DEGREE / max(math.cos(math.radians(lat)), 1e-3) > 180.0:
        yield lon - math.copysign(360.0, lon), lat


def turned(
    west: npt.NDArray[np.float64], east: npt.NDArray[np.float64], margin: float = 0.0
) -> Iterator[tuple[float, npt.NDArray[np.intp]]]:
    """Yield turns by 360 degrees, each with the numbers of those that it brings onto the map.

    West and east are the ends of sections, in longitudes that may lie beyond 180 degrees. A section
    is on the map if it is no further than a margin, in degrees, from longitudes of -180 to 180.
    """
    for turn in _TURNS:
        reaches = (west + turn <= 180.0 + margin) & (east + turn >= -180.0 - margin)
        yield turn, np.flatnonzero(reaches)


class LineIndex:
    """Lines in degrees, found by their distance in degrees."""

    def __init__(self, lines: Sequence[Line]) -> None:
        shapes = _unbroken(lines)
        # A line across the 180th meridian is there twice, with longitudes beyond 180 and -180.
        copies = list(_turned(shapes, 0.0))
        self._numbers = np.concatenate([numbers for numbers, _ in copies])
        self._tree = shapely.STRtree(np.concatenate([some for _, some in copies]))

    def beside(self, lines: Sequence[Line], margin: float) -> list[int]:
        """Return the numbers of the lines within so many degrees of any of these, in order."""
        # They are near one another, and shall be so in their longitudes, too.
        together = shapely.multilinestrings(_unbroken(lines, lines[0][0][0]))
        found: set[int] = set()
        for _, some in _turned(np.array([together]), margin):
            _, near = self._tree.query(some, predicate="dwithin", distance=margin)
            found.update(self._numbers[near].tolist())
        return sorted(found)

    def nearest(self, lines: Sequence[Line], margin: float) -> dict[int, int]:
        """Return the nearest line by the number of each of these, if it is within so many degrees.

        They are in order.
        """
        found: dict[int, tuple[float, int]] = {}
        for numbers, some in _turned(_unbroken(lines), margin):
            (row, entry), away = self._tree.query_nearest(
                some, max_distance=margin, return_distance=True, all_matches=False
            )
            for number, near, degrees in zip(
                numbers[row].tolist(), self._numbers[entry].tolist(), away.tolist(), strict=True
            ):
                if number not in found or degrees < found[number][0]:
                    found[number] = degrees, near
        return {number: near for number, (_, near) in sorted(found.items())}


def _unbroken(lines: Sequence[Line], around_lon: float | None = None) -> Geometries:
    """Return lines without a leap at the 180th meridian: longitudes may lie beyond it.

    They are counted on from a longitude; None: from the beginning of each line.
    """
    of = np.repeat(np.arange(len(lines)), np.array([len(line) for line in lines], dtype=np.intp))
    places = np.array([place for line in lines for place in line], dtype=np.float64).reshape(-1, 2)
    since = np.array([line[0][0] if around_lon is None else around_lon for line in lines])[of]
    places[:, 0] += 360.0 * np.round((since - places[:, 0]) / 360.0)
    return np.asarray(shapely.linestrings(places, indices=of))


def _turned(shapes: Geometries, margin: float) -> Iterator[tuple[npt.NDArray[np.intp], Geometries]]:
    """Yield the numbers of the shapes that a turn brings onto the map, and these, turned."""
    bounds = shapely.bounds(shapes)
    for turn, numbers in turned(bounds[:, 0], bounds[:, 2], margin):
        some = shapes[numbers]
        if turn:
            by = np.array([turn, 0.0])
            some = shapely.transform(some, lambda places, by=by: places + by)
        yield numbers, some
