"""How fast roads are driven, as parts of what the map expects: seen on a drive, learned by hour.

Some roads are slower at rush hour than at night, and vehicles do not keep to posted limits. The
pace of a road is the speed of vehicles on it without stops, divided by the speed that the map
expects. Each vehicle counts once for a road and hour, so none alone can slow the others down.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

from dama.prediction.habits import Habits, hours_apart
from dama.prediction.speed import KNOWN_S

# A vehicle that is faster or slower than this was not driving along the road.
LEAST_PACE, MOST_PACE = 0.4, 1.6
# A shorter time on a road says little of its pace.
_LEAST_S = 4.0
# A drive counts less for another hour of the day: after this many hours only this part.
_HOURS_APART = 3.0
_ANY_HOUR = 0.1
# What the map expects counts as so many vehicles.
_GUESS = 1.0


class Stretch(NamedTuple):
    """How long a vehicle has moved on a road, and how long that takes as the map expects.

    `stopped` marks a vehicle that was held up by a light or a queue, which is no part of the pace.
    """

    road_id: str = ""
    moved_s: float = 0.0
    expected_s: float = 0.0
    stopped: bool = False

    def further(self, road_id: str, moved_s: float, expected_s: float, *, stands: bool) -> Stretch:
        """Return the stretch after a further step; a step on another road begins a new one.

        A step over a gap between fixes is left out: its speed is unknown.
        """
        before = self if road_id == self.road_id else Stretch(road_id)
        if not 0.0 < moved_s <= KNOWN_S:
            return before
        return Stretch(
            road_id,
            before.moved_s + moved_s,
            before.expected_s + expected_s,
            before.stopped or stands,
        )

    @property
    def pace(self) -> float | None:
        """The pace driven; None if the time was too short, or the vehicle stopped."""
        if self.stopped or self.moved_s < _LEAST_S:
            return None
        return min(max(self.expected_s / self.moved_s, LEAST_PACE), MOST_PACE)


class RoadPaces:
    """The paces of roads at an hour of the day, of all vehicles of a fleet."""

    def __init__(self, now_ms: int) -> None:
        self._now_ms = now_ms
        # By road: how many vehicles, or parts of them, and the sum of their logarithms.
        self._driven: dict[str, tuple[float, float]] = {}

    def add(self, habits: Habits) -> None:
        """Count the paces of a vehicle in."""
        mine: dict[str, tuple[float, float]] = {}
        for drive in habits.drives:
            weight = drive.weight(self._now_ms) * self._same_hour(drive.last_ms)
            for road_id, percent in zip(drive.roads, drive.paces, strict=False):
                if percent:
                    pace = min(max(percent / 100.0, LEAST_PACE), MOST_PACE)
                    count, total = mine.get(road_id, (0.0, 0.0))
                    mine[road_id] = count + weight, total + weight * math.log(pace)
        for road_id, (count, total) in mine.items():
            if count > 0.0:
                part = min(count, 1.0)
                vehicles, paces = self._driven.get(road_id, (0.0, 0.0))
                self._driven[road_id] = vehicles + part, paces + part * total / count

    def of(self, road_id: str) -> float:
        """Return the expected pace of a road; 1 where no vehicle has driven."""
        vehicles, paces = self._driven.get(road_id, (0.0, 0.0))
        return math.exp(paces / (vehicles + _GUESS))

    def __iter__(self) -> Iterator[str]:
        return iter(self._driven)

    def _same_hour(self, time_ms: int) -> float:
        """Return how much a drive at another time counts for this hour of the day."""
        return max(1.0 - hours_apart(time_ms, self._now_ms) / _HOURS_APART, _ANY_HOUR)
