"""Buildings that are drawn twice: as a whole, and in parts with heights of their own."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import shapely

from dama.prediction.places import Line

# If parts make up this much of a building's ground, the whole is left out.
_COVERED = 0.7


def drawn_in_parts(wholes: Sequence[Line], parts: Sequence[Line]) -> list[int]:
    """Return which of the wholes consist of parts; both are outer rings in degrees."""
    if not wholes or not parts:
        return []
    outlines = np.array([shapely.Polygon(ring) for ring in wholes])
    pieces = np.array([shapely.Polygon(ring) for ring in parts])
    whole, part = shapely.STRtree(pieces).query(outlines, predicate="intersects")
    inside = shapely.contains(outlines[whole], shapely.point_on_surface(pieces[part]))
    area = np.bincount(whole[inside], shapely.area(pieces[part[inside]]), len(outlines))
    return [int(n) for n in np.flatnonzero(area >= _COVERED * shapely.area(outlines))]
