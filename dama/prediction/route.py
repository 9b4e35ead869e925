"""A route that is known beforehand: what it passes through, and whether a vehicle keeps to it.

The route is matched to the map as a drive would be (Viterbi's algorithm over the roads near it). So
a route on a road above a tunnel, or in the other direction, does not count as a passage of it.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TypeAlias

import shapely

from dama.prediction.areas import area_of
from dama.prediction.places import (
    METRES_PER_DEGREE,
    Foot,
    Line,
    Plane,
    Position,
    distance_m,
    heading_deg,
    turn_deg,
    without_repeats,
)
from dama.prediction.profile import Profile
from dama.prediction.roadmap import ObstructionMap
from dama.prediction.route_matching import AGAINST_DEG, DRAWN_DEG, DRAWN_M, RouteMatching
from dama.prediction.track import Point, Track
from dama.prediction.ways_ahead import HORIZON_M, MOST_PASSAGES

# The route is matched to the map in steps of this length, where covered roads are this near.
_STEP_M = 20.0
_COVERS_M = 300.0
# Longer segments are gaps of the route. The most segments compared near a place, and the most steps
# matched near covered roads, bound the cost of a route; the rest is predicted as without a route.
_LEAP_M = 5_000.0
_MOST_NEAR = 256
_MOST_SAMPLES = 5_000
# The most steps matched at each request for the road ahead: some 20 ms, which block everything
# else.
_AT_ONCE = 64
# The prior probability that a vehicle keeps to its route; and how near to it the vehicle has to be.
_KEPT = 0.98
_NEAR_M = 60.0
# One standard deviation of a receiver that reports no accuracy, and how many independent fixes the
# last seconds' fixes are worth: their noise is correlated.
_NOISE_M = 6.0
_WORTH = 3.0
# Deviations up to this (in squared standard deviations) are those of a vehicle on the route.
_USUAL = 1.5
# A route may pass one place several times. Passes at least `_APART_M` apart along it are told apart
# by the track: by its last `_COMPARED` places, with up to `_MOST_PASSES` passes of each. A line
# that is more than `_BESIDE_M` further away than the nearest is no pass of the place.
_APART_M = 10.0
_BESIDE_M = 30.0
_COMPARED = 48
# The nearby segments are cached for this many places.
_MOST_NEARBY = 3 * _COMPARED
_MOST_PASSES = 12
# Between two places the route advances by their distance, or in a bend by up to `_BENT` times as
# much. One standard deviation beyond that; and the most that a difference costs, since a vehicle
# may leave its route and join it elsewhere.
_BENT = 2.0
_ALONG_M = 15.0
_MOST_UNLIKE = 16.0
# The longest way by roads between two steps of a route, and the most roads that are kept as leading
# to a passage.
_UNSEEN_M = 100.0
_MOST_ROADS = 64
# A section that the vehicle is on is matched from this far behind the vehicle.
_LEAD_M = 100.0
# A way on the map is the route's if their lengths differ by at most this much plus this part. The
# search goes up to `_LONGER` times as far. The most such ways that are cached.
_SAME_WAY_M = 50.0
_SAME_WAY = 0.1
_LONGER = 1.3
_MOST_LEADING = 64
# A part of a route that the map lacks is profiled from points that are this far apart.
_LACKING_M = 500.0
# Of the last seconds' fixes, one in this many is compared.
_RECENT_STEP = 3


@dataclass(frozen=True, slots=True)
class RoutePassage:
    """Where along a route an obstruction begins and ends, in metres from the route's beginning.

    `roads` are the map's roads that the route takes up to the exit, as far back as they are known
    without a gap.
    """

    obstruction_id: str
    entry_m: float
    exit_m: float
    roads: tuple[str, ...] = ()


Way: TypeAlias = tuple[Profile, float]
"""The profile of a way, and how far along its first road a vehicle is, in metres."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How far along its route a vehicle is, and how probably it keeps to the route."""

    offset_m: float
    probability: float


