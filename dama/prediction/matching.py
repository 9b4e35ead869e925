"""Which road a vehicle is on: a hidden Markov model over the roads near its fixes.

After Newson and Krumm, *Hidden Markov Map Matching Through Noise and Sparseness* (2009), run
forward only, with one hypothesis more: that the vehicle is on no road of the map.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from dama.prediction.places import Position, distance_m, turn_deg
from dama.prediction.roadmap import Near, ObstructionMap

# The standard deviation of the receiver where it gives none, and of the map, in metres.
_NOISE_M = 6.0
_MAP_M = 5.0
# An error of this many standard deviations or more does not last.
_LASTING = 2.2
# The receiver's error decays with this time constant. Also, neither the vehicle nor the drawn line
# is always in the middle of the road.
_WANDERS_S = 20.0
_ASTRAY_M = 2.0
_HEADING_NOISE_DEG = 15.0
# A reported error above this says nothing; the bound keeps its square finite.
_MOST_NOISE_M = 1e6
# How fast a receiver's error wanders is learned over this many fixes, within these bounds.
_LEARNED = 20.0
_LEAST_DRIFT, _MOST_DRIFT = 0.15, 3.0
_STRAIGHT = math.cos(math.radians(10.0))
# A vehicle off the map's roads moves sideways by this standard deviation each second. It may have
# any heading: the logarithm of that likelihood, compared with the road's own heading.
_ACROSS_MPS = 20.0
_ANY_HEADING_LOG = -2.5
# The most that place or heading of a single fix counts against a road: receivers do leap.
_LEAST_LOG = -8.0
# A fix under a roof is rare.
_COVERED_LOG = -2.0
# How much new information each second brings: on how far the fix is beyond a road's end, and on
# headings, which come from Doppler shifts.
_NEWS_PER_S = 0.6
_HEADING_NEWS_PER_S = 0.7
# Probabilities per second: coming upon the map's roads, and leaving or changing the road
# against the topology (a U-turn, a car park, a road that the map lacks).
_COMING = 0.2
_LEAVING = 0.01
# A vehicle first seen near the map's roads is taken to have been near them for this long or longer:
# most vehicles are on a road at their first fix.
_FIRST_S = 10.0
_MAX_HYPOTHESES = 12
_LEAST = 1e-4
# Roads of two drawings that are this near and this parallel are the same road.
_SAME_M = 15.0
_SAME_DEG = 30.0


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """A road that the vehicle may be on, how far along, and with which probability.

    `right_m` is how far the last fix is to the right of it, `heading_deg` its direction there.
    `strayed` is the square of the change of `right_m` since the fix before, as a part of the
    expected one; None where that says nothing of the receiver.
    """

    road_id: str
    offset_m: float
    weight: float
    right_m: float
    heading_deg: float
    strayed: float | None = None


@dataclass(frozen=True, slots=True)
class Sighting:
    """The place and direction of one fix, and its distance from the last one.

    `drift` is how fast the receiver's error wanders (a variance), as a part of what is usual.
    """

    place: Position
    heading_deg: float | None
    accuracy_m: float | None
    travelled_m: float
    elapsed_s: float
    drift: float = 1.0

    @property
    def noise_m(self) -> float:
        """One standard deviation across the road, of receiver and map together."""
        noise_m = _NOISE_M if self.accuracy_m is None else min(self.accuracy_m, _MOST_NOISE_M)
        return math.hypot(_MAP_M, noise_m)


@dataclass(frozen=True, slots=True)
class Expected:
    """The roads that a vehicle's remembered drives took after its last sure road.

    Each comes with its probability; `left` is the probability that the map's turns divide.
    """

    since: str
    roads: Mapping[str, float]
    left: float


class _Side:
    """Likelihoods of a fix's distance beside a road, as parts of the greatest one.

    The error is a Gauss-Markov process (first order): what it was at the last fix is expected
    again, drawn towards zero, as seen across the road that the vehicle is now on.
    """

    def __init__(self, sighting: Sighting) -> None:
        self._kept = math.exp(-sighting.elapsed_s / _WANDERS_S)
        whole = sighting.noise_m**2
        self.usual = whole * (1.0 - self._kept**2) + _ASTRAY_M**2 * min(sighting.elapsed_s, 1.0)
        self.usual = max(self.usual, 0.01)
        self._drifts = sighting.drift * self.usual
        across = (_ACROSS_MPS * sighting.elapsed_s) ** 2
        news = _heading_news(sighting) if sighting.heading_deg is not None else 0.0
        # What a vehicle off the map sees, wherever it is.
        self.off = math.sqrt(self._drifts / (self._drifts + across))
        self.off *= math.exp(_ANY_HEADING_LOG * news)
        self._along = whole * self._kept**2
        self._anew = max(whole + _ASTRAY_M**2, self._drifts)

    def continued(self, before_m: float, right_m: float, straight: float) -> float:
        """Return the likelihood of a fix `right_m` beside a road, after one `before_m` beside it.

        `straight` is the cosine of the bend's angle between them.
        """
        change_m = right_m - self._kept * straight * before_m
        variance = self._drifts + self._along * (1.0 - straight * straight)
        return _likely(change_m * change_m / variance) * math.sqrt(self._drifts / variance)

    def strayed(self, before_m: float, right_m: float) -> float:
        """Return the square of a change on a straight road, as a part of the usual one."""
        change_m = right_m - self._kept * before_m
        return change_m * change_m / self.usual

    def anew(self, right_m: float) -> float:
        """Return the likelihood of a fix beside a road that the vehicle was not on before."""
        return _likely(right_m * right_m / self._anew) * math.sqrt(self._drifts / self._anew)


def _heading_news(sighting: Sighting) -> float:
    return min(1.0, _HEADING_NEWS_PER_S * sighting.elapsed_s)


def _likely(square: float) -> float:
    """Return the density of Student's distribution (4 degrees of freedom): receivers do leap."""
    part = 1.0 / (1.0 + square / 4.0)
    return part * part * math.sqrt(part)


