"""The areas that a vehicle may enter if it goes straight ahead, where no road is known."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TypeAlias

import shapely

from dama.prediction.areas import area_in_plane
from dama.prediction.places import Plane
from dama.prediction.profile import Profile
from dama.prediction.roadmap import ObstructionMap
from dama.prediction.track import Track

# How far ahead areas count, and the directions tried, with their weights.
_BLIND_M = 1_000.0
_BLIND_S = 40.0
_FAN = ((0.0, 0.4), (4.0, 0.2), (-4.0, 0.2), (8.0, 0.1), (-8.0, 0.1))

AreaAhead: TypeAlias = tuple[str, float, Profile]
"""An obstruction that is an area, with the probability of its entry, and the way into it."""


def straight_ahead(on: ObstructionMap, track: Track) -> Iterator[AreaAhead]:
    """Yield the areas that a fan of straight lines from the last fix meets."""
    if track.last is None or track.course_deg is None or track.pace.cruise_mps is None:
        return
    range_m = min(_BLIND_M, _BLIND_S * max(track.pace.now_mps, track.pace.cruise_mps))
    plane = Plane(track.last.place)
    for obstruction in on.areas.within(track.last.place, range_m):
        area = area_in_plane(obstruction, plane)
        probability = entry_m = through_m = 0.0
        for turn, weight in _FAN:
            crossing = _crossing(area, track.course_deg + turn, range_m)
            if crossing is not None:
                probability += weight
                entry_m += weight * crossing[0]
                through_m += weight * crossing[1]
        if probability > 0.0:
            profile = Profile.of_lengths(entry_m / probability, through_m / probability)
            yield obstruction.id, probability, profile


def _crossing(area: shapely.Geometry, heading: float, range_m: float) -> tuple[float, float] | None:
    """Return metres to the area and metres through it, straight ahead from the origin."""
    if area.is_empty:
        return None
    x, y = math.sin(math.radians(heading)), math.cos(math.radians(heading))
    origin = shapely.Point(0.0, 0.0)
    # Only the entry has to be within range; the far side may be beyond it.
    far_m = range_m + float(area.hausdorff_distance(origin))
    cut = area.intersection(shapely.LineString([(0.0, 0.0), (far_m * x, far_m * y)]))
    if cut.is_empty or cut.length <= 0.0:
        return None
    parts = sorted(shapely.get_parts(cut), key=origin.distance)
    entry_m = float(origin.distance(parts[0]))
    return (entry_m, float(parts[0].length)) if entry_m <= range_m else None
