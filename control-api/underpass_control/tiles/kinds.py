"""Which OpenStreetMap objects are drawn, as which kind, and from which zoom on.

The layers, each with `class`:

| layer | geometry | classes |
|---|---|---|
| `land` | areas | `forest`, `built` |
| `water` | areas and lines | `lake`, `river`, `canal`, `stream`, `coast` |
| `roads` | lines | `motorway`, `main`, `secondary`, `minor`, `rail`; `tunnel` is true inside |
| `places` | points | `city`, `town`, `village`, `hamlet`; `name`; `rank`: the least comes first |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dama.prediction.network import is_covered

LAYERS = ("land", "water", "roads", "places")
# Only objects with one of these keys are read; those of areas come first.
AREA_KEYS = ("landuse", "natural", "waterway")
KEYS = (*AREA_KEYS, "highway", "railway", "place")
LONGEST_NAME = 60

Properties = tuple[tuple[str, str | int | bool], ...]
Tags = Mapping[str, str]


@dataclass(frozen=True)
class Kind:
    """The layer, properties and first zoom by which a feature is drawn."""

    layer: str
    properties: Properties
    # Areas appear at any zoom at which they are large enough to be seen.
    from_zoom: int = 0


_ROADS = {
    "motorway": ("motorway", 5),
    "trunk": ("motorway", 6),
    "primary": ("main", 8),
    "secondary": ("secondary", 10),
    "tertiary": ("secondary", 11),
    "unclassified": ("minor", 12),
    "residential": ("minor", 12),
    "living_street": ("minor", 13),
    "road": ("minor", 13),
    "service": ("minor", 13),
}
# Slip roads are short: at low zooms they are specks beside their road.
_LINK_FROM_ZOOM = 11
_WATERWAYS = {"river": 8, "canal": 10, "stream": 13}
_BUILT = frozenset({"residential", "commercial", "industrial", "retail"})
_LAKES = frozenset({"reservoir", "basin"})
_PLACES = {"city": 4, "town": 8, "village": 10, "suburb": 11, "hamlet": 12}
_MOST_PEOPLE = 10**8


def line_kind(tags: Tags) -> Kind | None:
    """Return the kind of a way that is drawn as a line; None if it is not drawn."""
    road = _road(tags)
    if road is not None:
        return road
    if tags.get("railway") == "rail":
        return Kind("roads", (("class", "rail"), *_tunnel(tags)), 10)
    waterway = tags.get("waterway", "")
    # A stream in a pipe is not visible.
    if waterway in _WATERWAYS and tags.get("tunnel", "no") == "no":
        return Kind("water", (("class", waterway),), _WATERWAYS[waterway])
    if tags.get("natural") == "coastline":
        return Kind("water", (("class", "coast"),), 4)
    return None


def area_kind(tags: Tags) -> Kind | None:
    """Return the kind of an area; None if it is not drawn."""
    landuse, natural = tags.get("landuse"), tags.get("natural")
    if natural == "water" or tags.get("waterway") in ("riverbank", "dock") or landuse in _LAKES:
        return Kind("water", (("class", "lake"),))
    if natural == "wood" or landuse == "forest":
        return Kind("land", (("class", "forest"),))
    if landuse in _BUILT:
        return Kind("land", (("class", "built"),))
    return None


def place_kind(tags: Tags) -> Kind | None:
    """Return the kind of a node that is a place with a name; None for any other node."""
    place, name = tags.get("place", ""), tags.get("name", "").strip()
    if place not in _PLACES or not name or len(name) > LONGEST_NAME or not name.isprintable():
        return None
    text = tags.get("population", "")
    is_number = text.isascii() and text.isdigit() and len(text) <= 9
    people = min(int(text), _MOST_PEOPLE) if is_number else 0
    kind = "village" if place == "suburb" else place
    # Kinds in the order of `_PLACES`, and larger places first within a kind.
    rank = (_PLACES[place] + 1) * _MOST_PEOPLE - people
    return Kind("places", (("class", kind), ("name", name), ("rank", rank)), _PLACES[place])


def _road(tags: Tags) -> Kind | None:
    highway = tags.get("highway", "")
    name = highway.removesuffix("_link")
    if name not in _ROADS:
        return None
    kind, zoom = _ROADS[name]
    if name != highway:
        zoom = max(zoom, _LINK_FROM_ZOOM)
    return Kind("roads", (("class", kind), *_tunnel(tags)), zoom)


def _tunnel(tags: Tags) -> Properties:
    return (("tunnel", True),) if is_covered(tags) else ()
