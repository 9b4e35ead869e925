"""The ways ahead of a vehicle: as its remembered drives went on, otherwise as the traffic goes."""

from __future__ import annotations

import math
from collections.abc import Iterable

from dama.prediction.habits import Continuation, Habits
from dama.prediction.matching import Expected
from dama.prediction.profile import Profile
from dama.prediction.roadmap import Into, ObstructionMap, Passage
from dama.prediction.track import Track

# The number of next roads on remembered drives that count when a fix is matched.
_NEXT_ROADS = 12


class WaysByHabit:
    """The ways ahead of one vehicle.

    Results are cached until the vehicle has driven another road, or its habits change.
    """

    def __init__(self, on: ObstructionMap) -> None:
        self._map = on
        # The roads driven and the habits that the results below are for.
        self._driven: tuple[str, ...] = ()
        self._habits: Habits | None = None
        self._ahead: dict[str, tuple[Into, ...]] = {}
        self._next: Expected | None = None

    def into(self, road_id: str, track: Track, habits: Habits) -> tuple[Into, ...]:
        """Return what lies ahead of a road that the vehicle may be on."""
        driven, last = track.driven, track.last
        assert last is not None
        if not habits.drives and road_id not in driven[:-1]:
            return self._map.into(road_id)
        self._renew(driven, habits)
        known = self._ahead.get(road_id)
        if known is None:
            found = habits.continuations(driven, road_id, last.time_ms, self._map.turn)
            known = self._ahead[road_id] = _mixed(self._map, self._map.into(road_id), found)
        return known

    def expected(self, track: Track, habits: Habits) -> Expected | None:
        """Return how remembered drives went on from the vehicle's last sure road."""
        driven, last = track.driven, track.last
        if not driven or last is None:
            return None
        if not habits.drives and driven[-1] not in driven[:-1]:
            return None
        self._renew(driven, habits)
        if self._next is None:
            roads: dict[str, float] = {}
            found = habits.continuations(driven, driven[-1], last.time_ms, self._map.turn)
            for continuation in found:
                for road_id in set(continuation.roads[:_NEXT_ROADS]):
                    roads[road_id] = roads.get(road_id, 0.0) + continuation.probability
            left = 1.0 - math.fsum(continuation.probability for continuation in found)
            self._next = Expected(driven[-1], roads, left)
        return self._next

    def _renew(self, driven: tuple[str, ...], habits: Habits) -> None:
        """Drop the results for other roads driven, or for other habits."""
        if driven is not self._driven or habits is not self._habits:
            self._driven, self._habits = driven, habits
            self._ahead, self._next = {}, None


def _mixed(
    on: ObstructionMap, by_map: tuple[Into, ...], found: Iterable[Continuation]
) -> tuple[Into, ...]:
    """Return the passages ahead: on remembered ways, and on those of the traffic."""
    passages: dict[tuple[str, int], dict[Profile, float]] = {}

    def add(passage: Passage, part: float) -> None:
        by_way = passages.setdefault((passage.obstruction_id, passage.number), {})
        known = by_way.get(passage.profile, 0.0)
        by_way[passage.profile] = known + part * passage.probability

    left = 1.0
    for roads, probability in found:
        left -= probability
        for passage in on.along(roads):
            add(passage, probability)
    if left == 1.0:
        return by_map
    for into in by_map:
        for passage in into.passages:
            add(passage, left)
    return tuple(
        Into(
            name,
            number,
            math.fsum(by_way.values()),
            tuple(Passage(name, part, profile, number) for profile, part in by_way.items()),
        )
        for (name, number), by_way in passages.items()
    )
