"""Boxes of longitudes and latitudes, to find by what is beside a place: across 180 degrees, too."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import numpy as np
import shapely

from dama.prediction.places import METRES_PER_DEGREE, Position

Box: TypeAlias = tuple[float, float, float, float]
"""Least longitude and latitude, and greatest ones."""


def spans(lons: Sequence[float]) -> list[tuple[float, float]]:
    """Return from where to where longitudes reach: two spans across the 180th meridian."""
    least, most = min(lons), max(lons)
    if most - least <= 180.0:
        return [(least, most)]
    return [
        (-180.0, max(lon for lon in lons if lon < 0.0)),
        (min(lon for lon in lons if lon >= 0.0), 180.0),
    ]


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
