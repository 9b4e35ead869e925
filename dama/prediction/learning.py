"""Obstructions that no map has: learned from where a terminal's link was lost."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import pairwise

from dama.prediction.obstruction import Obstruction, road_tunnel
from dama.prediction.places import (
    Line,
    Plane,
    Position,
    distance_m,
    heading_deg,
    turn_deg,
    without_repeats,
)
from dama.prediction.roadmap import ObstructionMap
from dama.prediction.track import Point, Track

KIND = "learned"
# A loss in motion covers at least this distance, at no less than this average speed.
_LEAST_M = 25.0
_LEAST_MPS = 2.0
# The time before the loss over which the vehicle has to have been moving that fast.
_BEFORE_MS = 15_000
# A track tells the place of a loss for this long after a fix.
_STALE_MS = 5_000
# Two observations are of the same obstruction if their entries and exits are at most this far apart
# and their directions agree. Exits may differ more: a link comes back later than the sky.
_SAME_ENTRY_M = 60.0
_SAME_EXIT_M = 120.0
_SAME_DEG = 45.0
# A known obstruction explains a loss that begins within this distance of its cover.
_EXPLAINED_M = 80.0
# Below this certainty it is forgotten.
_FORGOTTEN = 0.25
# An obstruction of this certainty by its map, such as a tunnel, is not corrected by passages: a
# road above it may be taken for it.
SURE = 0.99
# What the map says of one counts as so many passages; of one vehicle's own passages at most so many
# count. They count half after this time, as the drives that are remembered of a vehicle do.
_MAPPED = 4.0
_MOST_OF_VEHICLE = 5.0
_HALVED_MS = 30 * 86_400_000


@dataclass(frozen=True, slots=True)
class Observation:
    """A loss of link in motion: the way to it, and the way driven during it."""

    approach: Line
    axis: Line


@dataclass(frozen=True, slots=True)
class Learned:
    """What was observed at one place: how often the link was lost, and how often it held.

    `satellite` is the one whose terminals it was learned from, None where that is not known.
    """

    id: str
    approach: Line
    axis: Line
    lost: int = 1
    held: int = 0
    satellite: str | None = None

    @property
    def certainty(self) -> float:
        """How probably the next passage is a blockage."""
        return certainty_of(self.lost, self.held)

    @property
    def obstruction(self) -> Obstruction:
        """The obstruction to predict with; it holds for the direction it was observed in."""
        return road_tunnel(
            self.id,
            self.axis,
            into_start=[self.approach],
            oneway=True,
            kind=KIND,
            certainty=self.certainty,
            satellite=self.satellite,
        )

    def takes_from(self, satellite: str | None) -> bool:
        """Tell whether losses and passages of a satellite's terminals are counted here."""
        return self.satellite is None or self.satellite == satellite


@dataclass(frozen=True, slots=True)
class Counts:
    """How often a vehicle's link was lost at an obstruction of the map, and how often it held.

    A vehicle's later passages displace its earlier ones, so no vehicle outweighs the others.
    """

    lost: float = 0.0
    held: float = 0.0

    def after(self, lost: int, held: int, aged_ms: int) -> Counts:
        """Return the counts after further passages; the earlier ones are so old, in ms."""
        part = min(_MOST_OF_VEHICLE / max(lost + held, 1), 1.0)
        room = _MOST_OF_VEHICLE - part * (lost + held)
        kept = float(0.5 ** (max(aged_ms, 0) / _HALVED_MS))
        if kept * (self.lost + self.held) > room:
            kept = room / (self.lost + self.held)
        return Counts(kept * self.lost + part * lost, kept * self.held + part * held)

    def certainty(self, by_map: float) -> float:
        """Return how probably the next passage of an obstruction is a blockage.

        `by_map` is the certainty by the map: the mean of the prior distribution, a beta one.
        """
        if by_map >= SURE:
            return by_map
        return (_MAPPED * by_map + self.lost) / (_MAPPED + self.lost + self.held)


