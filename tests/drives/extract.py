"""The roads of an OpenStreetMap extract, to be driven on."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import osmium
from underpass_control.obstructions.extract import Traffic, with_traffic

from dama.prediction import Obstruction, ObstructionMap
from dama.prediction import network as osm
from dama.prediction.cover import obstructions_of
from dama.prediction.network import Edge, Network
from dama.prediction.places import Course, Plane, heading_deg, turn_deg
from tests.drives.island import Metres, Way
from tests.drives.roads import Piece

# What drivers do where nothing is posted, in km/h.
_USUAL_KMH = {
    "motorway": 110.0,
    "trunk": 80.0,
    "primary": 60.0,
    "secondary": 50.0,
    "tertiary": 45.0,
    "unclassified": 40.0,
    "residential": 30.0,
}
_OTHER_KMH = 20.0
# The part of drivers who stay on their road at a junction; the others go anywhere.
_STAY = 7 / 8
# Where all ways on are turns of more than this, and some are alike to this, a road has ended.
_ENDS_DEG = 45.0
_ALIKE_DEG = 20.0
_LINK = 0.7
# How many ways of which roads are put into tunnels where an extract has none, and how long.
_TUNNELS = 12
_TUNNELLED = ("trunk", "primary", "secondary", "tertiary", "unclassified", "residential")
_LEAST_M = 60.0
_MOST_M = 800.0


class MapWay(Way):
    """A way of an extract."""

    @property
    def covered(self) -> bool:
        """Whether the sky is hidden."""
        return osm.is_covered(self.tags)

    @property
    def limit_mps(self) -> float:
        """The posted limit, or what is driven where none is posted."""
        posted = osm.limit_mps(self.tags)
        if posted is not None:
            return posted
        kind = self.tags["highway"]
        usual = _USUAL_KMH.get(kind.removesuffix("_link"), _OTHER_KMH) / 3.6
        return usual * (_LINK if kind.endswith("_link") else 1.0)


@dataclass(frozen=True)
class Extract:
    """An extract's network, the obstructions that are imported from it, and its lights."""

    network: Network
    obstructions: tuple[Obstruction, ...]
    known: ObstructionMap
    plane: Plane
    signals: frozenset[Metres]
    _shares: dict[tuple[str, frozenset[str]], list[tuple[Edge, float]]] = field(
        default_factory=dict, compare=False
    )

    def piece(self, edge: Edge) -> Piece:
        """Return an edge as a piece of a drive."""
        points = tuple(self.plane.xy(position) for position in edge.line)
        return Piece(MapWay(edge.way.id, points, edge.way.tags), points)

    def cover(self, edge: Edge) -> str | None:
        """Return the obstruction that covers an edge."""
        return self.known.cover(edge.id) if edge.id in self.known else None

    def steps(self, edge: Edge) -> list[Edge]:
        """Return what a driver can go on to, who turns round nowhere."""
        return [step for step, _ in self.network.onward(edge) if not step.is_reverse_of(edge)]

    def driven_on(self, dice: random.Random, driven: Sequence[Edge]) -> Edge | None:
        """Return where some driver goes on who has driven so: seven of eight stay on their road."""
        edge = driven[-1]
        choices = self.steps(edge)
        if not choices:
            return None
        if _is_ring(edge):
            shares = self.shares(driven)
            return dice.choices([step for step, _ in shares], [part for _, part in shares])[0]
        if dice.random() >= _STAY:
            return dice.choice(choices)
        stays = _stays(edge, choices)
        return stays[0] if len(stays) == 1 else dice.choice(stays)

    def shares(self, driven: Sequence[Edge]) -> list[tuple[Edge, float]]:
        """Return what the drivers who have driven so go on to, and which part of them does."""
        ring = round_of(driven)
        known = self._shares.get((driven[-1].id, ring))
        if known is None:
            edge = driven[-1]
            choices = self.steps(edge)
            if _is_ring(edge) and choices:
                known = self._out_of(choices, ring)
            else:
                stays = _stays(edge, choices)
                known = [
                    (step, _STAY * (step in stays) / len(stays) + (1.0 - _STAY) / len(choices))
                    for step in choices
                ]
            self._shares[edge.id, ring] = known
        return known

    def _out_of(self, choices: list[Edge], ring: frozenset[str]) -> list[tuple[Edge, float]]:
        """Return the shares in a roundabout: each exit alike, but for the last one.

        That is where most have come from; nobody goes round twice.
        """
        exits = [step for step in choices if not _is_ring(step)]
        on = [step for step in choices if _is_ring(step) and step.id not in ring]
        if not on or not exits:
            alike = on or exits or choices
            return [(step, 1.0 / len(alike)) for step in alike]
        seen, todo, further = set(ring), list(on), 0
        while todo:
            here = todo.pop()
            if here.id not in seen:
                seen.add(here.id)
                steps = self.steps(here)
                further += sum(not _is_ring(step) for step in steps)
                todo += [step for step in steps if _is_ring(step)]
        leaves = len(exits) / max(len(exits) + further - 1, len(exits))
        return [(step, leaves / len(exits)) for step in exits] + [
            (step, (1.0 - leaves) / len(on)) for step in on if leaves < 1.0
        ]