def drift_after(drift: float, found: Sequence[Hypothesis]) -> float:
    """Return how fast a receiver's error wanders, after a fix that was matched so surely."""
    strayed = found[0].strayed
    if strayed is None:
        return drift
    drift += (min(strayed, 3.0 * _MOST_DRIFT) - drift) / _LEARNED
    return min(max(drift, _LEAST_DRIFT), _MOST_DRIFT)


def match(
    on: ObstructionMap,
    before: Iterable[Hypothesis],
    sighting: Sighting,
    expected: Expected | None = None,
) -> tuple[Hypothesis, ...]:
    """Return the hypotheses after one more sighting, the most probable first.

    The rest of the probability, to 1, is that of being off the map's roads.
    """
    known = [hypothesis for hypothesis in before if hypothesis.road_id in on]
    radius_m = min(4.0 * sighting.noise_m, 120.0)
    places = on.near(sighting.place, radius_m)
    if not places:
        return ()
    if not known and sighting.elapsed_s < _FIRST_S:
        sighting = replace(sighting, elapsed_s=_FIRST_S)
    side = _Side(sighting)
    continued, came, matched = _continued(on, known, places, sighting, expected, side)
    off_before = 1.0 - math.fsum(hypothesis.weight for hypothesis in known)
    leaving = 1.0 - math.exp(-_LEAVING * sighting.elapsed_s)
    coming = 1.0 - math.exp(-_COMING * sighting.elapsed_s)
    # A vehicle that cannot have continued has left the road too: by a U-turn, or by a road that the
    # map lacks.
    left = leaving * matched + max(1.0 - off_before - matched, 0.0)
    off = max(off_before, 0.0) * (1.0 - coming) + left / 2.0
    each = (max(off_before, 0.0) * coming + left / 2.0) / len(places)
    logs = _log_likelihoods(on, places, sighting)
    weights = [
        ((1.0 - leaving) * prior + each * side.anew(place.foot.right_m)) * math.exp(log)
        for place, log, prior in zip(places, logs, continued, strict=True)
    ]
    total = math.fsum(weights) + off * side.off
    found = [
        Hypothesis(
            place.road_id,
            place.foot.offset_m,
            weight / total,
            place.foot.right_m,
            place.foot.heading_deg,
            came.get(number),
        )
        for number, (place, weight) in enumerate(zip(places, weights, strict=True))
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
    side: _Side,
) -> tuple[list[float], dict[int, float], float]:
    """Return for each place on a road its probability times its likelihood, by continued driving.

    Also return, by the number of the place, how far fixes strayed on it, where that is known; and
    the sum of the probabilities of all places, before their likelihoods.
    """
    prior = [0.0] * len(places)
    strayed: dict[int, tuple[float, float]] = {}
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
        before_m, heading = hypothesis.right_m, hypothesis.heading_deg
        for number, probability in shares:
            foot = places[number].foot
            straight = math.cos(math.radians(foot.heading_deg - heading))
            likely = side.continued(before_m, foot.right_m, straight)
            comes = hypothesis.weight * probability / max(total, 1.0) * likely
            prior[number] += comes
            if straight > _STRAIGHT and comes > strayed.get(number, (0.0, 0.0))[0]:
                strayed[number] = comes, side.strayed(before_m, foot.right_m)
        matched += hypothesis.weight * min(total, 1.0)
    return prior, {number: change for number, (_, change) in strayed.items()}, matched


