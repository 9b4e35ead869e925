"""The map that a track is read against: an index of roads and areas, and the ways ahead."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

import numpy as np
import shapely

from dama.prediction.habits import TurnCounts
from dama.prediction.obstruction import Obstruction, Onward, Road
from dama.prediction.places import METRES_PER_DEGREE, Course, Foot, Line, Plane, Position
from dama.prediction.profile import Profile, Shape

# Segments of one entry of the index: few, so that a long road costs no more than its near part.
_CHUNK = 8
# Roads compared with one fix at most, the nearest first: bounds the cost of dense cities.
MAX_NEAR = 24
# Branches of the road followed at most, and the least probable one that is followed.
_MAX_STEPS = 256
_LEAST = 0.03
# A roundabout is so long at most. Where more of the traffic than this would come to its own way
# again, the way ends.
_ROUND_M = 300.0
_ALL = 0.999
# What is reached is kept for so many roads, and for so many distances from each.
_MOST_REACHES = 10_000
_MOST_DISTANCES = 6
# What is near is looked up once for each cell of so many degrees, with all that is so near to it
# as good receivers need; for so many cells it is kept.
_CELL_DEG = 5e-4
_AROUND_M = 40.0
_MOST_CELLS = 50_000
# How far ahead is looked.
HORIZON_M = 5_000.0
# Profiles are kept for so many ways.
_MOST_PROFILES = 20_000
# Roads looked at to find what was driven between two others.
_MOST_BETWEEN = 256
# A way is extended by so many roads, as long as so many go that way.
_MOST_ADDED = 24
_LEAST_ADDED = 0.2
# What the map says of a junction counts as so many vehicles.
_GUESS = 4.0


_Chunk: TypeAlias = tuple[float, float, float, float, str, Course, int, int]
"""A part of a road: least and most longitude and latitude, and between which of its vertices."""


class Near(NamedTuple):
    """A road near a position."""

    road_id: str
    foot: Foot


@dataclass(frozen=True, slots=True)
class Passage:
    """A way into an obstruction and through it, and how probably it is taken."""

    obstruction_id: str
    probability: float
    profile: Profile


@dataclass(frozen=True, slots=True)
class Into:
    """The passages of one obstruction on the ways ahead, and how probably one of them is taken."""

    obstruction_id: str
    probability: float
    passages: tuple[Passage, ...]


_Through: TypeAlias = tuple[float, tuple[str, ...]]
"""How probable a way through an obstruction is, and its roads."""


@dataclass(slots=True)
class _Entry:
    """A place where a way enters an obstruction, and where those who take it come out again."""

    obstruction_id: str
    probability: float
    approach: tuple[str, ...]
    # The roads from there to an exit, each with its probability.
    exits: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)

    def leave(self, probability: float, ways: tuple[str, ...]) -> None:
        """Take in that a way leaves the obstruction, at its end."""
        self.exits.append((probability, ways[len(self.approach) :]))

    def through(self, rounds: Iterable[_Round]) -> Iterator[_Through]:
        """Yield the ways from the portal to an exit, with their probabilities.

        Those that were not followed to an exit come out as the others do: whether the obstruction
        is entered does not depend on what is known of its inside. Those who come round before they
        enter it take the same ways once more.
        """
        entered = self.probability
        again: dict[int, float] = {}
        for one in rounds:
            if self.obstruction_id not in one.passed and self.approach[: len(one.way)] == one.way:
                again[len(one.way)] = again.get(len(one.way), 0.0) + one.part
        for part in again.values():
            entered *= 1.0 + part
        total = math.fsum(probability for probability, _ in self.exits)
        for probability, inside in self.exits:
            yield entered * probability / total, inside


class _Round(NamedTuple):
    """Which part of those who have come by a way to its last road come to that road again.

    `passed` are the obstructions that they drive through until then.
    """

    way: tuple[str, ...]
    part: float
    passed: frozenset[str]


class _Branch(NamedTuple):
    """A way ahead, not yet followed to its end; the most probable, then the oldest, comes first."""

    minus_probability: float
    number: int
    road_id: str
    done_m: float
    ways: tuple[str, ...]
    entered: _Entry | None
    # The roads driven so far, and the obstructions left behind: neither is driven again. A vehicle
    # that comes back is predicted when it does.
    driven: frozenset[str]
    passed: frozenset[str]

    @property
    def probability(self) -> float:
        """How probably it is taken."""
        return -self.minus_probability


class _Reach(NamedTuple):
    """What is reached within any distance from `since_m` to `until_m`: see `reach`."""

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
        self._shapes: dict[str, Shape] = {}
        self._alone: dict[str, Profile] = {}
        self._profiles: dict[tuple[tuple[str, ...], tuple[str, ...]], Profile] = {}
        self._passages: dict[str, tuple[Passage, ...]] = {}
        self._into: dict[str, tuple[Into, ...]] = {}
        self._reaches: dict[str, tuple[_Reach, ...]] = {}
        self._chunks, self._tree = self._index()
        self._cells: dict[tuple[int, int], list[_Chunk]] = {}
        covered = [road for road in self._roads.values() if road.covered_by]
        self._cover_tree = shapely.STRtree([shapely.LineString(road.line) for road in covered])
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

    def _index(self) -> tuple[list[_Chunk], shapely.STRtree]:
        chunks: list[_Chunk] = []
        for road in self._roads.values():
            for first in range(0, len(road.line) - 1, _CHUNK):
                last = min(first + _CHUNK, len(road.line) - 1)
                lons, lats = zip(*road.line[first : last + 1], strict=True)
                box = min(lons), min(lats), max(lons), max(lats)
                chunks.append((*box, road.id, self._courses[road.id], first, last))
        edges = np.array([chunk[:4] for chunk in chunks]).reshape(-1, 4).T
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

    def free_mps(self, road_id: str, offset_m: float) -> float | None:
        """Return what is driven at a place of a road, bends considered, as far as is known."""
        if self._shape(road_id).expected_mps is None:
            return None
        if road_id not in self._alone:
            self._alone[road_id] = self._profile((road_id,), ())
        return self._alone[road_id].times(offset_m, 1.0)[2]

    def near(self, place: Position, radius_m: float) -> list[Near]:
        """Return the roads within so many metres, the nearest first, at most `MAX_NEAR`."""
        best: dict[str, Foot] = {}
        lon, lat = place
        north = radius_m / METRES_PER_DEGREE
        east = north / max(math.cos(math.radians(lat)), 1e-3)
        chunks = self._cell(place) if radius_m <= _AROUND_M else self._within(_box(place, radius_m))
        west, south, east, north = lon - east, lat - north, lon + east, lat + north
        for least_lon, least_lat, most_lon, most_lat, road_id, course, first, last in chunks:
            if least_lon > east or most_lon < west or least_lat > north or most_lat < south:
                continue
            foot = course.foot_within(place, first, last, radius_m)
            if foot is not None:
                known = best.get(road_id)
                if known is None or foot.lateral_m < known.lateral_m:
                    best[road_id] = foot
        found = [Near(road_id, foot) for road_id, foot in best.items()]
        found.sort(key=_nearness)
        return found[:MAX_NEAR]

    def _cell(self, place: Position) -> list[_Chunk]:
        """Return what may be near to any place of the cell that a place is in."""
        column, row = math.floor(place[0] / _CELL_DEG), math.floor(place[1] / _CELL_DEG)
        found = self._cells.get((column, row))
        if found is None:
            middle = (column + 0.5) * _CELL_DEG, (row + 0.5) * _CELL_DEG
            # The box is as wide as its end that is nearer to a pole needs.
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

    def areas_within(self, place: Position, radius_m: float) -> Iterator[Obstruction]:
        """Return the obstructions with an area that may reach within so many metres."""
        if self._areas:
            for entry in self._area_tree.query(_box(place, radius_m)):
                yield self._areas[entry]

    def areas_crossed(self, line: shapely.LineString) -> Iterator[Obstruction]:
        """Return the obstructions with an area that a line crosses."""
        if self._areas:
            for entry in self._area_tree.query(line, predicate="intersects"):
                yield self._areas[entry]

    def covered_beside(self, line: Line, radius_m: float) -> set[int]:
        """Return which segments of a line have a covered road within so many metres.

        Or within little more: what counts is the box around each.
        """
        places = np.asarray(line, dtype=float)
        north = radius_m / METRES_PER_DEGREE
        east = north / np.maximum(np.cos(np.radians(places[:, 1])), 1e-3)
        margin = np.stack([east, np.full_like(east, north)], axis=1)
        low, high = places - margin, places + margin
        least, most = np.minimum(low[:-1], low[1:]), np.maximum(high[:-1], high[1:])
        boxes = shapely.box(least[:, 0], least[:, 1], most[:, 0], most[:, 1])
        return set(self._cover_tree.query(boxes)[0].tolist())

    def reach(self, road_id: str, distance_m: float) -> Mapping[str, tuple[float, float]]:
        """Return the roads that begin within a distance of a road's beginning.

        With each: how far on it begins, and how probably it is taken.
        """
        if distance_m < self._courses[road_id].length_m:
            return {road_id: (0.0, 1.0)}
        for known in self._reaches.get(road_id, ()):
            if known.since_m <= distance_m < known.until_m:
                return known.roads
        found: dict[str, tuple[float, float]] = {}
        # From which distance to which the same is found.
        since_m, until_m = 0.0, math.inf
        todo = [(road_id, 0.0, 1.0)]
        for _ in range(_MAX_STEPS):
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
                if step.road_id in self._roads and probability * step.probability >= _LEAST
            )
        if len(self._reaches) >= _MOST_REACHES:
            self._reaches.clear()
        kept = self._reaches.get(road_id, ())
        self._reaches[road_id] = (_Reach(since_m, until_m, found), *kept)[:_MOST_DISTANCES]
        return found

    def ahead(self, road_id: str) -> tuple[Passage, ...]:
        """Return the passages of obstructions that begin within the horizon, on every way."""
        if road_id not in self._passages:
            # The map never changes, and many vehicles ask the same of each of its roads.
            self._passages[road_id] = tuple(self._follow(road_id))
        return self._passages[road_id]

    def turned(self, counts: TurnCounts) -> ObstructionMap:
        """Return the same map with the turns that vehicles take, as far as they were counted.

        What the map itself says of a junction counts as some vehicles do.
        """
        made = copy(self)
        made._roads = self._roads | {
            road_id: replace(road, onward=_learned(road.onward, counts.of(road_id)))
            for road_id in counts
            if (road := self._roads.get(road_id)) is not None
        }
        made._passages, made._into, made._reaches = {}, {}, {}
        return made

    def turn(self, road_id: str, following: str) -> float | None:
        """Return the part of the traffic that goes on from a road to another one, None for none."""
        road = self._roads.get(road_id)
        for onward in road.onward if road else ():
            if onward.road_id == following:
                return onward.probability
        return None

    def between(self, road_id: str, following: str, most_m: float) -> tuple[str, ...] | None:
        """Return the roads from one to another, neither included: the most probable way.

        None where there is none, or none so short.
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

        Of each obstruction the first one. Where the way ends, or the map has a gap, most go on as
        the map says: behind a portal it often has no roads.
        """
        way = self._unbroken(roads)
        found: dict[str, Passage] = {}
        probability = 1.0
        if not any(self._roads[road_id].covered_by for road_id in way):
            probability = self._go_on(way)
        begins = 0
        while begins < len(way):
            cover = self._roads[way[begins]].covered_by
            ends = begins + 1
            while cover and ends < len(way) and self._roads[way[ends]].covered_by == cover:
                ends += 1
            if cover and cover not in found:
                profile = self._profile(way[:begins], way[begins:ends])
                found[cover] = Passage(cover, probability, profile)
            begins = ends
        return list(found.values())

    def _unbroken(self, roads: Sequence[str]) -> list[str]:
        """Return the roads of a way up to the horizon, or to its exit there, or to a gap."""
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
        """Extend a way as most of the traffic goes, through one cover; return how probable it is.

        Where few get to a cover so, the way stays as it is.
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
                # How a tunnel branches inside takes nothing from whether it is entered.
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
        """Return the same by obstruction."""
        if road_id not in self._into:
            by_obstruction: dict[str, list[Passage]] = {}
            for passage in self.ahead(road_id):
                by_obstruction.setdefault(passage.obstruction_id, []).append(passage)
            self._into[road_id] = tuple(
                Into(name, math.fsum(one.probability for one in passages), tuple(passages))
                for name, passages in by_obstruction.items()
            )
        return self._into[road_id]

    def _follow(self, road_id: str) -> Iterator[Passage]:
        """Follow a road onward from its beginning, the most probable ways first."""
        todo = [_Branch(-1.0, 0, road_id, 0.0, (), None, frozenset(), frozenset())]
        entries: list[_Entry] = []
        rounds: list[_Round] = []
        # By way: how probably it is taken, and how far on its last road begins.
        reached: dict[tuple[str, ...], tuple[float, float]] = {}
        for step in range(1, _MAX_STEPS + 1):
            if not todo:
                break
            branch = heapq.heappop(todo)
            road, course = self._roads[branch.road_id], self._courses[branch.road_id]
            entered, passed = branch.entered, branch.passed
            driven = branch.driven | {road.id}
            if entered and entered.obstruction_id != road.covered_by:
                entered.leave(branch.probability, branch.ways)
                passed |= {entered.obstruction_id}
                entered = None
            if road.covered_by and not entered:
                if road.covered_by in passed:
                    continue
                entered = _Entry(road.covered_by, branch.probability, branch.ways)
                entries.append(entered)
            done_m = branch.done_m + course.length_m
            ways = (*branch.ways, road.id)
            reached[ways] = branch.probability, branch.done_m
            left = branch.probability
            # A way that is inside an obstruction at the horizon is followed to its exit.
            onwards = road.onward if done_m <= HORIZON_M or entered else ()
            comes = {
                one.road_id: ways[: ways.index(one.road_id) + 1]
                for one in onwards
                if one.road_id in driven
            }
            soon = {name for name, way in comes.items() if done_m - reached[way][1] <= _ROUND_M}
            again = math.fsum(
                one.probability for one in onwards if one.road_id in comes.keys() - soon
            )
            for onward in onwards if again < _ALL else ():
                # Nobody drives round a block: who could, takes one of the other ways.
                probability = branch.probability * onward.probability / (1.0 - again)
                if onward.road_id in soon:
                    # Who comes round at once takes the ways that have been followed from there.
                    way = comes[onward.road_id]
                    seen = passed | {entered.obstruction_id} if entered else passed
                    rounds.append(_Round(way, probability / reached[way][0], seen))
                elif onward.road_id in comes:
                    continue
                elif onward.road_id in self._roads and probability >= _LEAST:
                    left -= probability
                    following = _Branch(
                        -probability,
                        step,
                        onward.road_id,
                        done_m,
                        ways,
                        entered,
                        driven,
                        passed,
                    )
                    heapq.heappush(todo, following)
            if entered and (left > _LEAST or left >= branch.probability):
                # What the map does not follow leaves the obstruction here.
                entered.leave(left, ways)
        for branch in todo:
            if branch.entered:
                branch.entered.leave(branch.probability, branch.ways)
        for entry in entries:
            for probability, inside in entry.through(rounds):
                profile = self._profile(entry.approach, inside)
                yield Passage(entry.obstruction_id, probability, profile)

    def way(self, roads: Sequence[str], obstruction_id: str) -> Profile:
        """Return the profile of roads that lead to an obstruction and, last, through it."""
        inside = len(roads)
        while inside and self._roads[roads[inside - 1]].covered_by == obstruction_id:
            inside -= 1
        return self._profile(roads[:inside], roads[inside:])

    def _shape(self, road_id: str) -> Shape:
        if road_id not in self._shapes:
            road = self._roads[road_id]
            expected_mps = road.limit_mps or road.usual_mps
            self._shapes[road_id] = Shape.of(self._courses[road_id], expected_mps)
        return self._shapes[road_id]

    def _profile(self, approach: Sequence[str], inside: Sequence[str]) -> Profile:
        key = tuple(approach), tuple(inside)
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
    """Return what follows a road by the turns that were taken, and by what the map says."""
    # A way that is not on the map can only be taken where the map leaves some of the traffic to it.
    left = 1.0 - math.fsum(one.probability for one in onward)
    counts = {name: count for name, count in taken.items() if name is not None or left > _LEAST}
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


def _box(place: Position, radius_m: float) -> shapely.Geometry:
    lon, lat = place
    north = radius_m / METRES_PER_DEGREE
    east = north / max(math.cos(math.radians(lat)), 1e-3)
    return shapely.box(lon - east, lat - north, lon + east, lat + north)


def area_in_plane(obstruction: Obstruction, plane: Plane) -> shapely.Polygon:
    """Return an obstruction's area in metres around the plane's origin."""
    shell, *holes = ([plane.xy(position) for position in ring] for ring in obstruction.area)
    return shapely.Polygon(shell, holes)