class Route:
    """A line that a terminal will drive, matched to a map on demand; line and map never change."""

    def __init__(self, line: Line, on: ObstructionMap) -> None:
        self._line = without_repeats(line)
        if len(self._line) < 2:
            self._line = (line[0], line[0])
        self._at = [0.0]
        for here, there in pairwise(self._line):
            self._at.append(self._at[-1] + distance_m(here, there))
        self._segments = [
            number
            for number, (begins, ends) in enumerate(pairwise(self._at))
            if ends - begins <= _LEAP_M
        ]
        # Without a leap at the 180th meridian: longitudes may lie beyond it.
        unbroken = [self._line[0]]
        for lon, lat in self._line[1:]:
            unbroken.append((_unbroken_lon(lon, unbroken[-1][0]), lat))
        self._tree = shapely.STRtree(
            [shapely.LineString(unbroken[n : n + 2]) for n in self._segments]
        )
        # Places this near to the line may have longitudes of the other sign.
        furthest = max(abs(lat) for _, lat in unbroken)
        beside = _NEAR_M / METRES_PER_DEGREE / max(math.cos(math.radians(furthest)), 1e-3)
        crosses = any(abs(lon) + beside > 180.0 for lon, _ in unbroken)
        self._turns = (0.0, 360.0, -360.0) if crosses else (0.0,)
        self._on = on
        self._areas = tuple(self._through_areas(shapely.LineString(unbroken)))
        # Matching takes milliseconds a kilometre, so a section is matched only when the vehicle is
        # near, and in portions.
        self._sections = tuple(self._near_covers())
        self._matching: dict[int, RouteMatching] = {}
        self._matched: dict[int, tuple[RoutePassage, ...]] = {}
        # The step of each section that its matching begins with.
        self._begun: dict[int, int] = {}
        self._lacking: dict[tuple[float, RoutePassage], Profile] = {}
        self._leading: dict[tuple[str, RoutePassage], tuple[str, ...] | None] = {}
        # The segments near places of the track, the nearest first, and the comparison with them:
        # the next fix needs most of them again.
        self._nearby: dict[Position, list[Foot]] = {}
        self._compared: _Compared | None = None

    @property
    def passages(self) -> tuple[RoutePassage, ...]:
        """All passages, in order."""
        return self._until(math.inf, at_once=_MOST_SAMPLES)

    def ahead(self, offset_m: float) -> Iterator[RoutePassage]:
        """Yield the passages that are not over, up to the horizon, in order.

        Of each obstruction only the next few are given. Sections that are not matched yet are left
        out (see `is_matched`): each call continues the matching for some milliseconds.
        """
        seen: Counter[str] = Counter()
        for passage in self._until(offset_m + HORIZON_M, offset_m, at_once=_AT_ONCE):
            if passage.exit_m > offset_m and seen[passage.obstruction_id] < MOST_PASSAGES:
                seen[passage.obstruction_id] += 1
                yield passage

    def is_matched(self, offset_m: float) -> bool:
        """Tell whether all passages from there to the horizon are known."""
        return all(
            number in self._matched
            for number, section in enumerate(self._sections)
            if section[0] <= offset_m + HORIZON_M and section[-1] + _STEP_M >= offset_m
        )

    def _until(
        self, most_m: float, least_m: float = 0.0, *, at_once: int
    ) -> tuple[RoutePassage, ...]:
        """Return the passages that begin by `most_m`, and are not all over by `least_m`."""
        found = [*self._areas]
        left = at_once
        for number, section in enumerate(self._sections):
            if section[0] <= most_m and section[-1] + _STEP_M >= least_m:
                left = self._match(number, least_m, left)
                found += self._matched.get(number, ())
        return tuple(sorted((p for p in found if p.entry_m <= most_m), key=lambda p: p.entry_m))

    def _match(self, number: int, from_m: float, at_once: int) -> int:
        """Match at most `at_once` steps of a section; return how many are left for other sections.

        Behind `from_m`, where the vehicle is, only enough is matched to tell which road it is on.
        """
        section = self._sections[number]
        first = max(bisect_right(section, from_m - _LEAD_M) - 1, 0)
        if number in self._begun and section[self._begun[number]] > max(from_m, section[0]):
            # The vehicle has gone back.
            self._matched.pop(number, None)
            self._matching.pop(number, None)
            del self._begun[number]
        if number in self._matched or not at_once:
            return at_once
        section = section[self._begun.setdefault(number, first) :]
        matching = self._matching.setdefault(number, RouteMatching(self._on, _STEP_M))
        steps = section[matching.done : matching.done + at_once]
        for at in steps:
            matching.step(self._place(at), self._heading(at))
        if matching.done == len(section):
            del self._matching[number]
            self._matched[number] = tuple(self._through_roads(section, matching.roads()))
        return at_once - len(steps)

    def progress(self, track: Track) -> Progress | None:
        """Return where on its route a vehicle is; None if it is not near, or drives against it."""
        if track.last is None:
            return None
        if len(self._nearby) >= _MOST_NEARBY:
            places = {one.place for one in (*track.trail, *track.recent)}
            self._nearby = {at: feet for at, feet in self._nearby.items() if at in places}
        feet = _passes(self._near_to(track.last.place), track.course_deg)
        if not feet:
            return None
        here = feet[0]
        if len(feet) > 1:
            unlike = self._unlike(track, feet)
            here = min(zip(unlike, feet, strict=True), key=lambda one: (one[0], one[1].offset_m))[1]
        noise = math.hypot(DRAWN_M, track.last.accuracy_m or _NOISE_M)
        near = [
            self._beside_m(point.place, here.offset_m) for point in track.recent[-1::-_RECENT_STEP]
        ]
        unusual = math.fsum((away / noise) ** 2 for away in near) / max(len(near), 1)
        if track.course_deg is not None:
            unusual += (turn_deg(here.heading_deg, track.course_deg) / DRAWN_DEG) ** 2 / _WORTH
        odds = _KEPT / (1.0 - _KEPT) * math.exp(-0.5 * _WORTH * max(unusual - _USUAL, 0.0))
        return Progress(here.offset_m, odds / (1.0 + odds))

    def _near_to(self, place: Position) -> list[Foot]:
        """Return the feet on the route's segments near a position, the nearest first."""
        found = self._nearby.get(place)
        if found is None:
            found = self._nearby[place] = sorted(self._near(place, _NEAR_M), key=_beside)
        return found

    def _near(self, place: Position, radius_m: float) -> Iterator[Foot]:
        north = radius_m / METRES_PER_DEGREE
        east = north / max(math.cos(math.radians(place[1])), 1e-3)
        lat = place[1]
        plane = Plane(place)
        for lon in (place[0] + turn for turn in self._turns):
            box = shapely.box(lon - east, lat - north, lon + east, lat + north)
            for entry in self._tree.query(box)[:_MOST_NEAR]:
                foot = self._foot(plane, self._segments[entry])
                if foot.lateral_m <= radius_m:
                    yield foot

    def _foot(self, plane: Plane, number: int) -> Foot:
        """Return the foot on one segment of a plane's origin."""
        (ax, ay), (bx, by) = plane.xy(self._line[number]), plane.xy(self._line[number + 1])
        dx, dy = bx - ax, by - ay
        square = dx * dx + dy * dy
        part = min(max(-(ax * dx + ay * dy) / square, 0.0), 1.0) if square else 0.0
        lateral = math.hypot(ax + part * dx, ay + part * dy)
        right = (ay * dx - ax * dy) / math.sqrt(square) if square else lateral
        offset = self._at[number] + part * (self._at[number + 1] - self._at[number])
        return Foot(offset, lateral, math.degrees(math.atan2(dx, dy)) % 360.0, right)

    def _unlike(self, track: Track, feet: list[Foot]) -> list[int]:
        """Return how much the track up to here differs from the route up to each of these passes.

        Viterbi's algorithm over the passes of the track's places. In variances, rounded, so that
        passes that the track does not tell apart are equal.
        """
        assert track.last is not None
        # The trail's places are further apart than a small roundabout is wide, so the last seconds
        # are compared by their fixes.
        recent = track.recent[-1 - _RECENT_STEP :: -_RECENT_STEP][::-1]
        since_ms = recent[0].time_ms if recent else track.last.time_ms
        points = tuple(one for one in track.trail if one.time_ms < since_ms)[-_COMPARED:]
        noise_m = math.hypot(DRAWN_M, track.last.accuracy_m or _NOISE_M)
        compared = self._compared
        if compared is None or (compared.points, compared.noise_m) != (points, noise_m):
            compared = _Compared(points, noise_m)
            for point in points:
                compared.step(point.place, _passes(self._near_to(point.place), None))
            # Only the trail's part can be used again: the recent fixes change each time.
            self._compared = compared
        last = compared.copy()
        for point in recent:
            last.step(point.place, _passes(self._near_to(point.place), None))
        last.step(track.last.place, feet)
        return [round(unlike) for _, unlike in last.before]

    def _beside_m(self, place: Position, around_m: float) -> float:
        """Return how far a recent place is from the route around an offset."""
        near = (f for f in self._near_to(place) if abs(f.offset_m - around_m) < 600.0)
        return next((foot.lateral_m for foot in near), _NEAR_M)

    def _place(self, offset_m: float) -> Position:
        number = min(max(bisect_right(self._at, offset_m) - 1, 0), len(self._line) - 2)
        length = self._at[number + 1] - self._at[number]
        part = min(max((offset_m - self._at[number]) / length, 0.0), 1.0) if length else 0.0
        (lon, lat), (lon2, lat2) = self._line[number], self._line[number + 1]
        return lon + part * ((lon2 - lon + 540.0) % 360.0 - 180.0), lat + part * (lat2 - lat)

    def _offset(self, place: Position, around_m: float) -> float:
        """Return where the route passes a place that it passes near an offset."""
        within_m = 2.0 * _STEP_M
        near = [f for f in self._near(place, within_m) if abs(f.offset_m - around_m) <= within_m]
        return min(near, key=lambda foot: foot.lateral_m).offset_m if near else around_m

    def _through_roads(
        self, section: list[float], matched: list[str | None]
    ) -> Iterator[RoutePassage]:
        on = self._on
        run: list[int] = []
        way: list[str] = []
        for number, road_id in enumerate([*matched, None]):
            cover = on.cover(road_id) if road_id is not None else None
            before = matched[run[0]] if run else None
            if before is not None and cover != on.cover(before):
                last = matched[run[-1]]
                assert last is not None
                entry = self._offset(on.course(before).line[0], section[run[0]])
                leave = self._offset(on.course(last).line[-1], section[run[-1]])
                obstruction = on.cover(before)
                if obstruction is not None and leave > entry:
                    roads = tuple(way) if before in way else ()
                    yield RoutePassage(obstruction, entry, leave, roads)
                run = []
            if cover is not None:
                run.append(number)
            way = self._way_on(way, road_id)

    def _way_on(self, way: list[str], road_id: str | None) -> list[str]:
        """Return a way with one more road, which may be its last one; a new way after a gap."""
        if road_id is None:
            return []
        if not way:
            return [road_id]
        if road_id == way[-1]:
            return way
        between = self._on.between(way[-1], road_id, _UNSEEN_M)
        return [road_id] if between is None else [*way, *between, road_id][-_MOST_ROADS:]

    def way_to(self, passage: RoutePassage, offset_m: float, seen_on: Iterable[str]) -> Way | None:
        """Return the way from a place of the route to a passage and through it, by its own roads.

        Where these roads do not reach back to the vehicle, the map's most probable way joins them
        to one of the roads that the vehicle seems to be on, if it is about as long as the route.
        Otherwise the result is None.
        """
        on, left_m = self._on, passage.exit_m - offset_m
        for first in range(len(passage.roads) - 1, -1, -1):
            length_m = on.course(passage.roads[first]).length_m
            if left_m <= length_m:
                roads = passage.roads[first:]
                return on.way(roads, passage.obstruction_id), length_m - left_m
            left_m -= length_m
        for road_id in seen_on if passage.roads else ():
            key = road_id, passage
            if key not in self._leading:
                if len(self._leading) >= _MOST_LEADING:
                    self._leading.clear()
                most_m = _LONGER * left_m + _UNSEEN_M
                self._leading[key] = on.between(road_id, passage.roads[0], most_m)
            between = self._leading[key]
            if between is None:
                continue
            between_m = math.fsum(on.course(one).length_m for one in between)
            length_m = on.course(road_id).length_m
            at_m = length_m + between_m - left_m
            held_m = min(max(at_m, 0.0), length_m)
            if is_as_long(left_m + at_m - held_m, left_m):
                roads = (road_id, *between, *passage.roads)
                return on.way(roads, passage.obstruction_id), held_m
        return None

    def way_by_line(self, passage: RoutePassage, offset_m: float) -> Way | None:
        """Return the way by the route's own line, where the map lacks the way to those roads."""
        known_m = math.fsum(self._on.course(road_id).length_m for road_id in passage.roads)
        begins_m = passage.exit_m - known_m
        if not passage.roads or offset_m >= begins_m:
            return None
        since_m = offset_m - offset_m % _LACKING_M
        key = since_m, passage
        if key not in self._lacking:
            if len(self._lacking) >= _MOST_LEADING:
                self._lacking.clear()
            # The last step is at least half a step long, so that it has a direction.
            steps = range(max(round((begins_m - since_m) / _STEP_M), 1))
            places = [self._place(since_m + step * _STEP_M) for step in steps]
            line = without_repeats([*places, self._place(begins_m)])
            if len(line) < 2:
                return None
            self._lacking[key] = self._on.way_behind(line, passage.roads, passage.obstruction_id)
        profile = self._lacking[key]
        return profile, profile.approach_m + profile.inside_m - (passage.exit_m - offset_m)

    def _near_covers(self) -> Iterator[list[float]]:
        """Yield the offsets to compare, section by section: where covered roads are near."""
        beside = self._on.covered_beside(self._line, _COVERS_M)
        section: list[float] = []
        left = _MOST_SAMPLES
        for number, (begins, ends) in enumerate(pairwise(self._at)):
            # A gap in a route says nothing of the roads.
            if ends - begins <= _LEAP_M and number in beside:
                steps = range(math.ceil(begins / _STEP_M), math.ceil(ends / _STEP_M))
                section += [step * _STEP_M for step in steps[:left]]
                left -= min(len(steps), left)
            elif section:
                yield section
                section = []
        if section:
            yield section

    def _heading(self, offset_m: float) -> float:
        ahead = min(offset_m + _STEP_M / 2, self._at[-1])
        return heading_deg(self._place(ahead - _STEP_M), self._place(ahead))

    def _through_areas(self, line: shapely.LineString) -> Iterator[RoutePassage]:
        west, _, east, _ = line.bounds
        for obstruction in self._on.areas.crossed(line):
            rings = (
                [(_unbroken_lon(lon, (west + east) / 2.0), lat) for lon, lat in ring]
                for ring in obstruction.area
            )
            cut = line.intersection(area_of(rings))
            for part in shapely.get_parts(cut):
                if part.length > 0.0:
                    ends = [part.coords[0], part.coords[-1]]
                    feet = [
                        min(near, key=_beside)
                        for end in ends
                        if (near := list(self._near(end, 5.0)))
                    ]
                    if len(feet) == len(ends):
                        yield RoutePassage(obstruction.id, feet[0].offset_m, feet[1].offset_m)


