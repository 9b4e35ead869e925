"""The predictor of one terminal: fixes in, the next blockages out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import shapely

from dama.prediction.blockage import Blockage
from dama.prediction.fix import MAX_SPEED_MPS, Fix
from dama.prediction.matching import Hypothesis, Sighting, match
from dama.prediction.places import (
    METRES_PER_DEGREE,
    Line,
    Plane,
    Position,
    distance_m,
    turn_deg,
)
from dama.prediction.roadmap import ObstructionMap, Passage, Stretch, area_in_plane
from dama.prediction.speed import STANDING_MPS
from dama.prediction.track import Track, direction_of, speed_of

# How long ahead is told.
HORIZON_S = 240.0
# What is less probable is not told.
MIN_CONFIDENCE = 0.2
# Standing so long, a vehicle is parked; until then it may be at a traffic light.
PARKED_AFTER_S = 90.0
# A light that is red now is expected to be so for this much longer, and a vehicle in a queue
# halves its promise each so many seconds.
_LIGHT_S = 12.0
_LIGHT_HALVES_S = 60.0
# Straight ahead where no road is known: how far, and the spread of directions with its weights.
_BLIND_M = 1_000.0
_BLIND_S = 40.0
_FAN = ((0.0, 0.4), (4.0, 0.2), (-4.0, 0.2), (8.0, 0.1), (-8.0, 0.1))
# A route is kept so exactly, and followed so surely.
_ROUTE_M = 40.0
_ROUTE_KEPT = 0.98
# A fix so near to the far end of a cover is one from outside, just past it.
_AT_EXIT_M = 50.0
# Roads of two drawings this near and this much in line are one road.
_SAME_M = 15.0
_SAME_DEG = 30.0
# A terminal that stays blocked beyond the predicted exit is expected to do so for this part of the
# time so far longer, until that is this many times the prediction and a minute: then it was
# something else.
OVERDUE = 0.2
LOST_FACTOR = 3


@dataclass(frozen=True, slots=True)
class _Way:
    """A way into an obstruction, by road or straight ahead, and its probability."""

    obstruction_id: str
    probability: float
    approach: tuple[Stretch, ...]
    inside: tuple[Stretch, ...]


class _Route:
    """The line that a terminal will drive, prepared to be asked what it passes."""

    def __init__(self, line: Line) -> None:
        # Degrees of longitude shrunk as in the route's middle: exact enough for what is asked.
        self._shrink = max(math.cos(math.radians(line[len(line) // 2][1])), 1e-3)
        self._line = shapely.LineString([self._flat(position) for position in line])
        shapely.prepare(self._line)

    def _flat(self, position: Position) -> Position:
        return position[0] * self._shrink, position[1]

    def passes(self, place: Position) -> bool:
        """Tell whether it passes so near that it may lead there."""
        point = shapely.Point(self._flat(place))
        return bool(shapely.dwithin(self._line, point, _ROUTE_M / METRES_PER_DEGREE))


class Predictor:
    """Predicts one terminal's blockages.

    `track` is its whole state, a value; a predictor made with the same map and track goes on in
    the same way. `route`, where known, is the line that the terminal will drive.
    """

    def __init__(
        self, obstructions: ObstructionMap, track: Track | None = None, route: Line | None = None
    ) -> None:
        self.map = obstructions
        self.track = track or Track()
        self._route = _Route(route) if route else None

    def feed(self, fix: Fix) -> bool:
        """Take a fix in; False where it is not newer than the last one, and changes nothing.

        Reports made during a blockage arrive late, the newest first: the older ones say nothing
        about what is ahead.
        """
        track, last = self.track, self.track.last
        if last is not None and fix.time_ms <= last.time_ms:
            return False
        elapsed_s = (fix.time_ms - last.time_ms) / 1000.0 if last else 0.0
        travelled_m = distance_m(last.place, fix.place) if last else 0.0
        if travelled_m > MAX_SPEED_MPS * elapsed_s + 100.0:
            # No vehicle drives so: what was known is about another place.
            track, elapsed_s, travelled_m = Track(), 0.0, 0.0
        recent = track.recent_with(fix)
        speed = speed_of(fix, recent)
        course = track.course_deg
        hypotheses = track.hypotheses
        standing_since_ms = track.standing_since_ms
        if speed is None or speed < STANDING_MPS:
            # Noise has no direction and no way: it says nothing about the road.
            if standing_since_ms is None:
                standing_since_ms = fix.time_ms
        else:
            standing_since_ms = None
            course = direction_of(fix, recent)
            sighting = Sighting(fix.place, course, fix.accuracy_m, travelled_m, elapsed_s)
            hypotheses = match(self.map, hypotheses, sighting)
        pace = track.pace
        if speed is not None:
            limit = self.map.limit_mps(hypotheses[0].road_id) if hypotheses else None
            pace = pace.after(speed, elapsed_s, limit)
        self.track = Track(
            last=fix,
            pace=pace,
            standing_since_ms=standing_since_ms,
            course_deg=course,
            hypotheses=hypotheses,
            trail=track.trail_with(fix, standing=standing_since_ms is not None),
            recent=recent,
        )
        return True

    def blockages(self, now_ms: int) -> tuple[Blockage, ...]:
        """Return the blockages ahead and the present one, the next first.

        Between fixes they stay what they were at the last one: a lost fix stops no vehicle.
        """
        last = self.track.last
        if last is None:
            return ()
        wait_s, patience = self._standing(now_ms)
        best: dict[str, tuple[float, _Way]] = {}
        for way in self._ways():
            total, known = best.get(way.obstruction_id, (0.0, way))
            better = way if way.probability > known.probability else known
            best[way.obstruction_id] = (total + way.probability, better)
        found = []
        for obstruction_id, (probability, way) in best.items():
            certainty = self.map.obstructions[obstruction_id].certainty
            confidence = min(probability, 1.0) * certainty * patience
            if confidence >= MIN_CONFIDENCE:
                blockage = self._blockage(way, confidence, wait_s)
                if current := _at(blockage, now_ms):
                    found.append(current)
        return tuple(sorted(found, key=lambda blockage: (blockage.entry_ms, blockage.exit_ms)))

    def _standing(self, now_ms: int) -> tuple[float, float]:
        """Return how long a standing vehicle will wait, and what that leaves of confidence."""
        since = self.track.standing_since_ms
        if since is None:
            return 0.0, 1.0
        stood_s = max(now_ms - since, 0) / 1000.0
        if stood_s >= PARKED_AFTER_S or self.track.pace.cruise_mps is None:
            return 0.0, 0.0
        return stood_s + _LIGHT_S, 0.5 ** (stood_s / _LIGHT_HALVES_S)

    def _blockage(self, way: _Way, confidence: float, wait_s: float) -> Blockage:
        last, pace = self.track.last, self.track.pace
        assert last is not None
        since = self.track.standing_since_ms
        to_entry_s, inside_s = pace.drive(way.approach, way.inside)
        begin_ms = last.time_ms if since is None else since
        entry_ms = begin_ms + round(1000 * (wait_s + to_entry_s))
        return Blockage(
            obstruction_id=way.obstruction_id,
            entry_ms=entry_ms,
            exit_ms=entry_ms + max(round(1000 * inside_s), 1),
            confidence=confidence,
            based_on_ms=last.time_ms,
        )

    def _ways(self) -> Iterator[_Way]:
        for hypothesis, weight in self._weighed():
            if weight < MIN_CONFIDENCE / 4:
                continue
            passages = self.map.ahead(hypothesis.road_id, hypothesis.offset_m)
            for passage in passages:
                if not passage.approach and passage.inside_m < _AT_EXIT_M:
                    continue
                probability = weight * self._kept(passage)
                yield _Way(passage.obstruction_id, probability, passage.approach, passage.inside)
        yield from self._straight_ahead()

    def _weighed(self) -> Iterator[tuple[Hypothesis, float]]:
        """Yield the hypotheses, each weighed against those that contradict it.

        The same road drawn for two obstructions gives two hypotheses that share the weight and
        are both true.
        """
        hypotheses = self.track.hypotheses
        seen: dict[str, float] = {}
        for hypothesis in hypotheses:
            if hypothesis.road_id not in self.map:
                continue
            drawing = self.map.drawing(hypothesis.road_id)
            if drawing not in seen:
                seen[drawing] = math.fsum(
                    other.weight
                    for other in hypotheses
                    if self._drawn_again(other, hypotheses, drawing)
                )
            yield hypothesis, hypothesis.weight / max(1.0 - seen[drawing], 0.01)

    def _drawn_again(
        self, other: Hypothesis, hypotheses: Iterable[Hypothesis], drawing: str
    ) -> bool:
        """Tell whether a hypothesis of another drawing is where one of this drawing is."""
        if other.road_id not in self.map or self.map.drawing(other.road_id) == drawing:
            return False
        there, heading = self.map.course(other.road_id).at(other.offset_m)
        for hypothesis in hypotheses:
            if hypothesis.road_id in self.map and self.map.drawing(hypothesis.road_id) == drawing:
                here, direction = self.map.course(hypothesis.road_id).at(hypothesis.offset_m)
                if turn_deg(direction, heading) < _SAME_DEG and distance_m(here, there) < _SAME_M:
                    return True
        return False

    def _kept(self, passage: Passage) -> float:
        """Return the probability of a passage, by the route where there is one."""
        if self._route is None:
            return passage.probability
        kept = self._route.passes(passage.portal)
        return _ROUTE_KEPT if kept else min(passage.probability, 1.0 - _ROUTE_KEPT)

    def _straight_ahead(self) -> Iterator[_Way]:
        """Yield the areas that a fan of straight lines from the last fix meets."""
        track = self.track
        if track.last is None or track.course_deg is None or track.pace.cruise_mps is None:
            return
        range_m = min(_BLIND_M, _BLIND_S * max(track.pace.now_mps, track.pace.cruise_mps))
        plane = Plane(track.last.place)
        for obstruction in self.map.areas_within(track.last.place, range_m):
            area = area_in_plane(obstruction, plane)
            probability = entry_m = through_m = 0.0
            for turn, weight in _FAN:
                crossing = _crossing(area, track.course_deg + turn, range_m)
                if crossing is not None:
                    probability += weight
                    entry_m += weight * crossing[0]
                    through_m += weight * crossing[1]
            if probability > 0.0:
                yield _Way(
                    obstruction.id,
                    probability,
                    (Stretch(entry_m / probability, None),),
                    (Stretch(through_m / probability, None),),
                )


def _crossing(area: shapely.Polygon, heading: float, range_m: float) -> tuple[float, float] | None:
    """Return metres to the area and metres through it, straight ahead from the origin."""
    x, y = math.sin(math.radians(heading)), math.cos(math.radians(heading))
    origin = shapely.Point(0.0, 0.0)
    # Through to the far side, however far: only the entry has to be within range.
    far_m = range_m + float(area.hausdorff_distance(origin))
    cut = area.intersection(shapely.LineString([(0.0, 0.0), (far_m * x, far_m * y)]))
    if cut.is_empty or cut.length <= 0.0:
        return None
    parts = sorted(shapely.get_parts(cut), key=origin.distance)
    entry_m = float(origin.distance(parts[0]))
    return (entry_m, float(parts[0].length)) if entry_m <= range_m else None


def _at(blockage: Blockage, now_ms: int) -> Blockage | None:
    """Return the blockage as it stands now: overdue, perhaps, or no longer believed."""
    if blockage.entry_ms - now_ms > 1000 * HORIZON_S:
        return None
    if now_ms <= blockage.exit_ms:
        return blockage
    blocked_ms = now_ms - blockage.entry_ms
    if blocked_ms > LOST_FACTOR * (blockage.exit_ms - blockage.entry_ms) + 60_000:
        return None
    return replace(blockage, exit_ms=now_ms + round(OVERDUE * blocked_ms))