def round_of(driven: Sequence[Edge]) -> frozenset[str]:
    """Return the edges of the roundabout that are driven now."""
    return frozenset(edge.id for edge in itertools.takewhile(_is_ring, reversed(driven)))


def _is_ring(edge: Edge) -> bool:
    return edge.way.tags.get("junction") in osm.RINGS


def _stays(edge: Edge, choices: list[Edge]) -> list[Edge]:
    """Return where the road goes on: to the one of the same name that is the most straight.

    A road that ends at another one goes on nowhere: to both sides of it alike, though one of them
    is a degree straighter.
    """
    name = edge.way.tags.get("name") or edge.way.tags.get("ref")
    same = [s for s in choices if name and name == s.way.tags.get("name", s.way.tags.get("ref"))]
    turns = [(turn_deg(_last_deg(edge), _first_deg(step)), step) for step in same or choices]
    least = min((turned for turned, _ in turns), default=0.0)
    alike_deg = _ALIKE_DEG if not same and least > _ENDS_DEG else 0.0
    alike = [step for turned, step in turns if turned <= least + alike_deg]
    return alike if alike_deg else alike[:1]


def _first_deg(edge: Edge) -> float:
    return heading_deg(edge.line[0], edge.line[1])


def _last_deg(edge: Edge) -> float:
    return heading_deg(edge.line[-2], edge.line[-1])


@lru_cache(maxsize=4)
def read_extract(path: Path) -> Extract:
    """Read an extract, and make its obstructions as the control service would.

    Where none of its roads is in a tunnel, some are put into one.
    """
    drawn = list(_ways(path))
    ways = [way for way in drawn if osm.is_road(way.tags)]
    traffic = Traffic()
    beside = osmium.filter.EntityFilter(osmium.osm.NODE | osmium.osm.RELATION)
    for one in with_traffic(osmium.FileProcessor(str(path)).with_filter(beside)):
        traffic.take(one)
    network = Network(ways, traffic.turns, traffic.lights)
    obstructions = tuple(obstructions_of(network))
    if not obstructions:
        ways = [way for way in _tunnelled(drawn) if osm.is_road(way.tags)]
        network = Network(ways, traffic.turns, traffic.lights)
        obstructions = tuple(obstructions_of(network))
    places = {node: place for way in ways for node, place in zip(way.nodes, way.line, strict=True)}
    plane = Plane(ways[len(ways) // 2].line[0])
    return Extract(
        network,
        obstructions,
        ObstructionMap(obstructions),
        plane,
        frozenset(plane.xy(places[node]) for node in traffic.lights if node in places),
    )


def _tunnelled(ways: list[osm.Way]) -> list[osm.Way]:
    """Put some of the main roads' ways into tunnels, always the same ones."""
    fit = [
        way
        for way in ways
        if way.tags["highway"] in _TUNNELLED
        and not way.tags.get("junction")
        and _LEAST_M <= Course(way.line).length_m <= _MOST_M
    ]
    chosen = {way.id for way in random.Random(1).sample(fit, min(_TUNNELS, len(fit)))}
    dug = {"tunnel": "yes", "layer": "-1"}
    return [replace(w, tags={**w.tags, **dug}) if w.id in chosen else w for w in ways]


def _ways(path: Path) -> Iterator[osm.Way]:
    """Yield the ways for vehicles, also those that the key for cars forbids to cars.

    They are not roads here, but count when ways are chosen, so that the choices stay the same.
    """
    ways = osmium.FileProcessor(str(path)).with_locations()
    for way in ways.with_filter(osmium.filter.KeyFilter("highway")):
        if isinstance(way, osmium.osm.Way):
            tags = {tag.k: tag.v for tag in way.tags}
            placed = [(node.ref, node) for node in way.nodes if node.location.valid()]
            if osm.is_road({key: tags[key] for key in tags if key != "motorcar"}):
                yield osm.Way(
                    way.id,
                    tuple(ref for ref, _ in placed),
                    tuple((node.lon, node.lat) for _, node in placed),
                    tags,
                )
