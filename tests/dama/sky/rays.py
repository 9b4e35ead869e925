"""The slow way: one ray from one place, through everything that stands around it.

It shares no formula with `dama.sky`: places are projected by PROJ, look angles come from vectors in
space, and each ray is cut with each footprint by shapely.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import shapely
from pyproj import Transformer

from dama.prediction.places import Line, Position

_ORBIT_M = 42_164_170.0


@dataclass(frozen=True)
class Block:
    """A building: its rings, and the heights of its bottom and top above the ground, in metres."""

    rings: tuple[Line, ...]
    top_m: float
    bottom_m: float = 0.0


@cache
def _to_space() -> Transformer:
    return Transformer.from_crs("EPSG:4979", "EPSG:4978", always_xy=True)


def direction(longitude_deg: float, place: Position) -> tuple[float, float]:
    """Return azimuth and elevation of a geostationary satellite, in radians."""
    to_space = _to_space()
    lon, lat = place
    here = np.array(to_space.transform(lon, lat, 0.0))
    up = np.array(to_space.transform(lon, lat, 1000.0)) - here
    up /= np.linalg.norm(up)
    east = np.array([-math.sin(math.radians(lon)), math.cos(math.radians(lon)), 0.0])
    north = np.cross(up, east)
    angle = math.radians(longitude_deg)
    there = _ORBIT_M * np.array([math.cos(angle), math.sin(angle), 0.0]) - here
    x, y, z = there @ east, there @ north, there @ up
    return math.atan2(x, y), math.atan2(z, math.hypot(x, y))


class Rays:
    """Casts rays around one place: a town, not a country."""

    def __init__(self, blocks: Sequence[Block], longitude_deg: float, middle: Position) -> None:
        self._to_plane = Transformer.from_crs(
            "EPSG:4326",
            f"+proj=aeqd +lat_0={middle[1]} +lon_0={middle[0]} +datum=WGS84 +units=m",
            always_xy=True,
        )
        self._blocks = blocks
        self._shapes = [
            shapely.Polygon(*self._rings(block.rings[0], block.rings[1:])) for block in blocks
        ]
        self._tree = shapely.STRtree(self._shapes)
        self._longitude_deg = longitude_deg
        self._highest_m = max(block.top_m for block in blocks)

    def _rings(self, outer: Line, holes: Sequence[Line]) -> tuple[object, list[object]]:
        return self._line(outer), [self._line(hole) for hole in holes]

    def _line(self, line: Line) -> list[tuple[float, float]]:
        return [self._to_plane.transform(*place) for place in line]

    def blocked(self, place: Position, antenna_m: float) -> bool:
        """Tell whether anything hides the satellite from an antenna above a place."""
        azimuth, elevation = direction(self._longitude_deg, place)
        slope = math.tan(elevation)
        x, y = self._to_plane.transform(*place)
        # Further on the ray is above everything.
        reach = max(self._highest_m - antenna_m, 1.0) / slope
        ahead = reach * math.sin(azimuth), reach * math.cos(azimuth)
        ray = shapely.LineString([(x, y), (x + ahead[0], y + ahead[1])])
        origin = shapely.Point(x, y)
        for number in self._tree.query(ray, predicate="intersects"):
            block = self._blocks[number]
            for part in shapely.get_parts(ray.intersection(self._shapes[number])):
                near = origin.distance(part)
                far = max(origin.distance(shapely.Point(one)) for one in part.coords)
                low, high = antenna_m + near * slope, antenna_m + far * slope
                if low < block.top_m and high > block.bottom_m:
                    return True
        return False
