"""Which road a vehicle is on: a hidden Markov model over the roads near its fixes.

After Newson and Krumm, *Hidden Markov Map Matching Through Noise and Sparseness* (2009), run
forward only, with one hypothesis more: that the vehicle is on no road of the map.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from dama.prediction.places import Position, turn_deg
from dama.prediction.roadmap import Near, ObstructionMap

# The receiver's error beside the road where it does not say, with the map's own, in metres.
_NOISE_M = 6.0
_MAP_M = 5.0
_HEADING_NOISE_DEG = 15.0
# Off the map fits as well as a road that is so many standard deviations away.
_OFF_DEVIATIONS = 3.0
# Neither place nor heading of a single fix rules a road out by more: receivers do leap.
_LEAST_LOG = -8.0
# A fix under a roof is rare.
_COVERED_LOG = -2.0
# Noise is correlated over some seconds, so a fix each second counts only this much; headings,
# which come from Doppler shifts, less so.
_NEWS_PER_S = 0.6
_HEADING_NEWS_PER_S = 0.7
# Probabilities per second: coming upon the map's roads, and leaving or changing the road
# against the topology (a U-turn, a car park, a road that the map lacks).
_COMING = 0.2
_LEAVING = 0.02
_MAX_HYPOTHESES = 12
_LEAST = 1e-4


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A road that the vehicle may be on, how far along, and with which probability."""

    road_id: str
    offset_m: float
    weight: float


@dataclass(frozen=True, slots=True)
class Sighting:
    """What one fix says: where, in which direction, how far from the last one."""

    place: Position
    heading_deg: float | None
    accuracy_m: float | None
    travelled_m: float
    elapsed_s: float

    @property
    def noise_m(self) -> float:
        """One standard deviation across the road, of receiver and map together."""
        return math.hypot(_MAP_M, _NOISE_M if self.accuracy_m is None else self.accuracy_m)


@dataclass(frozen=True, slots=True)
class Expected:
    """Which roads a vehicle is expected to take from the one that it surely was on, beyond the map.

    With each of them, how probably; `left` is what goes by the map.
    """

    since: str
    roads: Mapping[str, float]
    left: float


def match(
    on: ObstructionMap,
    before: Iterable[Hypothesis],
    sighting: Sighting,
    expected: Expected | None = None,
) -> tuple[Hypothesis, ...]:
    """Return the hypotheses after one more sighting, the most probable first.

    What their weights leave to 1 is the probability of being off the map's roads.
    """
    known = [hypothesis for hypothesis in before if hypothesis.road_id in on]
    noise_m = sighting.noise_m
    radius_m = min(4.0 * noise_m, 120.0)
    places = on.near(sighting.place, radius_m)
    if not places:
        return ()
    continued, matched = _continued(on, known, places, sighting, expected)
    off_before = 1.0 - math.fsum(hypothesis.weight for hypothesis in known)
    leaving = 1.0 - math.exp(-_LEAVING * sighting.elapsed_s)
    coming = 1.0 - math.exp(-_COMING * sighting.elapsed_s)
    # A vehicle that cannot have continued has left the road too: by a U-turn, or by a road that the
    # map lacks.
    left = leaving * matched + max(1.0 - off_before - matched, 0.0)
    off = max(off_before, 0.0) * (1.0 - coming) + left / 2.0
    each = (max(off_before, 0.0) * coming + left / 2.0) / len(places)
    news = min(1.0, _NEWS_PER_S * sighting.elapsed_s)
    logs = _log_likelihoods(on, places, sighting, noise_m)
    weights = [
        ((1.0 - leaving) * prior + each) * math.exp(log)
        for log, prior in zip(logs, continued, strict=True)
    ]
    total = math.fsum(weights) + off * math.exp(news * -0.5 * _OFF_DEVIATIONS**2)
    found = [
        Hypothesis(place.road_id, place.foot.offset_m, weight / total)
        for place, weight in zip(places, weights, strict=True)
        if weight / total >= _LEAST
    ]
    found.sort(key=lambda hypothesis: (-hypothesis.weight, hypothesis.road_id))
    return tuple(found[:_MAX_HYPOTHESES])


def _continued(
    on: ObstructionMap,
    known: Iterable[Hypothesis],
    places: list[Near],
    sighting: Sighting,
    expected: Expected | None,
) -> tuple[list[float], float]:
    """Return the probability that comes to each place along the road, and their sum."""
    prior = [0.0] * len(places)
    # Noise of both fixes, and the way around a bend that a straight line between them misses.
    slack_m = 15.0 + 2.0 * sighting.noise_m + 0.3 * sighting.travelled_m
    numbers = {place.road_id: number for number, place in enumerate(places)}
    matched = 0.0
    for hypothesis in known:
        reach = on.reach(hypothesis.road_id, hypothesis.offset_m + sighting.travelled_m + slack_m)
        shares: list[tuple[int, float]] = []
        for road_id, (begins_m, probability) in reach.items():
            number = numbers.get(road_id)
            if number is not None:
                moved_m = begins_m + places[number].foot.offset_m - hypothesis.offset_m
                if abs(moved_m - sighting.travelled_m) <= slack_m:
                    if expected is not None and expected.since == hypothesis.road_id:
                        probability *= expected.left
                        probability += expected.roads.get(road_id, 0.0)
                    shares.append((number, probability))
        # The fix has shown that one of these ways was taken: the road behind a junction does not
        # lose by the turns that were not, beyond what its own probability says.
        total = math.fsum(probability for _, probability in shares)
        for number, probability in shares:
            prior[number] += hypothesis.weight * probability / max(total, 1.0)
        matched += hypothesis.weight * min(total, 1.0)
    return prior, matched


def _log_likelihoods(
    on: ObstructionMap, places: Iterable[Near], sighting: Sighting, noise_m: float
) -> Iterator[float]:
    """Yield the logarithm of each place's likelihood, as far as the sighting is news."""
    news = min(1.0, _NEWS_PER_S * sighting.elapsed_s)
    heading_news = min(1.0, _HEADING_NEWS_PER_S * sighting.elapsed_s)
    heading = sighting.heading_deg
    for road_id, (_, lateral_m, heading_deg) in places:
        log = max(-0.5 * (lateral_m / noise_m) ** 2, _LEAST_LOG)
        if on.cover(road_id):
            log += _COVERED_LOG
        log *= news
        if heading is not None:
            turned = turn_deg(heading_deg, heading)
            log += heading_news * max(-0.5 * (turned / _HEADING_NOISE_DEG) ** 2, _LEAST_LOG)
        yield log
