"""The map that a track is read against: an index of roads and areas, and the ways ahead."""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import shapely

from dama.prediction.areas import Areas
from dama.prediction.boxes import around, boxes_of, on_both_sides, tree_of, turned
from dama.prediction.habits import TurnCounts
from dama.prediction.obstruction import Obstruction, Onward, Road
from dama.prediction.paces import RoadPaces
from dama.prediction.places import METRES_PER_DEGREE, Course, Foot, Line, Position
from dama.prediction.profile import Profile, Shape
from dama.prediction.ways_ahead import HORIZON_M, LEAST, MAX_STEPS, MOST_PASSAGES, ways_ahead

# Segments per entry of the index: few, so that a long road costs no more than its near part.
_CHUNK = 8
# The most roads compared with one fix, the nearest first: bounds the cost of dense cities.
MAX_NEAR = 24
# Reachable roads are cached for this many roads, and for this many distances from each.
_MOST_REACHES = 10_000
_MOST_DISTANCES = 6
# The nearby roads are looked up once per cell of this many degrees, within this distance around it,
# which suits good receivers; they are cached for this many cells.
_CELL_DEG = 5e-4
_AROUND_M = 40.0
_MOST_CELLS = 50_000
# In a line that is not the map's, a bend that can be driven faster than this is ignored.
_SHARP_MPS = 9.0
# Profiles are cached for this many ways.
_MOST_PROFILES = 20_000
# The most roads searched to find the way between two others.
_MOST_BETWEEN = 256
# A way is extended by at most this many roads, as long as this part of the traffic goes that way.
_MOST_ADDED = 24
_LEAST_ADDED = 0.2
# What the map says of a junction counts as so many vehicles.
_GUESS = 4.0
# Learned paces are rounded to 1 / this: smaller differences do not change the predictions.
_PACE_STEPS = 20


_Chunk: TypeAlias = tuple[float, float, float, float, str, Course, int, int]
"""A part of a road: least and most longitude and latitude, and between which of its vertices."""


_Way: TypeAlias = tuple[tuple[str, ...], tuple[str, ...], tuple[float, ...]]
"""The roads to a portal and behind it, and their paces where any was learned."""


class Near(NamedTuple):
    """A road near a position."""

    road_id: str
    foot: Foot


@dataclass(frozen=True, slots=True)
class Passage:
    """A way into an obstruction and through it, and how probably it is taken.

    `number` is how many passages of the same obstruction lie before it on its way.
    """

    obstruction_id: str
    probability: float
    profile: Profile
    number: int = 0


@dataclass(frozen=True, slots=True)
class Into:
    """The passages of one obstruction and number on the ways ahead, and how probable they are."""

    obstruction_id: str
    number: int
    probability: float
    passages: tuple[Passage, ...]


