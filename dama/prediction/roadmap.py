"""The map that a track is read against: an index of roads and areas, and the ways ahead."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import shapely

from dama.prediction.obstruction import Obstruction, Onward, Road
from dama.prediction.places import METRES_PER_DEGREE, Course, Foot, Plane, Position

# Segments of one entry of the index: few, so that a long road costs no more than its near part.
_CHUNK = 8
# Roads compared with one fix at most, the nearest first: bounds the cost of dense cities.
MAX_NEAR = 24
# Branches of the road followed at most, and the least probable one that is followed.
_MAX_STEPS = 256
_LEAST = 0.03
# How far ahead is looked.
HORIZON_M = 5_000.0


@dataclass(frozen=True, slots=True)
class Near:
    """A road near a position."""

    road_id: str
    foot: Foot


@dataclass(frozen=True, slots=True)
class Stretch:
    """A length of road under one speed limit (None: unknown)."""

    length_m: float
    limit_mps: float | None


@dataclass(frozen=True, slots=True)
class Passage:
    """A way into an obstruction and through it, and how probably it is taken."""

    obstruction_id: str
    probability: float
    approach: tuple[Stretch, ...]
    inside: tuple[Stretch, ...]
    # The portal, which the longer ways of a terminal's route are compared with.
    portal: Position

    def from_m(self, offset_m: float) -> Passage:
        """Return it as it is from a place on its first road."""
        if self.approach:
            return replace(self, approach=_shortened(self.approach, offset_m))
        return replace(self, inside=_shortened(self.inside, offset_m))

    @property
    def inside_m(self) -> float:
        """Metres from the entry to the exit."""
        return math.fsum(stretch.length_m for stretch in self.inside)


def _shortened(stretches: tuple[Stretch, ...], by_m: float) -> tuple[Stretch, ...]:
    first, *rest = stretches
    return (Stretch(max(first.length_m - by_m, 0.0), first.limit_mps), *rest)


class _Branch(NamedTuple):
    """A way ahead, not yet followed to its end; the most probable, then the oldest, comes first."""

    minus_probability: float
    number: int
    road_id: str
    done_m: float
    ways: tuple[Stretch, ...]
    entered: tuple[str, int, Position] | None

    @property
    def probability(self) -> float:
        """How probably it is taken."""
        return -self.minus_probability


class ObstructionMap:
    """All obstructions, indexed by place; it never changes.

    Roads with the same id are the same road, wherever they come from. The cost of a look-up
    grows with what is near, not with what the map holds.
    """

    def __init__(self, obstructions: Iterable[Obstruction]) -> None:
        self.obstructions = {obstruction.id: obstruction for obstruction in obstructions}
        self._roads: dict[str, Road] = {}
        for obstruction in self.obstructions.values():
            for road in obstruction.roads:
                self._add(road)
        self._drawings = _drawings(self.obstructions.values())
        self._courses = {road.id: Course(road.line) for road in self._roads.values()}
        self._passages: dict[str, tuple[Passage, ...]] = {}
        self._chunks, self._tree = self._index()
        self._areas = [o for o in self.obstructions.values() if o.area]
        self._area_tree = shapely.STRtree([shapely.Polygon(o.area[0]) for o in self._areas])

    def _add(self, road: Road) -> None:
        # A road may remember a cover that is no longer on the map.
        cover = road.covered_by if road.covered_by in self.obstructions else None
        known = self._roads.get(road.id)
        onward = {step.road_id: step.probability for step in (known.onward if known else ())}
        for step in road.onward:
            onward[step.road_id] = max(step.probability, onward.get(step.road_id, 0.0))
        self._roads[road.id] = replace(
            known or road,
            covered_by=cover or (known.covered_by if known else None),
            onward=tuple(Onward(*item) for item in onward.items()),
        )

    def _index(self) -> tuple[list[tuple[str, int, int]], shapely.STRtree]:
        chunks: list[tuple[str, int, int]] = []
        boxes: list[tuple[float, float, float, float]] = []
        for road in self._roads.values():
            for first in range(0, len(road.line) - 1, _CHUNK):
                last = min(first + _CHUNK, len(road.line) - 1)
                lons, lats = zip(*road.line[first : last + 1], strict=True)
                chunks.append((road.id, first, last))
                boxes.append((min(lons), min(lats), max(lons), max(lats)))
        edges = np.array(boxes).reshape(-1, 4).T
        return chunks, shapely.STRtree(shapely.box(*edges))

    def __contains__(self, road_id: str) -> bool:
        return road_id in self._roads

    def drawing(self, road_id: str) -> str:
        """Return which drawing a road belongs to.

        Obstructions that share a road are one drawing of the world; roads of different drawings
        may be one road, drawn twice.
        """
        return self._drawings[road_id]

    def cover(self, road_id: str) -> str | None:
        """Return the obstruction that covers a road."""
        return self._roads[road_id].covered_by

    def course(self, road_id: str) -> Course:
        """Return a road's measured line."""
        return self._courses[road_id]

    def limit_mps(self, road_id: str) -> float | None:
        """Return a road's speed limit."""
        return self._roads[road_id].limit_mps

    def near(self, place: Position, radius_m: float) -> list[Near]:
        """Return the roads within so many metres, the nearest first, at most `MAX_NEAR`."""
        best: dict[str, Foot] = {}
        for entry in self._tree.query(_box(place, radius_m)):
            road_id, first, last = self._chunks[entry]
            foot = self._courses[road_id].foot(place, first, last)
            known = best.get(road_id)
            if foot.lateral_m <= radius_m and (not known or foot.lateral_m < known.lateral_m):
                best[road_id] = foot
        ordered = sorted(best.items(), key=lambda item: (item[1].lateral_m, item[0]))
        return [Near(*item) for item in ordered[:MAX_NEAR]]

    def areas_within(self, place: Position, radius_m: float) -> Iterator[Obstruction]:
        """Return the obstructions with an area that may reach within so many metres."""
        if self._areas:
            for entry in self._area_tree.query(_box(place, radius_m)):
                yield self._areas[entry]

    def reach(self, road_id: str, distance_m: float) -> dict[str, tuple[float, float]]:
        """Return the roads that begin within a distance of a road's beginning.

        With each: how far on it begins, and how probably it is taken.
        """
        found: dict[str, tuple[float, float]] = {}
        todo = [(road_id, 0.0, 1.0)]
        for _ in range(_MAX_STEPS):
            if not todo:
                break
            here, begins_m, probability = todo.pop()
            if here in found and found[here][1] >= probability:
                continue
            found[here] = (begins_m, probability)
            ends_m = begins_m + self._courses[here].length_m
            if ends_m <= distance_m:
                todo.extend(
                    (step.road_id, ends_m, probability * step.probability)
                    for step in self._roads[here].onward
                    if step.road_id in self._roads and probability * step.probability >= _LEAST
                )
        return found

    def ahead(self, road_id: str, offset_m: float) -> list[Passage]:
        """Return the passages of obstructions that begin within the horizon, on every way."""
        if road_id not in self._passages:
            # The map never changes, and many vehicles ask the same of each of its roads.
            self._passages[road_id] = tuple(self._follow(road_id))
        return [passage.from_m(offset_m) for passage in self._passages[road_id]]

    def _follow(self, road_id: str) -> Iterator[Passage]:
        """Follow a road onward from its beginning, the most probable ways first."""
        todo = [_Branch(-1.0, 0, road_id, 0.0, (), None)]
        for step in range(1, _MAX_STEPS + 1):
            if not todo:
                break
            branch = heapq.heappop(todo)
            road, course = self._roads[branch.road_id], self._courses[branch.road_id]
            entered = branch.entered
            if entered and entered[0] != road.covered_by:
                yield _passage(branch.ways, entered, branch.probability)
                entered = None
            if road.covered_by and not entered:
                entered = (road.covered_by, len(branch.ways), road.line[0])
            done_m = branch.done_m + course.length_m
            ways = (*branch.ways, Stretch(course.length_m, road.limit_mps))
            left = branch.probability
            # A way that is inside an obstruction at the horizon is followed to its exit.
            for onward in road.onward if done_m <= HORIZON_M or entered else ():
                probability = branch.probability * onward.probability
                if onward.road_id in self._roads and probability >= _LEAST:
                    left -= probability
                    heapq.heappush(
                        todo, _Branch(-probability, step, onward.road_id, done_m, ways, entered)
                    )
            if entered and left > _LEAST:
                # What the map does not follow leaves the obstruction here.
                yield _passage(ways, entered, left)


