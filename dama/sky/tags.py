"""Obstacles as OpenStreetMap tags them: what they are, and their heights by tags or by kind.

Heights are log-normal. The medians and spreads by kind are rough ones for European towns; where a
map has heights, `guesses.py` corrects them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping

from dama.sky.heights import MAX_HEIGHT_M, Belief

# Metres from one floor to the next, and of the roof above the last one.
_LEVEL_M, _ROOF_M = 3.1, 1.2
_MOST_LEVELS = 170
# The relative errors of a tagged height and of one computed from levels; and the error of a count
# of levels, as a part of a level.
_TAGGED, _BY_LEVELS, _LEVELS_OFF = 0.05, 0.10, 0.4
_NUMBER = re.compile(r"\s*(-?\d{1,6}(?:[.,]\d{1,3})?)\s*(m|ft|')?\s*")
_FOOT_M = 0.3048

# Median and spread of heights in metres, by the value of `building`.
_BY_KIND = {
    "apartments": (17.0, 0.45),
    "bungalow": (5.0, 0.25),
    "cabin": (4.0, 0.3),
    "carport": (2.8, 0.2),
    "cathedral": (28.0, 0.4),
    "church": (16.0, 0.45),
    "commercial": (12.0, 0.6),
    "detached": (8.0, 0.3),
    "dormitory": (15.0, 0.4),
    "farm": (8.0, 0.35),
    "garage": (3.0, 0.25),
    "garages": (3.0, 0.3),
    "greenhouse": (4.0, 0.35),
    "hospital": (16.0, 0.5),
    "hotel": (17.0, 0.5),
    "house": (8.0, 0.3),
    "hut": (3.0, 0.3),
    "industrial": (9.0, 0.5),
    "kindergarten": (6.5, 0.35),
    "kiosk": (3.0, 0.25),
    "office": (17.0, 0.6),
    "residential": (11.0, 0.5),
    "retail": (7.0, 0.5),
    "school": (10.0, 0.4),
    "semidetached_house": (8.0, 0.3),
    "service": (3.5, 0.35),
    "shed": (3.0, 0.3),
    "static_caravan": (3.0, 0.2),
    "terrace": (9.0, 0.3),
    "train_station": (10.0, 0.5),
    "transformer_tower": (9.0, 0.4),
    "university": (16.0, 0.45),
    "warehouse": (9.0, 0.4),
}
_ANY_BUILDING = (8.0, 0.65)
# Values of `building` for something that does not stand there.
_NO_BUILDING = ("no", "ruins", "construction", "proposed", "demolished", "razed")

FOREST = Belief(16.0, 0.35)
TREES = Belief(11.0, 0.4)
# How probably leaves and wood block a line of sight: a forest nearly always, a row of trees less.
FOREST_OPACITY, TREES_OPACITY = 0.9, 0.65

_WALLS = {
    "noise_barrier": Belief(3.8, 0.25),
    "retaining_wall": Belief(3.0, 0.5),
    "city_wall": Belief(8.0, 0.4),
    "wall": Belief(2.0, 0.35),
}
# The clearance below bridges, gantries and roofs, and their thickness.
UNDERSIDE = Belief(5.2, 0.12)
BRIDGE_M, GANTRY_M, ROOF_M = 1.8, 1.0, 0.5


def metres(text: str | None) -> float | None:
    """Return a length with or without unit (m, ft, '); None if it is not one, or is absurd."""
    found = _NUMBER.fullmatch(text or "")
    if found is None:
        return None
    value = float(found[1].replace(",", ".")) * (_FOOT_M if found[2] in ("ft", "'") else 1.0)
    return value if 0.0 < value <= MAX_HEIGHT_M else None


def levels(text: str | None) -> float | None:
    """Return a number of floors; None if it is not a number ("ground"), or is absurd."""
    found = _NUMBER.fullmatch(text or "")
    if found is None or found[2]:
        return None
    value = float(found[1].replace(",", "."))
    return value if 0.0 < value <= _MOST_LEVELS else None


def is_building(tags: Mapping[str, str]) -> bool:
    """Tell whether an area is a building or a part of one."""
    kind = tags.get("building", tags.get("building:part", "no"))
    return kind not in _NO_BUILDING


def is_part(tags: Mapping[str, str]) -> bool:
    """Tell whether an area is a part of a building that is also drawn as a whole."""
    return tags.get("building:part", "no") != "no" and "building" not in tags


def is_roof(tags: Mapping[str, str]) -> bool:
    """Tell whether it is a roof that stands on posts only."""
    return "roof" in (tags.get("building"), tags.get("building:part"))


def known_height(tags: Mapping[str, str]) -> Belief | None:
    """Return how high a building is by its tags; None where they do not say."""
    tagged = metres(tags.get("height"))
    if tagged is not None:
        return Belief(tagged, _TAGGED)
    floors = levels(tags.get("building:levels"))
    if floors is None:
        return None
    floors += levels(tags.get("roof:levels")) or 0.0
    height = floors * _LEVEL_M + _ROOF_M
    spread = math.hypot(_BY_LEVELS, _LEVELS_OFF * _LEVEL_M / height)
    return Belief(min(height, MAX_HEIGHT_M), spread)


def height_by_kind(tags: Mapping[str, str]) -> Belief:
    """Return how high such buildings are."""
    kind = tags.get("building", tags.get("building:part", "yes"))
    return Belief(*_BY_KIND.get(kind, _ANY_BUILDING))


def underside(tags: Mapping[str, str]) -> Belief | None:
    """Return the height of a building's underside; None if the building stands on the ground."""
    lowest = metres(tags.get("min_height"))
    floors = levels(tags.get("building:min_level"))
    if lowest is None and floors is not None:
        lowest = floors * _LEVEL_M
    if lowest is not None:
        return Belief(min(lowest, MAX_HEIGHT_M), 0.08)
    return UNDERSIDE if is_roof(tags) else None


def wall(tags: Mapping[str, str]) -> Belief | None:
    """Return how high a wall is; None if the line is not a wall that matters."""
    kind = tags.get("barrier", "")
    if tags.get("wall") == "noise_barrier":
        kind = "noise_barrier"
    known = metres(tags.get("height"))
    if kind not in _WALLS or (kind == "wall" and known is None):
        return None
    return _WALLS[kind] if known is None else Belief(known, _TAGGED)


def is_forest(tags: Mapping[str, str]) -> bool:
    """Tell whether an area is full of trees."""
    return tags.get("natural") == "wood" or tags.get("landuse") == "forest"


def trees(tags: Mapping[str, str], usual: Belief) -> Belief:
    """Return how high trees are by their tags, or as they usually are."""
    known = metres(tags.get("height"))
    return usual if known is None else Belief(known, 0.15)


def width_m(tags: Mapping[str, str]) -> float:
    """Return the width of a carriageway or of a railway in metres."""
    known = metres(tags.get("width"))
    if known is not None and known <= 60.0:
        return known
    lanes = levels(tags.get("lanes"))
    if lanes is not None and lanes <= 16:
        return 3.25 * lanes
    kind = tags.get("highway", "").removesuffix("_link")
    if not kind:
        return 5.0
    one_way = tags.get("oneway") in ("yes", "-1", "1", "true")
    if kind in ("motorway", "trunk") and not tags.get("highway", "").endswith("_link"):
        return 7.5
    if kind in ("footway", "path", "cycleway", "steps", "track", "pedestrian"):
        return 3.0
    return 4.0 if one_way or kind in ("service", "living_street") else 6.5


def layer(tags: Mapping[str, str]) -> int:
    """Return the layer of a way; a bridge without one is on the first."""
    text = tags.get("layer", "")
    if text.removeprefix("-").isdecimal() and len(text) < 4:
        return int(text)
    if tags.get("bridge", "no") != "no":
        return 1
    return -1 if tags.get("tunnel", "no") != "no" else 0