def _log_likelihoods(
    on: ObstructionMap, places: Iterable[Near], sighting: Sighting
) -> Iterator[float]:
    """Yield the logarithm of each place's likelihood, as far as the sighting is news.

    The distance beside the road counts only where it is too large for a lasting error; the distance
    beyond the road's end always counts.
    """
    news = min(1.0, _NEWS_PER_S * sighting.elapsed_s)
    heading_news = _heading_news(sighting)
    heading = sighting.heading_deg
    variance = sighting.noise_m**2
    for road_id, foot in places:
        beside = foot.right_m**2
        beyond = max(foot.lateral_m**2 - beside, 0.0)
        log = max(-0.5 * beyond / variance - (beside / variance / _LASTING**2) ** 2, _LEAST_LOG)
        if on.cover(road_id):
            log += _COVERED_LOG
        log *= news
        if heading is not None:
            turned = turn_deg(foot.heading_deg, heading)
            log += heading_news * max(-0.5 * (turned / _HEADING_NOISE_DEG) ** 2, _LEAST_LOG)
        yield log


def weighed(
    on: ObstructionMap, hypotheses: Sequence[Hypothesis]
) -> Iterator[tuple[Hypothesis, float]]:
    """Yield the hypotheses, each weighed against those that contradict it.

    A road that is drawn for two obstructions gives two hypotheses. Both are true, so they do not
    contradict each other.
    """
    seen: dict[str, float] = {}
    for hypothesis in hypotheses:
        if hypothesis.road_id not in on:
            continue
        drawing = on.drawing(hypothesis.road_id)
        if drawing not in seen:
            seen[drawing] = math.fsum(
                other.weight for other in hypotheses if _drawn_again(on, other, hypotheses, drawing)
            )
        yield hypothesis, hypothesis.weight / max(1.0 - seen[drawing], 0.01)


def _drawn_again(
    on: ObstructionMap, other: Hypothesis, hypotheses: Iterable[Hypothesis], drawing: str
) -> bool:
    """Tell whether a hypothesis of another drawing is where one of this drawing is."""
    if other.road_id not in on or on.drawing(other.road_id) == drawing:
        return False
    there, heading = on.course(other.road_id).at(other.offset_m)
    for hypothesis in hypotheses:
        if hypothesis.road_id in on and on.drawing(hypothesis.road_id) == drawing:
            here, direction = on.course(hypothesis.road_id).at(hypothesis.offset_m)
            if turn_deg(direction, heading) < _SAME_DEG and distance_m(here, there) < _SAME_M:
                return True
    return False