def _passage(
    ways: tuple[Stretch, ...], entered: tuple[str, int, Position], probability: float
) -> Passage:
    obstruction_id, stretches, portal = entered
    return Passage(obstruction_id, probability, ways[:stretches], ways[stretches:], portal)


def _drawings(obstructions: Iterable[Obstruction]) -> dict[str, str]:
    """Name the drawing of each road: the same for all obstructions that share roads."""
    names: dict[str, str] = {}
    members: dict[str, list[str]] = {}
    for obstruction in obstructions:
        name = obstruction.id
        members[name] = [road.id for road in obstruction.roads]
        for road_id in members[name][:]:
            other = names.get(road_id, name)
            if other != name:
                # The smaller one is renamed, so that many chained obstructions cost little.
                small, name = sorted((name, other), key=lambda n: (len(members[n]), n))
                for moved in members[small]:
                    names[moved] = name
                members[name] += members.pop(small)
            names[road_id] = name
    return names


def _box(place: Position, radius_m: float) -> shapely.Geometry:
    lon, lat = place
    north = radius_m / METRES_PER_DEGREE
    east = north / max(math.cos(math.radians(lat)), 1e-3)
    return shapely.box(lon - east, lat - north, lon + east, lat + north)


def area_in_plane(obstruction: Obstruction, plane: Plane) -> shapely.Polygon:
    """Return an obstruction's area in metres around the plane's origin."""
    shell, *holes = ([plane.xy(position) for position in ring] for ring in obstruction.area)
    return shapely.Polygon(shell, holes)