class _Reach(NamedTuple):
    """The result of `reach` for all distances from `since_m` to `until_m`."""

    since_m: float
    until_m: float
    roads: Mapping[str, tuple[float, float]]


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
        # The learned speeds of roads, as parts of the expected ones.
        self._paces: dict[str, float] = {}
        self._shapes: dict[str, Shape] = {}
        self._alone: dict[str, Profile] = {}
        self._profiles: dict[_Way, Profile] = {}
        self._passages: dict[str, tuple[Passage, ...]] = {}
        self._into: dict[str, tuple[Into, ...]] = {}
        self._reaches: dict[str, tuple[_Reach, ...]] = {}
        self._chunks, self._tree = self._index()
        self._cells: dict[tuple[int, int], list[_Chunk]] = {}
        covered = [road for road in self._roads.values() if road.covered_by]
        self._cover_tree = tree_of([box for road in covered for box in boxes_of(road.line)])
        self.areas = Areas(self.obstructions.values())

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

    def _index(self) -> tuple[list[_Chunk], shapely.STRtree]:
        chunks: list[_Chunk] = []
        for road in self._roads.values():
            for first in range(0, len(road.line) - 1, _CHUNK):
                last = min(first + _CHUNK, len(road.line) - 1)
                chunks.extend(
                    (*box, road.id, self._courses[road.id], first, last)
                    for box in boxes_of(road.line[first : last + 1])
                )
        return chunks, tree_of([chunk[:4] for chunk in chunks])

    def __contains__(self, road_id: str) -> bool:
        return road_id in self._roads

    def drawing(self, road_id: str) -> str:
        """Return which drawing a road belongs to.

        Obstructions that share a road belong to one drawing. Roads of different drawings may be the
        same road, drawn twice.
        """
        return self._drawings[road_id]

    def cover(self, road_id: str) -> str | None:
        """Return the obstruction that covers a road."""
        return self._roads[road_id].covered_by

    def course(self, road_id: str) -> Course:
        """Return a road's measured line."""
        return self._courses[road_id]

    def free_mps(self, road_id: str, offset_m: float) -> float | None:
        """Return the free speed at a place of a road, bends considered; None if unknown."""
        if self._shape(road_id).expected_mps is None:
            return None
        if road_id not in self._alone:
            self._alone[road_id] = self._profile((road_id,), ())
        return self._alone[road_id].times(offset_m, 1.0)[2]

    def expected_s(
        self, roads: Sequence[str], from_m: float, to_m: float, factor: float = 1.0
    ) -> float:
        """Return the seconds from a place on the first of some roads to one on the last.

        They are for a vehicle that drives at `factor` of the expected speeds.
        """
        whole_s = self._profile(roads, ()).times(from_m, factor)[0]
        return whole_s - self._profile(roads[-1:], ()).times(to_m, factor)[0]

    def near(self, place: Position, radius_m: float) -> list[Near]:
        """Return the roads within so many metres, the nearest first, at most `MAX_NEAR`."""
        best: dict[str, Foot] = {}
        for same in on_both_sides(place, radius_m):
            self._compare(same, radius_m, best)
        found = [Near(road_id, foot) for road_id, foot in best.items()]
        found.sort(key=_nearness)
        return found[:MAX_NEAR]

    def _compare(self, place: Position, radius_m: float, best: dict[str, Foot]) -> None:
        """Replace the best known feet of the roads near a place by nearer ones."""
        lon, lat = place
        north = radius_m / METRES_PER_DEGREE
        east = north / max(math.cos(math.radians(lat)), 1e-3)
        chunks = (
            self._cell(place) if radius_m <= _AROUND_M else self._within(around(place, radius_m))
        )
        west, south, east, north = lon - east, lat - north, lon + east, lat + north
        for least_lon, least_lat, most_lon, most_lat, road_id, course, first, last in chunks:
            if least_lon > east or most_lon < west or least_lat > north or most_lat < south:
                continue
            foot = course.foot_within(place, first, last, radius_m)
            if foot is not None:
                known = best.get(road_id)
                if known is None or foot.lateral_m < known.lateral_m:
                    best[road_id] = foot

    def _cell(self, place: Position) -> list[_Chunk]:
        """Return the parts of roads that may be near to any place of a place's cell."""
        column, row = math.floor(place[0] / _CELL_DEG), math.floor(place[1] / _CELL_DEG)
        found = self._cells.get((column, row))
        if found is None:
            middle = (column + 0.5) * _CELL_DEG, (row + 0.5) * _CELL_DEG
            # A degree of longitude is shortest at the end nearer to a pole: go by that.
            lat = min(abs(middle[1]) + _CELL_DEG, 90.0)
            north = _CELL_DEG / 2 + _AROUND_M / METRES_PER_DEGREE
            east = _CELL_DEG / 2 + _AROUND_M / METRES_PER_DEGREE / max(
                math.cos(math.radians(lat)), 1e-3
            )
            box = shapely.box(
                middle[0] - east, middle[1] - north, middle[0] + east, middle[1] + north
            )
            if len(self._cells) >= _MOST_CELLS:
                self._cells.clear()
            found = self._cells[column, row] = self._within(box)
        return found

    def _within(self, box: shapely.Geometry) -> list[_Chunk]:
        return [self._chunks[entry] for entry in self._tree.query(box)]

    def covered_beside(self, line: Line, radius_m: float) -> set[int]:
        """Return which segments of a line have a covered road within this many metres.

        Some that are a little further away are included: the box around each decides.
        """
        places = np.asarray(line, dtype=float)
        north = radius_m / METRES_PER_DEGREE
        east = north / np.maximum(np.cos(np.radians(places[:, 1])), 1e-3)
        margin = np.stack([east, np.full_like(east, north)], axis=1)
        begin, end = places[:-1], places[1:].copy()
        # A segment across the 180th meridian goes on beyond it.
        end[:, 0] += 360.0 * np.round((begin[:, 0] - end[:, 0]) / 360.0)
        least = np.minimum(begin - margin[:-1], end - margin[1:])
        most = np.maximum(begin + margin[:-1], end + margin[1:])
        found: set[int] = set()
        for turn, of in turned(least[:, 0], most[:, 0]):
            low, high = least[of] + (turn, 0.0), most[of] + (turn, 0.0)
            boxes = shapely.box(low[:, 0], low[:, 1], high[:, 0], high[:, 1])
            found.update(of[self._cover_tree.query(boxes)[0]].tolist())
        return found

    def reach(self, road_id: str, distance_m: float) -> Mapping[str, tuple[float, float]]:
        """Return the roads that begin within a distance of a road's beginning.

        Each comes with the distance at which it begins and the probability that it is taken.
        """
        if distance_m < self._courses[road_id].length_m:
            return {road_id: (0.0, 1.0)}
        for known in self._reaches.get(road_id, ()):
            if known.since_m <= distance_m < known.until_m:
                return known.roads
        found: dict[str, tuple[float, float]] = {}
        # The range of distances that give the same result.
        since_m, until_m = 0.0, math.inf
        todo = [(road_id, 0.0, 1.0)]
        for _ in range(MAX_STEPS):
            if not todo:
                break
            here, begins_m, probability = todo.pop()
            if here in found and found[here][1] >= probability:
                continue
            found[here] = (begins_m, probability)
            ends_m = begins_m + self._courses[here].length_m
            if ends_m > distance_m:
                until_m = min(until_m, ends_m)
                continue
            since_m = max(since_m, ends_m)
            todo.extend(
                (step.road_id, ends_m, probability * step.probability)
                for step in self._roads[here].onward
                if step.road_id in self._roads and probability * step.probability >= LEAST
            )
        if len(self._reaches) >= _MOST_REACHES:
            self._reaches.clear()
        kept = self._reaches.get(road_id, ())
        self._reaches[road_id] = (_Reach(since_m, until_m, found), *kept)[:_MOST_DISTANCES]
        return found

    def ahead(self, road_id: str) -> tuple[Passage, ...]:
        """Return the passages of obstructions that begin within the horizon, on every way."""
        if road_id not in self._passages:
            # The map never changes, and many vehicles need the same roads.
            self._passages[road_id] = tuple(
                Passage(
                    way.obstruction_id,
                    way.probability,
                    self._profile(way.approach, way.inside),
                    way.number,
                )
                for way in ways_ahead(road_id, self._roads, self._courses)
            )
        return self._passages[road_id]

    def turned(self, counts: TurnCounts) -> ObstructionMap:
        """Return the same map with the turns that vehicles were counted to take.

        The map's own division of traffic at a junction counts as `_GUESS` vehicles.
        """
        made = copy(self)
        made._roads = self._roads | {
            road_id: replace(road, onward=_learned(road.onward, counts.of(road_id)))
            for road_id in counts
            if (road := self._roads.get(road_id)) is not None
        }
        made._passages, made._into, made._reaches = {}, {}, {}
        return made

    def paced(self, paces: RoadPaces) -> ObstructionMap:
        """Return the same map with the speeds that vehicles were seen to drive."""
        made = copy(self)
        made._paces = {
            road_id: steps / _PACE_STEPS
            for road_id in paces
            if (steps := round(_PACE_STEPS * paces.of(road_id))) != _PACE_STEPS
            and road_id in self._roads
        }
        if made._paces != self._paces:
            made._shapes, made._alone = {}, {}
            made._passages, made._into = {}, {}
        return made

    def pace(self, road_id: str) -> float:
        """Return the speed on a road at this hour, as a part of what the map expects."""
        return self._paces.get(road_id, 1.0)

    def turn(self, road_id: str, following: str) -> float | None:
        """Return the part of the traffic that goes on from a road to another one, None for none."""
        road = self._roads.get(road_id)
        for onward in road.onward if road else ():
            if onward.road_id == following:
                return onward.probability
        return None

    def between(self, road_id: str, following: str, most_m: float) -> tuple[str, ...] | None:
        """Return the roads of the most probable way from one to another, neither included.

        None if there is no way of at most `most_m`.
        """
        if road_id not in self._roads or following not in self._roads:
            return None
        todo: list[tuple[float, int, float, str, tuple[str, ...]]] = [(-1.0, 0, 0.0, road_id, ())]
        seen: set[str] = set()
        for step in range(1, _MOST_BETWEEN + 1):
            if not todo:
                return None
            minus, _, done_m, here, ways = heapq.heappop(todo)
            if here == following and ways:
                return ways[1:]
            if here in seen:
                continue
            seen.add(here)
            length_m = self._courses[here].length_m if ways else 0.0
            if done_m + length_m > most_m:
                continue
            for onward in self._roads[here].onward:
                if onward.road_id in self._roads:
                    probability = minus * onward.probability
                    heapq.heappush(
                        todo,
                        (probability, step, done_m + length_m, onward.road_id, (*ways, here)),
                    )
        return None

    def along(self, roads: Sequence[str]) -> list[Passage]:
        """Return the passages of obstructions on a way that is surely driven, up to the horizon.

        Where the way ends or has a gap on the map, it is extended as most of the traffic goes:
        behind a portal, maps often have no roads.
        """
        way = self._unbroken(roads)
        found: list[Passage] = []
        numbers: Counter[str] = Counter()
        probability = 1.0
        if not any(self._roads[road_id].covered_by for road_id in way):
            probability = self._go_on(way)
        begins = 0
        while begins < len(way):
            cover = self._roads[way[begins]].covered_by
            ends = begins + 1
            while cover and ends < len(way) and self._roads[way[ends]].covered_by == cover:
                ends += 1
            if cover and numbers[cover] < MOST_PASSAGES:
                profile = self._profile(way[:begins], way[begins:ends])
                found.append(Passage(cover, probability, profile, numbers[cover]))
                numbers[cover] += 1
            begins = ends
        return found

    def _unbroken(self, roads: Sequence[str]) -> list[str]:
        """Return the roads of a way up to a gap, or the horizon, or the exit of a cover there."""
        way: list[str] = []
        done_m = 0.0
        for road_id in roads:
            road = self._roads.get(road_id)
            if road is None or (way and self.turn(way[-1], road_id) is None):
                break
            if done_m > HORIZON_M and not road.covered_by:
                break
            way.append(road_id)
            done_m += self._courses[road_id].length_m
        return way

    def _go_on(self, way: list[str]) -> float:
        """Extend a way as most of the traffic goes, through one cover; return its probability.

        If only a small part of the traffic reaches a cover that way, the way stays as it is.
        """
        added: list[str] = []
        probability, is_inside = 1.0, False
        here = way[-1] if way else None
        while here is not None and len(added) < _MOST_ADDED:
            onward = [one for one in self._roads[here].onward if one.road_id in self._roads]
            best = max(onward, key=lambda one: one.probability, default=None)
            covered = best is not None and bool(self._roads[best.road_id].covered_by)
            if best is None or (is_inside and not covered) or best.road_id in added:
                break
            if not is_inside:
                # Branches inside a tunnel do not change the probability of entering it.
                probability *= best.probability
                if probability < _LEAST_ADDED:
                    return 1.0
            is_inside = is_inside or covered
            added.append(best.road_id)
            here = best.road_id
        if not is_inside:
            return 1.0
        way += added
        return probability

    def into(self, road_id: str) -> tuple[Into, ...]:
        """Return the passages ahead of a road, by obstruction and number."""
        if road_id not in self._into:
            together: dict[tuple[str, int], list[Passage]] = {}
            for passage in self.ahead(road_id):
                together.setdefault((passage.obstruction_id, passage.number), []).append(passage)
            self._into[road_id] = tuple(
                Into(*which, math.fsum(one.probability for one in passages), tuple(passages))
                for which, passages in together.items()
            )
        return self._into[road_id]

    def way(self, roads: Sequence[str], obstruction_id: str) -> Profile:
        """Return the profile of roads that lead to an obstruction and, last, through it."""
        inside = self._portal(roads, obstruction_id)
        return self._profile(roads[:inside], roads[inside:])

    def way_behind(self, line: Line, roads: Sequence[str], obstruction_id: str) -> Profile:
        """Return the profile of roads that follow a line that the map lacks.

        The line is taken to be as fast as the first of the roads. Its slight bends are ignored,
        since it may be drawn inexactly.
        """
        inside = self._portal(roads, obstruction_id)
        shapes = [self._shape(road_id) for road_id in roads]
        course = Course(line)
        lacking = Shape.of(course, shapes[0].expected_mps)
        lacking.begins_mps[lacking.begins_mps > _SHARP_MPS] = math.inf
        length_m = math.fsum(self._courses[road_id].length_m for road_id in roads)
        inside_m = math.fsum(self._courses[road_id].length_m for road_id in roads[inside:])
        return Profile(
            [lacking, *shapes[:inside]],
            shapes[inside:],
            course.length_m + length_m - inside_m,
            inside_m,
        )

    def _portal(self, roads: Sequence[str], obstruction_id: str) -> int:
        """Return the place of the first of the last roads that an obstruction covers."""
        inside = len(roads)
        while inside and self._roads[roads[inside - 1]].covered_by == obstruction_id:
            inside -= 1
        return inside

    def _shape(self, road_id: str) -> Shape:
        if road_id not in self._shapes:
            road = self._roads[road_id]
            expected_mps = road.limit_mps or road.usual_mps
            if expected_mps is not None:
                expected_mps *= self.pace(road_id)
            self._shapes[road_id] = Shape.of(self._courses[road_id], expected_mps, road.light_m)
        return self._shapes[road_id]

    def _profile(self, approach: Sequence[str], inside: Sequence[str]) -> Profile:
        # Maps that differ in paces share the profiles of ways whose paces are the same.
        paces = tuple(map(self.pace, (*approach, *inside))) if self._paces else ()
        key = tuple(approach), tuple(inside), paces
        known = self._profiles.get(key)
        if known is None:
            if len(self._profiles) >= _MOST_PROFILES:
                self._profiles.clear()
            known = self._profiles[key] = Profile(
                [self._shape(road_id) for road_id in approach],
                [self._shape(road_id) for road_id in inside],
                math.fsum(self._courses[road_id].length_m for road_id in approach),
                math.fsum(self._courses[road_id].length_m for road_id in inside),
            )
        return known


def _learned(onward: Sequence[Onward], taken: Mapping[str | None, float]) -> tuple[Onward, ...]:
    """Return the roads that follow a road, by the counted turns and the map's division."""
    # Turns off the map count only where the map's probabilities leave some traffic to them.
    left = 1.0 - math.fsum(one.probability for one in onward)
    counts = {name: count for name, count in taken.items() if name is not None or left > LEAST}
    total = _GUESS + math.fsum(counts.values())
    return tuple(
        Onward(one.road_id, (_GUESS * one.probability + counts.get(one.road_id, 0.0)) / total)
        for one in onward
    )


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


def _nearness(near: Near) -> tuple[float, str]:
    return near.foot.lateral_m, near.road_id