def certainty_of(lost: int, held: int) -> float:
    """Return how probably a blockage follows these passages, by the rule of succession."""
    return (lost + 1) / (lost + held + 2)


def observe(track: Track, lost_ms: int, restored_ms: int) -> Observation | None:
    """Return what a loss of link shows, None where the vehicle stood or its track does not tell.

    Call it once the track has a fix from after the loss. A vehicle that stands when its link
    is lost (an antenna folded away, an engine switched off) has met no obstruction of the road.
    """
    points = list(track.trail)
    if track.last is not None and (not points or points[-1].time_ms < track.last.time_ms):
        points.append(Point(track.last.time_ms, track.last.lon, track.last.lat))
    before = [point for point in points if point.time_ms <= lost_ms]
    after = [point for point in points if point.time_ms >= restored_ms]
    if len(before) < 2 or not after or restored_ms <= lost_ms:
        return None
    entry, leave = _place_at(points, lost_ms), _place_at(points, restored_ms)
    through = [p.place for p in points if lost_ms < p.time_ms < restored_ms]
    if not through and _is_back(before[-1].place, after[0].place, entry, leave):
        # It braked, stood, and started: it cannot have come further than its fixes show.
        return None
    axis = without_repeats([entry, *through, leave])
    length_m = math.fsum(distance_m(a, b) for a, b in pairwise(axis))
    if length_m < _LEAST_M or 1000.0 * length_m < _LEAST_MPS * (restored_ms - lost_ms):
        return None
    if not _was_moving(before, lost_ms, entry):
        return None
    return Observation(without_repeats([*(p.place for p in before), entry]), axis)


def _place_at(points: list[Point], time_ms: int) -> Position:
    """Return where the vehicle was at a time within the track, between two points of it."""
    for number, (first, second) in enumerate(pairwise(points)):
        if first.time_ms <= time_ms <= second.time_ms:
            # A longer gap between trail points is a loss of fix: go by its nearer edge.
            if second.time_ms - first.time_ms > 2 * _STALE_MS:
                if time_ms - first.time_ms < second.time_ms - time_ms:
                    return _gone_on(first, points[number - 1] if number else first, time_ms)
                behind = points[number + 2 :]
                return _gone_on(second, behind[0] if behind else second, time_ms)
            part = (time_ms - first.time_ms) / (second.time_ms - first.time_ms)
            plane = Plane(first.place)
            x, y = plane.xy(second.place)
            return plane.position(part * x, part * y)
    return points[-1].place


def _is_back(first: Position, second: Position, entry: Position, leave: Position) -> bool:
    """Tell whether entry and exit lie against the direction of the fixes on both sides of them."""
    if leave == entry or second == first:
        return False
    return turn_deg(heading_deg(first, second), heading_deg(entry, leave)) > 90.0


def _gone_on(edge: Point, beside: Point, time_ms: int) -> Position:
    """Return where a vehicle was a little beyond the first or last fix at a gap.

    It is taken to have moved as between that point and the one beside it: a receiver returns a
    second or two after the sky does, and loses its fix up to a second before the link is lost.
    """
    seen_ms = edge.time_ms - beside.time_ms
    beyond_ms = time_ms - edge.time_ms
    if not 0 < abs(seen_ms) <= 2 * _STALE_MS or abs(beyond_ms) > 2 * _STALE_MS:
        return edge.place
    plane = Plane(edge.place)
    x, y = plane.xy(beside.place)
    part = beyond_ms / seen_ms
    return plane.position(-part * x, -part * y)


def _was_moving(before: list[Point], lost_ms: int, entry: Position) -> bool:
    recent = [point for point in before if point.time_ms >= lost_ms - _BEFORE_MS]
    if not recent:
        return False
    under_way_s = max(lost_ms - recent[0].time_ms, 1) / 1000.0
    return distance_m(recent[0].place, entry) >= _LEAST_MPS * under_way_s and len(recent) > 1


