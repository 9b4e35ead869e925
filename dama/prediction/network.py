"""Roads as OpenStreetMap draws them, made into a directed network."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2s
from itertools import pairwise

from dama.prediction.obstruction import ObstructionError, Onward
from dama.prediction.places import Course, Line, distance_m, heading_deg, turn_deg
from dama.prediction.turns import (
    NO_TRAILS,
    Restriction,
    Trails,
    TurnRestriction,
    Turns,
    WayRestriction,
    WayTurns,
    obeys,
)

# The kinds of road for motor vehicles (https://wiki.openstreetmap.org/wiki/Key:highway), with the
# traffic that each draws at a junction, relative to the others.
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
# The free speed on them where no limit is posted, in km/h; a slip road has `_LINK_SPEED` of it.
_USUAL_KMH = {
    "motorway": 110.0,
    "trunk": 85.0,
    "primary": 65.0,
    "secondary": 55.0,
    "tertiary": 45.0,
    "unclassified": 40.0,
    "residential": 30.0,
    "living_street": 12.0,
    "road": 35.0,
    "service": 20.0,
}
_LINK_SPEED = 0.6
# A slip road draws this part of what its road does.
_LINK = 0.25
# How much more traffic a road of the same name or number draws; and the standard deviation, in
# degrees, of the turns that traffic takes.
_SAME_ROAD = 12.0
_TURN_DEG = 30.0
# Junctions differ in how traffic divides: this part of it is shared equally among all ways.
_ANYWHERE = 0.1
# The part of the traffic that turns round at a dead end; the rest stays, or leaves the map's roads.
_TURN_ROUND = 0.5
# OpenStreetMap allows 2,000 nodes; a way of more than this is no map, and would take minutes.
MOST_NODES = 20_000
_NO = ("no", "private")
RINGS = ("roundabout", "circular")
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
    # The most particular key counts (https://wiki.openstreetmap.org/wiki/Key:access).
    keys = ("motorcar", "motor_vehicle", "vehicle", "access")
    allowed = next((tags[key] for key in keys if key in tags), "yes")
    return kind in _TRAFFIC and allowed not in _NO and tags.get("area") != "yes"


def is_covered(tags: Mapping[str, str]) -> bool:
    """Tell whether a way hides the sky: tunnels, passages, avalanche protectors, covered bridges.

    Service roads do not count: their covers are car parks, filling stations and escape tunnels.
    """
    return tags.get("highway") != "service" and _hides_sky(tags)


def _hides_sky(tags: Mapping[str, str]) -> bool:
    return (
        tags.get("tunnel", "no") not in ("no", "culvert")
        or tags.get("covered", "no") not in ("no", "colonnade", "arcade")
        or tags.get("bridge") == "covered"
    )


def limit_mps(tags: Mapping[str, str]) -> float | None:
    """Return the posted speed limit, None where it is absent or no number."""
    number, _, unit = tags.get("maxspeed", "").partition(" ")
    factor = {"": _KMH, "km/h": _KMH, "mph": _MPH}.get(unit.strip())
    if factor is None or not number.isdecimal() or not 0 < int(number) < 200:
        return None
    return round(int(number) * factor, 2)


def usual_mps(tags: Mapping[str, str]) -> float:
    """Return the usual speed on a road of this kind where no limit is posted."""
    kind = tags["highway"]
    part = _LINK_SPEED if kind.endswith("_link") else 1.0
    return round(_USUAL_KMH[kind.removesuffix("_link")] * part * _KMH, 2)


def _directions(tags: Mapping[str, str]) -> tuple[bool, bool]:
    """Return whether a way is driven as drawn, and against it."""
    given = tags.get("oneway")
    if given in ("-1", "reverse"):
        return False, True
    implied = tags.get("highway") == "motorway" or tags.get("junction") in RINGS
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
    # By satellite, how probably it is hidden; only satellites that something is known to hide.
    shaded: tuple[tuple[str, float], ...] = ()
    # The line of the edge that it was cut from.
    cut_from: Line | None = None
    # The restrictions that still apply to vehicles that came by certain ways. Other vehicles are on
    # another edge of the same line, which `same_as` names.
    trails: Trails = NO_TRAILS
    same_as: str | None = None
    # How far along it the last traffic light stands. A light at a junction belongs to the edges
    # that end there, where vehicles wait.
    light_m: float | None = None

    def shadow_of(self, satellite: str) -> float | None:
        """Return how probably a satellite is hidden, None where nothing is known to hide it."""
        return dict(self.shaded).get(satellite)

    def is_reverse_of(self, other: Edge) -> bool:
        """Tell whether it is the same piece, driven the other way."""
        mine, others = self.cut_from or self.line, other.cut_from or other.line
        return self.way.id == other.way.id and mine == others[::-1]


class Network:
    """The directed edges of all ways, by id and by the junctions they begin and end at.

    `lights` are the nodes at which traffic lights stand.

    Ways of fewer than two nodes, and parts of no length, lead nowhere and are left out. Raises
    `ObstructionError` for a way of more than `MOST_NODES`.
    """

    def __init__(
        self,
        ways: Iterable[Way],
        restrictions: Iterable[Restriction] = (),
        lights: Collection[int] = (),
    ) -> None:
        ways = [way for way in ways if len(way.nodes) > 1]
        for way in ways:
            if len(way.nodes) > MOST_NODES:
                raise ObstructionError(
                    f"osm:way/{way.id}: {len(way.nodes)} nodes, {MOST_NODES} are read at most "
                    "(OpenStreetMap allows 2000): split the way, or leave it out"
                )
        used = Counter(node for way in ways for node in way.nodes)
        self.edges: dict[str, Edge] = {}
        self.leaving: dict[int, list[Edge]] = defaultdict(list)
        self.arriving: dict[int, list[Edge]] = defaultdict(list)
        self._cuts = 0
        self._lights = frozenset(lights)
        for way in ways:
            self._split(way, used)
        restrictions = list(restrictions)
        self._turns = Turns(one for one in restrictions if isinstance(one, TurnRestriction))
        by_way = (one for one in restrictions if isinstance(one, WayRestriction))
        self._way_turns = WayTurns(self._affordable(by_way))
        self._add_trails()
        self._onward: dict[str, list[tuple[Edge, float]]] = {}

    def _affordable(self, restrictions: Iterable[WayRestriction]) -> Iterator[WayRestriction]:
        """Yield restrictions whose added edges, all together, at most double the map's."""
        count = Counter(edge.way.id for edge in self.edges.values())
        left = len(self.edges)
        for one in restrictions:
            cost = len(one.from_ways) * sum(count[way] for way in one.via_ways)
            if 0 < cost <= left:
                left -= cost
                yield one

    def _add_trails(self) -> None:
        """Add the edges for vehicles that have begun a way restriction and must still obey it."""
        todo = [e for e in self.edges.values() if e.way.id in self._way_turns.from_ways]
        while todo:
            edge = todo.pop()
            for step in list(self.leaving.get(edge.ends, ())):
                trails = self._trails(edge, step)
                if step.trails or not trails:
                    continue
                # The name has to be the same in each import: roads are known by their ids.
                digest = blake2s(repr(sorted(trails)).encode(), digest_size=6).hexdigest()
                name = f"{step.id}?{digest}"
                if name not in self.edges:
                    todo.append(replace(step, id=name, trails=trails, same_as=step.id))
                    self._add(todo[-1])

    def _trails(self, edge: Edge, step: Edge) -> Trails:
        """Return the restrictions that apply on an edge to vehicles that come from another one."""
        if step.is_reverse_of(edge):
            return NO_TRAILS
        return self._way_turns.after(edge.trails, edge.way.id, step.way.id)

    def _split(self, way: Way, used: Counter[int]) -> None:
        last = len(way.nodes) - 1
        cuts = [n for n, node in enumerate(way.nodes) if n in (0, last) or used[node] > 1]
        forward, backward = _directions(way.tags)
        for first, end in pairwise(cuts):
            line, nodes = way.line[first : end + 1], way.nodes[first : end + 1]
            length_m = Course(line).length_m
            if length_m == 0.0:
                # Kept as an edge, it would draw a part of the traffic.
                continue
            if forward:
                name = f"osm:way/{way.id}/{first}-{end}"
                light_m = self._light_m(nodes, line)
                self._add(Edge(name, way, nodes[0], nodes[-1], line, length_m, light_m=light_m))
            if backward:
                name = f"osm:way/{way.id}/{end}-{first}"
                nodes, line = nodes[::-1], line[::-1]
                light_m = self._light_m(nodes, line)
                self._add(Edge(name, way, nodes[0], nodes[-1], line, length_m, light_m=light_m))

    def _light_m(self, nodes: Sequence[int], line: Line) -> float | None:
        """Return how far along a line its last light stands; one at its beginning is left out."""
        for place in range(len(nodes) - 1, 0, -1):
            if nodes[place] in self._lights:
                return round(Course(line[: place + 1]).length_m, 1)
        return None

    def cut(
        self, edge: Edge, shaded: Sequence[tuple[float, float, tuple[tuple[str, float], ...]]]
    ) -> None:
        """Cut an edge where the sky above it is hidden.

        Each entry of `shaded` has the bounds of a piece in metres along the edge, and the
        satellites hidden there with their probabilities, in order and without overlap. The pieces
        replace the edge, joined by nodes of their own.
        """
        course = Course(edge.line)
        bounds: list[tuple[float, tuple[tuple[str, float], ...]]] = []
        for from_m, until_m, shadows in shaded:
            bounds += [(from_m, ()), (until_m, shadows)]
        bounds.append((edge.length_m, ()))
        begins, at_m = edge.begins, 0.0
        pieces: list[Edge] = []
        for bound_m, shadows in bounds:
            to_m = edge.length_m if bound_m > edge.length_m - 1.0 else bound_m
            if to_m < at_m + 1.0:
                continue
            ends = edge.ends if to_m == edge.length_m else self._new_node()
            part = f"@{round(at_m)}-{round(to_m)}"
            light_m = None
            # Rounding may put a light beyond the edge's end.
            if edge.light_m is not None and at_m < min(edge.light_m, edge.length_m) <= to_m:
                light_m = edge.light_m - at_m
            line = course.part(at_m, to_m)
            pieces.append(
                replace(
                    edge,
                    id=edge.id + part,
                    begins=begins,
                    ends=ends,
                    line=line,
                    length_m=Course(line).length_m,
                    shaded=shadows,
                    cut_from=edge.line,
                    same_as=edge.same_as and edge.same_as + part,
                    light_m=light_m,
                )
            )
            begins, at_m = ends, to_m
        if not pieces:
            return
        del self.edges[edge.id]
        self.leaving[edge.begins].remove(edge)
        self.arriving[edge.ends].remove(edge)
        for piece in pieces:
            self._add(piece)

    def joined(
        self,
        wanted: Callable[[Edge], bool],
        *,
        most_edges: float = math.inf,
        most_positions: float = math.inf,
    ) -> Iterator[list[Edge]]:
        """Yield the wanted edges in groups of those that touch.

        A group that has reached a bound ends there, and the rest is another group.
        """
        at: dict[int, list[Edge]] = defaultdict(list)
        for edge in self.edges.values():
            if wanted(edge):
                at[edge.begins].append(edge)
                at[edge.ends].append(edge)
        seen: set[str] = set()
        for edges in at.values():
            group: list[Edge] = []
            todo, positions = list(edges), 0
            while todo and len(group) < most_edges and positions < most_positions:
                edge = todo.pop()
                if edge.id not in seen:
                    seen.add(edge.id)
                    group.append(edge)
                    positions += len(edge.line)
                    todo += at.get(edge.begins, []) + at.get(edge.ends, [])
            if group:
                yield group

    def _new_node(self) -> int:
        # Nodes of the map have ids above 0, those of unsaved edits small ones below.
        self._cuts += 1
        return -(1 << 62) + self._cuts

    def _add(self, edge: Edge) -> None:
        self.edges[edge.id] = edge
        self.leaving[edge.begins].append(edge)
        self.arriving[edge.ends].append(edge)

    def onward(self, edge: Edge) -> list[tuple[Edge, float]]:
        """Return the edges that can follow, each with the part of the traffic that takes it.

        No vehicle turns round at a junction; at a dead end half of the traffic does. Main roads,
        straight ways and roads of the same name draw most. Where turn restrictions leave no way at
        all, the map contradicts itself, and they are ignored.
        """
        known = self._onward.get(edge.id)
        if known is None:
            leaving = self.leaving.get(edge.ends, ())
            ahead = [step for step in leaving if step.trails == self._trails(edge, step)]
            choices = [step for step in ahead if not step.is_reverse_of(edge)]
            choices = [step for step in choices if self._may(edge, step, choices)] or choices
            part = 1.0 if choices else _TURN_ROUND
            choices = choices or ahead
            draws = [_draw(edge, step) for step in choices]
            total = math.fsum(draws)
            known = [
                (step, part * ((1.0 - _ANYWHERE) * draw / total + _ANYWHERE / len(choices)))
                for step, draw in zip(choices, draws, strict=True)
            ]
            self._onward[edge.id] = known
        return known

    def _may(self, edge: Edge, step: Edge, choices: Iterable[Edge]) -> bool:
        """Tell whether no turn restriction keeps a vehicle from one of the edges ahead."""
        here, there = edge.way.id, step.way.id
        return self._turns.allow(here, edge.ends, there) and (
            not edge.trails or obeys(edge.trails, here, there, {one.way.id for one in choices})
        )

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
    if before.way.tags.get("junction") in RINGS:
        # In a roundabout neither angle nor name tells which exit a vehicle takes.
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
