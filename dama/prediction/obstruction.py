"""Obstructions: objects that block the sky, with the roads that lead into them."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass

from dama.prediction.places import Line, Plane, is_on_earth

# Bounds of one obstruction, which limit the cost of a hostile file.
MAX_ROADS = 5_000
MAX_POSITIONS = 20_000
# The longest name of an obstruction that is stored.
MAX_NAME = 200
_SATELLITE = re.compile(r"[A-Za-z0-9._-]{1,32}", re.ASCII)


class ObstructionError(ValueError):
    """An obstruction whose parts contradict each other or the Earth."""


@dataclass(frozen=True, slots=True)
class Onward:
    """A road that can follow, and the part of the traffic that takes it (0 to 1)."""

    road_id: str
    probability: float


@dataclass(frozen=True, slots=True)
class Road:
    """A piece of road between two junctions, directed as it is driven.

    `covered_by` is the id of the obstruction that covers it; `limit_mps` the posted limit, and
    `usual_mps` the usual speed on such a road where no limit is posted. `light_m` is where its last
    traffic light stands, in metres from its beginning, None for none; a light at a junction belongs
    to the roads that end there. The rest of the probabilities of `onward`, to 1, goes to roads that
    do not matter here. The same piece, with the same id, may belong to several obstructions.
    """

    id: str
    line: Line
    covered_by: str | None = None
    limit_mps: float | None = None
    onward: tuple[Onward, ...] = ()
    usual_mps: float | None = None
    light_m: float | None = None


@dataclass(frozen=True, slots=True)
class Obstruction:
    """Something that cuts the line of sight.

    A road tunnel consists of its covered roads, the roads that lead into them, and roads beside
    those that lead elsewhere: a vehicle there is recognised only if the map has its road. An area
    is a polygon: the outer ring, then its holes, each closed. `certainty` is the probability that
    passing it is a blockage: 1 for a tunnel on a map, less for a learned place. `satellite` is the
    name of the one that it hides, None where it hides all of them.
    """

    id: str
    name: str = ""
    kind: str = "tunnel"
    roads: tuple[Road, ...] = ()
    area: tuple[Line, ...] = ()
    layer: int = 0
    certainty: float = 1.0
    satellite: str | None = None

    def __post_init__(self) -> None:
        if not self.id:
            raise ObstructionError("an obstruction needs an id")
        if self.satellite is not None and not _SATELLITE.fullmatch(self.satellite):
            raise ObstructionError(
                f"{self.id}: the name of a satellite has 1 to 32 of A-Z, a-z, 0-9, . _ and -"
            )
        if not (0.0 < self.certainty <= 1.0):
            raise ObstructionError(f"{self.id}: certainty {self.certainty} is not in (0, 1]")
        if bool(self.roads) == bool(self.area):
            raise ObstructionError(f"{self.id}: roads or an area, and not both, make it")
        lines = [road.line for road in self.roads] or list(self.area)
        if len(lines) > MAX_ROADS or sum(map(len, lines)) > MAX_POSITIONS:
            raise ObstructionError(
                f"{self.id}: more than {MAX_ROADS} lines or {MAX_POSITIONS} positions"
            )
        for line in lines:
            if len(line) < (4 if self.area else 2) or not all(is_on_earth(*p) for p in line):
                raise ObstructionError(f"{self.id}: a line is too short or not on Earth")
        if self.area and any(ring[0] != ring[-1] for ring in self.area):
            raise ObstructionError(f"{self.id}: a ring of the area is not closed")
        if self.roads:
            self._check_roads()

    def _check_roads(self) -> None:
        if not any(road.covered_by == self.id for road in self.roads):
            raise ObstructionError(f"{self.id}: none of its roads is covered by it")
        if len({road.id for road in self.roads}) != len(self.roads):
            raise ObstructionError(f"{self.id}: two of its roads have the same id")
        for road in self.roads:
            total = math.fsum(onward.probability for onward in road.onward)
            if any(not 0.0 <= onward.probability <= 1.0 for onward in road.onward) or total > 1.001:
                raise ObstructionError(f"{self.id}: probabilities after {road.id} exceed 1")
            if road.light_m is not None and not 0.0 <= road.light_m < math.inf:
                raise ObstructionError(f"{self.id}: a light is not on {road.id}")
            for speed in (road.limit_mps, road.usual_mps):
                if speed is not None and not 0.0 < speed < 100.0:
                    raise ObstructionError(
                        f"{self.id}: a speed of {road.id} is not in (0, 100) m/s"
                    )

    def counts_for(self, satellite: str | None) -> bool:
        """Tell whether it blocks terminals of a satellite; None: their satellite is unknown."""
        return satellite is None or self.satellite is None or self.satellite == satellite

    @property
    def covered(self) -> tuple[Road, ...]:
        """Its own covered roads, one for each direction that is driven."""
        return tuple(road for road in self.roads if road.covered_by == self.id)


def short_name(text: str) -> str:
    """Return a map's name as it can be stored: on one line, of at most `MAX_NAME` characters.

    Editors of maps let tabs and line breaks slip into names. Characters that only join or direct
    others, as in Persian names, stay.
    """
    plain = "".join(" " if unicodedata.category(one) == "Cc" else one for one in text)
    return " ".join(plain.split())[:MAX_NAME]


def road_tunnel(
    obstruction_id: str,
    axis: Line,
    *,
    into_start: Sequence[Line] = (),
    into_end: Sequence[Line] = (),
    oneway: bool = False,
    name: str = "",
    kind: str = "tunnel",
    certainty: float = 1.0,
    satellite: str | None = None,
) -> Obstruction:
    """Make an obstruction from a drawn axis and approach roads, each drawn towards its portal.

    A portal without an approach road gets a straight one of 300 m in line with the axis.
    """
    if len(axis) < 2:
        raise ObstructionError(f"{obstruction_id}: an axis has two positions or more")
    roads: list[Road] = []
    directions = [("forward", axis, into_start)]
    if not oneway:
        directions.append(("backward", axis[::-1], into_end))
    for direction, way, approaches in directions:
        inside = f"{obstruction_id}/{direction}"
        roads.append(Road(inside, way, covered_by=obstruction_id))
        for number, approach in enumerate(approaches or [_straight_approach(way)]):
            line = approach if approach[-1] == way[0] else (*approach, way[0])
            roads.append(Road(f"{inside}/{number}", line, onward=(Onward(inside, 1.0),)))
    return Obstruction(
        obstruction_id, name, kind, tuple(roads), certainty=certainty, satellite=satellite
    )


def _straight_approach(way: Line) -> Line:
    plane = Plane(way[0])
    x, y = plane.xy(way[1])
    scale = -300.0 / (math.hypot(x, y) or 1.0)
    return (plane.position(x * scale, y * scale), way[0])