def learn(
    known: Iterable[Learned],
    seen: Observation,
    mapped: ObstructionMap,
    *,
    new_id: str,
    satellite: str | None = None,
) -> tuple[Learned, ...]:
    """Return what is known after an observation.

    A loss at a known place is counted there, and its ends become the mean of all observations. A
    loss that an obstruction of the map explains teaches nothing. Any other becomes an obstruction
    `new_id`. `satellite` is the one that was lost: its losses are not counted at places of another
    satellite, since what hides that one stands in another direction.
    """
    known = tuple(known)
    direction = heading_deg(seen.axis[0], seen.axis[-1])
    for number, place in enumerate(known):
        if place.takes_from(satellite) and _is_same(place, seen, direction):
            return (*known[:number], _merged(place, seen), *known[number + 1 :])
    counted = {place.id for place in known if place.takes_from(satellite)}
    if _is_explained(mapped, seen.axis[0], direction, counted):
        return known
    return (*known, Learned(new_id, seen.approach, seen.axis, satellite=satellite))


def taken_in(known: Iterable[Learned], place: Learned) -> tuple[Learned, ...]:
    """Return what is known after a place that was learned elsewhere, or earlier.

    If the place is known already (by its id, or by its position and satellite), the version that
    was passed more often is kept. So taking the same place in again changes nothing.
    """
    known = tuple(known)
    seen = Observation(place.approach, place.axis)
    direction = heading_deg(place.axis[0], place.axis[-1])
    for number, one in enumerate(known):
        is_here = one.satellite == place.satellite and _is_same(one, seen, direction)
        if one.id == place.id or is_here:
            if one.lost + one.held >= place.lost + place.held:
                return known
            return (*known[:number], replace(place, id=one.id), *known[number + 1 :])
    return (*known, place)


def _is_same(place: Learned, seen: Observation, direction: float) -> bool:
    return (
        distance_m(place.axis[0], seen.axis[0]) <= _SAME_ENTRY_M
        and distance_m(place.axis[-1], seen.axis[-1]) <= _SAME_EXIT_M
        and turn_deg(heading_deg(place.axis[0], place.axis[-1]), direction) <= _SAME_DEG
    )


def _merged(place: Learned, seen: Observation) -> Learned:
    entry = _mean(place.axis[0], seen.axis[0], place.lost)
    leave = _mean(place.axis[-1], seen.axis[-1], place.lost)
    # The longer approach knows more; the axis is the first one's, its ends moved.
    approach = max(place.approach, seen.approach, key=len)
    return replace(
        place,
        approach=without_repeats([*approach[:-1], entry]),
        axis=(entry, *place.axis[1:-1], leave),
        lost=place.lost + 1,
    )


def _mean(known: Position, seen: Position, count: int) -> Position:
    plane = Plane(known)
    x, y = plane.xy(seen)
    return plane.position(x / (count + 1), y / (count + 1))


def _is_explained(
    mapped: ObstructionMap, entry: Position, direction: float, learned: Collection[str]
) -> bool:
    for near in mapped.near(entry, _EXPLAINED_M):
        cover = mapped.cover(near.road_id)
        if (
            cover is not None
            and cover not in learned
            and turn_deg(near.foot.heading_deg, direction) <= _SAME_DEG
        ):
            return True
    return False


def passed(known: Iterable[Learned], passed_id: str, *, lost: bool = False) -> tuple[Learned, ...]:
    """Return what is known after a passage on which the link held, or was lost.

    Unlikely places are dropped.
    """
    counted = (
        replace(p, lost=p.lost + lost, held=p.held + (not lost)) if p.id == passed_id else p
        for p in known
    )
    return tuple(place for place in counted if place.certainty >= _FORGOTTEN)


def passages(place: Learned, track: Track) -> Iterator[tuple[int, int]]:
    """Yield from when to when the track passed a learned place, in its direction, each time."""
    entered: int | None = None
    for point in track.trail:
        if distance_m(point.place, place.axis[0]) <= _SAME_ENTRY_M:
            entered = point.time_ms
        elif entered is not None and distance_m(point.place, place.axis[-1]) <= _SAME_ENTRY_M:
            yield entered, point.time_ms
            entered = None