def is_as_long(one_m: float, other_m: float) -> bool:
    """Tell whether two lengths are near enough for a way on the map and the same one of a route."""
    return abs(one_m - other_m) <= _SAME_WAY_M + _SAME_WAY * other_m


def _unbroken_lon(lon: float, other: float) -> float:
    """Return a longitude as it is counted on from another one, across the 180th meridian too."""
    return lon - 360.0 * round((lon - other) / 360.0)


def _beside(foot: Foot) -> float:
    return foot.lateral_m


def _passes(found: Iterable[Foot], course_deg: float | None) -> list[Foot]:
    """Return the nearest foot of each pass of a route; `found` has the nearest first."""
    kept: list[Foot] = []
    for foot in found:
        if kept and foot.lateral_m > kept[0].lateral_m + _BESIDE_M:
            break
        if course_deg is not None and turn_deg(foot.heading_deg, course_deg) > AGAINST_DEG:
            continue
        if all(abs(foot.offset_m - other.offset_m) > _APART_M for other in kept):
            kept.append(foot)
            if len(kept) == _MOST_PASSES:
                break
    return kept


@dataclass(slots=True)
class _Compared:
    """The comparison of a track's places, in order, with the passes of a route near them.

    `before` are the passes of the last place that has any: the offset of each along the route, and
    how much the track up to there differs from the route up to there.
    """

    points: tuple[Point, ...]
    noise_m: float
    before: list[tuple[float, float]] = field(default_factory=list)
    _place: Position | None = None
    _moved_m: float = 0.0

    def copy(self) -> _Compared:
        """Return an independent copy, to continue from here."""
        return replace(self)

    def step(self, place: Position, passes: Iterable[Foot]) -> None:
        """Go on to the next place, and the route's passes near it.

        A place off the route has no pass: the next place on it is compared with the last one on it.
        """
        if self._place is not None:
            self._moved_m += distance_m(self._place, place)
        self._place = place
        likely_first = sorted(self.before, key=_cost)
        found = [
            (
                foot.offset_m,
                (foot.lateral_m / self.noise_m) ** 2
                + _least_unlike(likely_first, foot.offset_m, self._moved_m),
            )
            for foot in passes
        ]
        if found:
            self.before, self._moved_m = found, 0.0


def _cost(one: tuple[float, float]) -> float:
    return one[1]


def _least_unlike(before: list[tuple[float, float]], offset_m: float, moved_m: float) -> float:
    """Return the least cost of a pass, by those of the place before, the best of them first."""
    least = math.inf if before else 0.0
    for before_m, unlike in before:
        if unlike >= least:
            break
        along_m = offset_m - before_m
        away_m = max(moved_m - along_m, along_m - _BENT * moved_m, 0.0)
        least = min(least, unlike + min((away_m / _ALONG_M) ** 2, _MOST_UNLIKE))
    return least
