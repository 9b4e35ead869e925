"""Roads as OpenStreetMap draws them, made into a directed network."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise

from dama.prediction.obstruction import Onward
from dama.prediction.places import Course, Line, distance_m, heading_deg, turn_deg

# What motor vehicles drive on (https://wiki.openstreetmap.org/wiki/Key:highway), with how much
# traffic each draws at a junction, beside the others.
_TRAFFIC = {
    "motorway": 12.0,
    "trunk": 10.0,
    "primary": 8.0,
    "secondary": 6.0,
    "tertiary": 4.0,
    "unclassified": 2.0,
    "residential": 1.5,
    "living_street": 0.7,
    "road": 1.0,
    "service": 0.4,
}
# A slip road draws this part of what its road does.
_LINK = 0.25
# The same name or number goes on; and a turn of so many degrees costs a factor e.
_SAME_ROAD = 4.0
_TURN_DEG = 45.0
_NO = ("no", "private")
_RINGS = ("roundabout", "circular")
_MPH = 0.44704
_KMH = 1 / 3.6


@dataclass(frozen=True, slots=True)
class Way:
    """A way of the map: its nodes' ids and places, in the order drawn, and its tags."""

    id: int
    nodes: tuple[int, ...]
    line: Line
    tags: Mapping[str, str]


def is_road(tags: Mapping[str, str]) -> bool:
    """Tell whether motor vehicles may use a way."""
    kind = tags.get("highway", "").removesuffix("_link")
    allowed = tags.get("motor_vehicle", tags.get("vehicle", tags.get("access", "yes")))
    return kind in _TRAFFIC and allowed not in _NO and tags.get("area") != "yes"


def is_covered(tags: Mapping[str, str]) -> bool:
    """Tell whether a way hides the sky: tunnels, passages, avalanche protectors, roofs.

    Service roads are none: their covers are car parks, filling stations and tunnels of escape.
    """
    return tags.get("highway") != "service" and _hides_sky(tags)


def _hides_sky(tags: Mapping[str, str]) -> bool:
    return tags.get("tunnel", "no") not in ("no", "culvert") or (
        tags.get("covered", "no") not in ("no", "colonnade", "arcade")
    )


def limit_mps(tags: Mapping[str, str]) -> float | None:
    """Return the posted speed limit, None where it is absent or no number."""
    number, _, unit = tags.get("maxspeed", "").partition(" ")
    factor = {"": _KMH, "km/h": _KMH, "mph": _MPH}.get(unit.strip())
    if factor is None or not number.isdecimal() or not 0 < int(number) < 200:
        return None
    return round(int(number) * factor, 2)


def _directions(tags: Mapping[str, str]) -> tuple[bool, bool]:
    """Return whether a way is driven as drawn, and against it."""
    given = tags.get("oneway")
    if given in ("-1", "reverse"):
        return False, True
    implied = tags.get("highway") == "motorway" or tags.get("junction") in _RINGS
    return True, not (given in ("yes", "true", "1") or (implied and given is None))


@dataclass(frozen=True, slots=True)
class Edge:
    """A way between two junctions, in one direction."""

    id: str
    way: Way
    begins: int
    ends: int
    line: Line
    length_m: float

    def is_reverse_of(self, other: Edge) -> bool:
        """Tell whether it is the same piece, driven the other way."""
        return self.way.id == other.way.id and self.line == other.line[::-1]


class Network:
    """The directed edges of all ways, by id and by the junctions they begin and end at."""

    def __init__(self, ways: Iterable[Way]) -> None:
        ways = [way for way in ways if len(way.nodes) > 1]
        used = Counter(node for way in ways for node in way.nodes)
        self.edges: dict[str, Edge] = {}
        self.leaving: dict[int, list[Edge]] = defaultdict(list)
        self.arriving: dict[int, list[Edge]] = defaultdict(list)
        for way in ways:
            self._split(way, used)
        self._onward: dict[str, list[tuple[Edge, float]]] = {}

    def _split(self, way: Way, used: Counter[int]) -> None:
        last = len(way.nodes) - 1
        cuts = [n for n, node in enumerate(way.nodes) if n in (0, last) or used[node] > 1]
        forward, backward = _directions(way.tags)
        for first, end in pairwise(cuts):
            line, nodes = way.line[first : end + 1], way.nodes[first : end + 1]
            length_m = Course(line).length_m
            if forward:
                name = f"osm:way/{way.id}/{first}-{end}"
                self._add(Edge(name, way, nodes[0], nodes[-1], line, length_m))
            if backward:
                name = f"osm:way/{way.id}/{end}-{first}"
                self._add(Edge(name, way, nodes[-1], nodes[0], line[::-1], length_m))

    def _add(self, edge: Edge) -> None:
        self.edges[edge.id] = edge
        self.leaving[edge.begins].append(edge)
        self.arriving[edge.ends].append(edge)

    def onward(self, edge: Edge) -> list[tuple[Edge, float]]:
        """Return the edges that can follow, each with the part of the traffic that takes it.

        Nobody turns round at a junction, except at a dead end. The main, the straight and the
        same road draw most; turn restrictions are not looked at.
        """
        known = self._onward.get(edge.id)
        if known is None:
            ahead = self.leaving.get(edge.ends, ())
            choices = [step for step in ahead if not step.is_reverse_of(edge)] or list(ahead)
            draws = [_draw(edge, step) for step in choices]
            total = math.fsum(draws)
            known = [(step, draw / total) for step, draw in zip(choices, draws, strict=True)]
            self._onward[edge.id] = known
        return known

    def onward_within(self, edge: Edge, kept: Mapping[str, object]) -> tuple[Onward, ...]:
        """Return the continuations among the edges that are kept."""
        return tuple(
            Onward(step.id, round(probability, 4))
            for step, probability in self.onward(edge)
            if step.id in kept
        )


def _draw(before: Edge, after: Edge) -> float:
    highway = after.way.tags["highway"]
    draw = _TRAFFIC[highway.removesuffix("_link")] * (_LINK if highway.endswith("_link") else 1.0)
    if before.way.tags.get("junction") in _RINGS:
        # In a ring each exit is as good as going round: neither angle nor name says which.
        return draw
    turned = turn_deg(_end_heading(before.line), _end_heading(after.line[1::-1]) + 180.0)
    draw *= math.exp(-((turned / _TURN_DEG) ** 2) / 2) + 0.02
    for key in ("ref", "name"):
        name = before.way.tags.get(key)
        if name and name == after.way.tags.get(key):
            return draw * _SAME_ROAD
    return draw


def _end_heading(line: Line) -> float:
    """Return the direction of a line's end, over 15 m or more: the last node may be askew."""
    for place in line[-2::-1]:
        if distance_m(place, line[-1]) >= 15.0:
            return heading_deg(place, line[-1])
    return heading_deg(line[0], line[-1])
