"""The predictor of one terminal: fixes in, the next blockages out."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

from dama.prediction.arrival import arrivals, of_ways
from dama.prediction.blockage import Blockage
from dama.prediction.driven import driven_on, driven_since
from dama.prediction.fix import MAX_SPEED_MPS, Fix
from dama.prediction.forecast import JUDGED_S, MOST_S, Errors, Forecast
from dama.prediction.habits import MOST_DRIVES, MOST_ROADS, OVERLAP, Habits
from dama.prediction.matching import Hypothesis, Sighting, drift_after, match, weighed
from dama.prediction.paces import LEAST_PACE, MOST_PACE, Stretch
from dama.prediction.places import Line, distance_m
from dama.prediction.profile import Profile
from dama.prediction.roadmap import Into, ObstructionMap
from dama.prediction.route import Route, is_as_long
from dama.prediction.speed import KNOWN_S, STANDING_MPS, Pace
from dama.prediction.straight_ahead import straight_ahead
from dama.prediction.track import Point, Track, direction_of, speed_of
from dama.prediction.ways_by_habit import WaysByHabit

# How far ahead blockages are reported.
HORIZON_S = 240.0
# Blockages that are less probable are not reported.
MIN_CONFIDENCE = 0.2
# A vehicle that has stood for this long is parked; until then it may be at a traffic light.
PARKED_AFTER_S = 90.0
# A drive is over when the vehicle has stood, or has sent no fix, for this long: the longest road
# tunnels take a quarter of an hour.
ENDED_STANDING_MS = 5 * 60_000
ENDED_SILENT_MS = 20 * 60_000
# Sums of the same probabilities in a different order differ by less than this.
_ALMOST = 1.0 - 1e-9
# A standing vehicle has moved if it is this many standard deviations from its last matched place.
_CREPT = 4.0
# While a vehicle stands, the confidence of its blockages halves in this time.
_LIGHT_HALVES_S = 60.0
# The least probability of a road at which the vehicle's speed says how it drives there.
_SURELY = 0.6
# The times of a blockage are taken from this many ways, the most probable ones, and from none less
# probable than this part of the first.
_MOST_WAYS = 4
_LEAST_WAY = 0.15
# The way ahead of a road is searched if the vehicle is on it with at least this probability.
_LEAST_WEIGHT = 0.02
# A fix this near to the far end of a cover was made outside, just past it.
_AT_EXIT_M = 50.0
# A terminal that is blocked beyond the predicted exit is expected to stay blocked for another
# `OVERDUE` of the time so far. Beyond `LOST_FACTOR` times the predicted duration plus a minute the
# prediction is dropped: something else blocks it.
OVERDUE = 0.2
LOST_FACTOR = 3


class _Way(NamedTuple):
    """A way into an obstruction, by road or straight ahead, and its probability.

    `number` is how often the vehicle passes the same obstruction before it, from here on;
    `by_route` says that the known route leads into it.
    """

    obstruction_id: str
    probability: float
    profile: Profile
    offset_m: float
    number: int = 0
    by_route: bool = False

    @property
    def to_entry_m(self) -> float:
        """Metres to the portal."""
        return max(self.profile.approach_m - self.offset_m, 0.0)

    @property
    def inside_m(self) -> float:
        """Metres from the portal, or from here if that is behind, to the exit."""
        whole_m = self.profile.approach_m + self.profile.inside_m
        return min(whole_m - self.offset_m, self.profile.inside_m)

    @property
    def is_at_exit(self) -> bool:
        """Whether so little of it is left that the fix may have been made just past it."""
        return self.to_entry_m == 0.0 and self.inside_m < _AT_EXIT_M


class Predictor:
    """Predicts one terminal's blockages.

    `track` and `habits` are its whole state, as immutable values: a predictor made with the same
    map and state continues in the same way. `route`, where known, is the line that the terminal
    will drive.
    """

    def __init__(
        self,
        obstructions: ObstructionMap,
        track: Track | None = None,
        route: Line | None = None,
        habits: Habits | None = None,
    ) -> None:
        self.map = obstructions
        self.track = track or Track()
        self.habits = habits or Habits()
        # How many roads are remembered at most.
        self.most_roads = MOST_DRIVES * MOST_ROADS
        self._line = route
        self._by_habit = WaysByHabit(obstructions)

    @cached_property
    def _route(self) -> Route | None:
        """The route over the map. A long one takes tens of ms, so it is made when it is needed."""
        return Route(self._line, self.map) if self._line else None

    def feed(self, fix: Fix) -> bool:
        """Take a fix in. Return False for one that says nothing of the way ahead, and ignore it.

        A fix that is not later than the last one is ignored: whoever has late ones feeds a
        predictor of an earlier state with them. So are those of a receiver that has lost its
        satellites.
        """
        track, last = self.track, self.track.last
        if last is not None and fix.time_ms <= last.time_ms:
            return False
        if last is not None and not track.receiver.measures(last, fix):
            return False
        elapsed_s = (fix.time_ms - last.time_ms) / 1000.0 if last else 0.0
        if last is not None and leaps(last, fix):
            # No vehicle moves that fast: the earlier fixes are of another place.
            self.end_drive()
            track, elapsed_s = Track(), 0.0
        if 1000.0 * elapsed_s >= ENDED_SILENT_MS:
            track = self.end_drive()
        recent = track.recent_with(fix)
        speed = speed_of(fix, recent)
        course = track.course_deg
        hypotheses = track.hypotheses
        standing_since_ms = track.standing_since_ms
        matched = track.matched
        stands = speed is None or speed < STANDING_MPS
        if stands and standing_since_ms is None:
            standing_since_ms = fix.time_ms
        if not stands:
            standing_since_ms = None
            course = direction_of(fix, recent)
        moved_m = distance_m(matched.place, fix.place) if matched else 0.0
        # While a vehicle stands, fixes are noise and say nothing about the road; but it may have
        # crept, or moved between two fixes.
        heading = None if stands else course
        moving_s = _moving_s(matched, fix, moved_m)
        drift = track.drift
        sighting = Sighting(fix.place, heading, fix.accuracy_m, moved_m, moving_s, drift)
        if not stands or moved_m > _CREPT * sighting.noise_m:
            expected = self._by_habit.expected(track, self.habits)
            hypotheses = match(self.map, hypotheses, sighting, expected)
            matched = Point(fix.time_ms, fix.lon, fix.lat)
        driven, sure = track.driven, track.sure
        if hypotheses is not track.hypotheses and hypotheses and hypotheses[0].weight >= _SURELY:
            drift = drift_after(drift, hypotheses)
            since_m = distance_m(sure.place, fix.place) if sure else 0.0
            driven = driven_on(self.map, driven, hypotheses[0].road_id, since_m)
            sure = matched
        pace, stretch, paces = track.pace, track.stretch, track.paces
        if speed is not None:
            free_mps = self._free_mps(hypotheses)
            pace = pace.after(speed, elapsed_s, free_mps)
            if free_mps is not None:
                road_id = hypotheses[0].road_id
                expected_s = elapsed_s * speed * self.map.pace(road_id) / free_mps
                before = stretch
                stretch = before.further(road_id, elapsed_s, expected_s, stands=stands)
                if before.road_id != road_id and before.pace is not None:
                    paces = {**paces, before.road_id: before.pace}
                if elapsed_s > KNOWN_S:
                    paces = {**paces, **self._unseen(driven, hypotheses[0], elapsed_s)}
        forecast, errors = self._forecast(fix, hypotheses, driven, pace, stands=stands)
        self.track = Track(
            last=fix,
            pace=pace,
            standing_since_ms=standing_since_ms,
            course_deg=course,
            hypotheses=hypotheses,
            matched=matched,
            trail=track.trail_with(fix, standing=standing_since_ms is not None),
            recent=recent,
            driven=driven,
            sure=sure,
            stretch=stretch,
            paces=paces,
            drift=drift,
            forecast=forecast,
            errors=errors,
            receiver=track.receiver.after(last, fix) if last else track.receiver,
        )
        if len(driven) >= MOST_ROADS:
            self.end_drive(keep=OVERLAP)
        elif standing_since_ms is not None and fix.time_ms - standing_since_ms >= ENDED_STANDING_MS:
            self.end_drive()
        return True

    def _forecast(
        self,
        fix: Fix,
        hypotheses: tuple[Hypothesis, ...],
        driven: tuple[str, ...],
        pace: Pace,
        *,
        stands: bool,
    ) -> tuple[Forecast | None, Errors]:
        """Return the forecast of the next seconds, and the errors with the last one's counted in.

        Lights and queues are left out: they are predicted by rules of their own.
        """
        made, errors = self.track.forecast, self.track.errors
        if stands or pace.slow_s:
            return None, errors
        if self._free_mps(hypotheses) is None or driven[-1:] != (hypotheses[0].road_id,):
            return made, errors
        here = hypotheses[0]
        if made is not None:
            taken_s = (fix.time_ms - made.time_ms) / 1000.0
            if taken_s < JUDGED_S:
                return made, errors
            roads = driven_since(driven, made.road_id)
            if taken_s <= MOST_S and roads and all(road_id in self.map for road_id in roads):
                expected_s = self.map.expected_s(roads, made.offset_m, here.offset_m, made.factor)
                errors = errors.after(expected_s, taken_s)
        factor = pace.factor(is_known=True)
        return Forecast(fix.time_ms, here.road_id, here.offset_m, factor), errors

    def _unseen(
        self, driven: tuple[str, ...], here: Hypothesis, elapsed_s: float
    ) -> dict[str, float]:
        """Return the paces of the covered roads that were driven since the last fix."""
        there = self.track.hypotheses[0] if self.track.hypotheses else None
        if there is None or there.weight < _SURELY or there.road_id not in driven:
            return {}
        roads = driven_since(driven, there.road_id)
        # Roads of an earlier map may have gone.
        if not all(road_id in self.map for road_id in roads):
            return {}
        covered = [road_id for road_id in roads[1:-1] if self.map.cover(road_id)]
        if not covered:
            return {}
        expected_s = self.map.expected_s(roads, there.offset_m, here.offset_m)
        # A vehicle that took much longer was held up inside.
        pace = expected_s / elapsed_s
        known = {road_id: pace * self.map.pace(road_id) for road_id in covered}
        return {road_id: part for road_id, part in known.items() if LEAST_PACE <= part <= MOST_PACE}

    def end_drive(self, *, keep: int = 0) -> Track:
        """Remember the drive so far; return the track, which goes on with the last few roads."""
        track = self.track
        if track.driven and track.last is not None:
            paces = dict(track.paces)
            if track.stretch.pace is not None:
                paces[track.stretch.road_id] = track.stretch.pace
            self.habits = self.habits.after(
                track.driven, track.last.time_ms, self.most_roads, paces
            )
            driven = track.driven[-keep:] if keep else ()
            kept = {road_id: paces[road_id] for road_id in driven if road_id in paces}
            stretch = track.stretch if keep else Stretch()
            self.track = replace(track, driven=driven, stretch=stretch, paces=kept)
        return self.track

    def blockages(self, now_ms: int) -> tuple[Blockage, ...]:
        """Return the blockages ahead and the present one, the next first.

        Between fixes they stay what they were at the last one: a lost fix stops no vehicle.
        """
        last = self.track.last
        if last is None:
            return ()
        patience = self._patience(now_ms)
        if patience == 0.0:
            return ()
        into: dict[tuple[str, int], list[_Way]] = {}
        for way in self._ways(patience):
            into.setdefault((way.obstruction_id, way.number), []).append(way)
        found = []
        for (obstruction_id, _), ways in into.items():
            certainty = self.map.obstructions[obstruction_id].certainty
            probability = math.fsum(way.probability for way in ways)
            confidence = min(probability, 1.0) * certainty * patience
            if confidence >= MIN_CONFIDENCE:
                blockage = self._blockage(ways, confidence, now_ms)
                if current := _at(blockage, now_ms):
                    found.append(current)
        return tuple(sorted(found, key=lambda blockage: (blockage.entry_ms, blockage.exit_ms)))

    def _free_mps(self, hypotheses: tuple[Hypothesis, ...]) -> float | None:
        """Return the free speed where the vehicle is; None if its place is not known."""
        if not hypotheses or hypotheses[0].weight < _SURELY:
            return None
        here = hypotheses[0]
        # A vehicle that stands may still be on a road of an earlier map.
        return self.map.free_mps(here.road_id, here.offset_m) if here.road_id in self.map else None

    def _stood_s(self, now_ms: int) -> float | None:
        since = self.track.standing_since_ms
        return None if since is None else max(now_ms - since, 0) / 1000.0

    def _patience(self, now_ms: int) -> float:
        """Return the factor by which standing reduces confidence, 0 to 1."""
        stood_s = self._stood_s(now_ms)
        if stood_s is None:
            return 1.0
        if stood_s >= PARKED_AFTER_S or self.track.pace.cruise_mps is None:
            return 0.0
        return float(0.5 ** (stood_s / _LIGHT_HALVES_S))

    def _blockage(self, ways: list[_Way], confidence: float, now_ms: int) -> Blockage:
        """Return the blockage that comes by one of these ways."""
        last = self.track.last
        assert last is not None
        stood_s = self._stood_s(now_ms)
        from_ms = last.time_ms if stood_s is None else max(now_ms, last.time_ms)
        ways.sort(key=lambda way: -way.probability)
        least = _LEAST_WAY * ways[0].probability
        by_way = [
            arrivals(
                self.track.pace,
                self.track.errors,
                way.profile,
                way.offset_m,
                stood_s,
                way.probability,
            )
            for way in ways[:_MOST_WAYS]
            if way.probability >= least
        ]

        def moment(seconds: float) -> int:
            return from_ms + round(1000 * seconds)

        enters = of_ways(
            [[(entry_s, part, known) for part, entry_s, _, known in points] for points in by_way]
        )
        leaves = of_ways(
            [[(exit_s, part, known) for part, _, exit_s, known in points] for points in by_way]
        )
        entry_ms = moment(enters.p50_s)
        return Blockage(
            obstruction_id=ways[0].obstruction_id,
            entry_ms=entry_ms,
            exit_ms=max(moment(leaves.p50_s), entry_ms + 1),
            confidence=confidence,
            based_on_ms=last.time_ms,
            entry_within_ms=(moment(enters.p10_s), moment(enters.p90_s)),
            exit_within_ms=(moment(leaves.p10_s), moment(leaves.p90_s)),
            by_route=any(way.by_route for way in ways),
        )

    def _ways(self, patience: float) -> Iterator[_Way]:
        """Yield the ways into obstructions; those that are too improbable may be left out."""
        route = self._route
        progress = route.progress(self.track) if route else None
        passages = list(route.ahead(progress.offset_m)) if route and progress else []
        if route is None or progress is None or not route.is_matched(progress.offset_m):
            yield from self._by_map(_ALMOST * MIN_CONFIDENCE / patience)
            return
        # The vehicle may leave its route; ways that are then too improbable are not searched.
        leaves = 1.0 - progress.probability
        if leaves > MIN_CONFIDENCE / 4:
            for way in self._by_map(MIN_CONFIDENCE / 4 / leaves):
                yield way._replace(probability=way.probability * leaves)
        by_map: list[_Way] | None = None
        passed: Counter[str] = Counter()
        for passage in passages:
            to_entry_m = max(passage.entry_m - progress.offset_m, 0.0)
            inside_m = passage.exit_m - max(passage.entry_m, progress.offset_m)
            if to_entry_m == 0.0 and inside_m < _AT_EXIT_M:
                continue
            name = passage.obstruction_id
            number = passed[name]
            passed[name] += 1
            found = route.way_to(passage, progress.offset_m, self._seen_on())
            if found is not None:
                yield _Way(name, progress.probability, *found, number, by_route=True)
                continue
            by_map = list(self._by_map(0.0)) if by_map is None else by_map
            same = [way for way in by_map if _is_same_way(way, name, to_entry_m)]
            # The map knows how fast the way is, the route only its length, and by which exit.
            best = max(
                same,
                key=lambda way: (is_as_long(way.inside_m, inside_m), way.probability),
                default=None,
            )
            if best is None:
                by_line = route.way_by_line(passage, progress.offset_m)
                by_line = by_line or (Profile.of_lengths(to_entry_m, inside_m), 0.0)
                yield _Way(name, progress.probability, *by_line, number, by_route=True)
            else:
                yield best._replace(probability=progress.probability, number=number, by_route=True)

    def _seen_on(self) -> Iterator[str]:
        """Yield the roads that the vehicle may be on, the most probable first."""
        for hypothesis in self.track.hypotheses:
            if hypothesis.weight >= MIN_CONFIDENCE / 4 and hypothesis.road_id in self.map:
                yield hypothesis.road_id

    def _by_map(self, least: float) -> Iterator[_Way]:
        """Yield the ways that the map has from where the vehicle may be.

        Obstructions that are less probable are left out.
        """
        found: list[tuple[float, float, Into, int]] = []
        for hypothesis, weight in weighed(self.map, self.track.hypotheses):
            if weight < _LEAST_WEIGHT:
                continue
            road_id, offset_m = hypothesis.road_id, hypothesis.offset_m
            ahead = self._by_habit.into(road_id, self.track, self.habits)
            # A vehicle at the exit is about to leave: its next passage is the one after this.
            here = self.map.cover(road_id)
            over = here is not None and all(
                _Way(here, 1.0, passage.profile, offset_m).is_at_exit
                for into in ahead
                if into.obstruction_id == here and into.number == 0
                for passage in into.passages
            )
            for into in ahead:
                number = into.number - (over and into.obstruction_id == here)
                if number >= 0:
                    found.append((offset_m, weight, into, number))
        # Far ahead there are many tunnels, each of them improbable: skip these early.
        chances: dict[tuple[str, int], float] = {}
        for _, weight, into, number in found:
            which = into.obstruction_id, number
            chances[which] = chances.get(which, 0.0) + weight * into.probability
        for offset_m, weight, into, number in found:
            name = into.obstruction_id
            if chances[name, number] * self.map.obstructions[name].certainty >= least:
                for passage in into.passages:
                    probability = weight * passage.probability
                    way = _Way(name, probability, passage.profile, offset_m, number)
                    if not way.is_at_exit:
                        yield way
        for name, probability, profile in straight_ahead(self.map, self.track):
            yield _Way(name, probability, profile, 0.0)


def leaps(last: Fix, fix: Fix) -> bool:
    """Tell whether a later fix is too far from an earlier one for any vehicle."""
    elapsed_s = (fix.time_ms - last.time_ms) / 1000.0
    return distance_m(last.place, fix.place) > MAX_SPEED_MPS * elapsed_s + 100.0


def _moving_s(before: Point | None, fix: Fix, moved_m: float) -> float:
    """Return for how long a vehicle has been moving since it was last matched to the map."""
    if before is None:
        return 0.0
    return min((fix.time_ms - before.time_ms) / 1000.0, 1.0 + moved_m / STANDING_MPS)


def _is_same_way(way: _Way, obstruction_id: str, to_entry_m: float) -> bool:
    return way.obstruction_id == obstruction_id and is_as_long(way.to_entry_m, to_entry_m)


def _at(blockage: Blockage, now_ms: int) -> Blockage | None:
    """Return the blockage as of now, extended if it is overdue; None if it no longer counts."""
    if blockage.entry_ms - now_ms > 1000 * HORIZON_S:
        return None
    if now_ms <= blockage.exit_ms:
        return blockage
    blocked_ms = now_ms - blockage.entry_ms
    if blocked_ms > LOST_FACTOR * (blockage.exit_ms - blockage.entry_ms) + 60_000:
        return None
    exit_ms = now_ms + round(OVERDUE * blocked_ms)
    return replace(blockage, exit_ms=exit_ms, exit_within_ms=(now_ms, 2 * exit_ms - now_ms))
