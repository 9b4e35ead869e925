"""Which roads a route takes: Viterbi's algorithm over the roads near it, step by step."""

from __future__ import annotations

import math

from dama.prediction.places import Position, turn_deg
from dama.prediction.roadmap import Near, ObstructionMap

# How exactly a route is drawn: one standard deviation beside the road and in direction. Roads more
# than three away, or of a very different direction, are not compared.
DRAWN_M = 10.0
DRAWN_DEG = 20.0
AGAINST_DEG = 75.0
# The cost of a step without a connection on the map, and of leaving or joining the map's roads.
_UNCONNECTED = -8.0
_OFF = -4.5
_LEAVING = -4.0
# The most roads kept per step, the likeliest.
_MOST_ROADS = 8


class RouteMatching:
    """The matching of a section of a route, in steps of equal length."""

    def __init__(self, on: ObstructionMap, step_m: float) -> None:
        self._on = on
        self._step_m = step_m
        # By the road of the last step; None: on no road of the map.
        self._scores: dict[str | None, float] = {None: 0.0}
        self._offsets: dict[str, float] = {}
        self._back: list[dict[str | None, str | None]] = []

    @property
    def done(self) -> int:
        """How many steps have been taken."""
        return len(self._back)

    def step(self, place: Position, heading_deg: float) -> None:
        """Go on to the next step, which is at a place, in a direction."""
        scores = self._scores
        near = [
            road
            for road in self._on.near(place, 3.0 * DRAWN_M)
            if turn_deg(road.foot.heading_deg, heading_deg) <= AGAINST_DEG
        ][:_MOST_ROADS]
        reach = {
            road: self._on.reach(road, offset_m + 3.0 * self._step_m)
            for road, offset_m in self._offsets.items()
            if road in scores
        }
        found: dict[str | None, float] = {}
        came: dict[str | None, str | None] = {}
        best = max(scores, key=lambda road: scores[road])
        for candidate in near:
            name = candidate.road_id
            options: list[tuple[float, str | None]] = [
                (scores.get(None, -math.inf) + _LEAVING, None),
                (scores[best] + _UNCONNECTED, best),
                *((scores[road], road) for road, ways in reach.items() if name in ways),
            ]
            score, came[name] = max(options, key=lambda option: option[0])
            found[name] = score + _likeness(candidate, heading_deg)
        left = scores[best] + (0.0 if best is None else _LEAVING)
        stayed = scores.get(None, -math.inf)
        came[None] = None if stayed >= left else best
        found[None] = max(stayed, left) + _OFF
        self._scores = found
        self._offsets = {candidate.road_id: candidate.foot.offset_m for candidate in near}
        self._back.append(came)

    def roads(self) -> list[str | None]:
        """Return the most probable road of each step; None: on no road of the map."""
        road = max(self._scores, key=lambda name: self._scores[name])
        matched: list[str | None] = []
        for came in reversed(self._back):
            matched.append(road)
            road = came[road]
        return matched[::-1]


def _likeness(candidate: Near, heading: float) -> float:
    turned = turn_deg(candidate.foot.heading_deg, heading)
    return -0.5 * ((candidate.foot.lateral_m / DRAWN_M) ** 2 + (turned / DRAWN_DEG) ** 2)
