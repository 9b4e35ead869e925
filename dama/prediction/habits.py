"""What a vehicle has driven before, and how probably it drives so again.

A remembered drive is the roads of the map that it took, in order. The prediction of a vehicle's way
is a mixture: each remembered drive that passed here has a probability, and the rest follows the
map's division of traffic. Each turn that agrees with a remembered drive makes that drive more
probable, the more so the fewer vehicles take that turn. So a drive made once is recognised after a
few junctions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from itertools import pairwise
from typing import NamedTuple

# The most drives remembered of one vehicle, and the most roads of each.
MOST_DRIVES = 16
MOST_ROADS = 256
# A drive that is cut at the bound continues as a new one that begins with its last roads.
OVERLAP = 64
_HOUR_MS = 3_600_000
_DAY_HOURS = 24.0
# A drive's weight halves in this time; a drive of less than the least weight is forgotten.
_HALVED_MS = 30 * 86_400_000
_FORGOTTEN = 0.1
# Two drives are the same if they share this part of their roads, in order.
_SAME = 0.9
# Beyond this difference in the hour of the day, drives are different: their pace differs.
_SAME_HOURS = 2.0
# The weight of all other ways together, where a drive made once has 1; the probability that a
# vehicle on a remembered drive takes its next turn; and the most that all remembered drives get.
_FREE = 0.5
_KEPT = 0.97
_MOST = 0.98
# A vehicle that came to the same road from another one is as likely as not on another drive.
_JOINED = 0.5
# A vehicle that comes to a road again after fewer roads has missed an exit; after more, it may be
# driving in circles.
_LEAST_ROUND = 24
# The least part of the traffic that a turn counts with, and the most turns looked at.
_LEAST_TURN = 0.05
_MOST_TURNS = 48

Turn = Callable[[str, str], float | None]
"""The part of the traffic that goes on from a road to another one; None: nobody can."""


@dataclass(frozen=True, slots=True)
class RememberedDrive:
    """Roads driven in this order, and how often, as of the last time.

    `paces` are the speeds driven on each road, in percent of what the map expects, 0 where that is
    not known; it may be empty.
    """

    roads: tuple[str, ...]
    times: float
    last_ms: int
    paces: tuple[int, ...] = ()

    def weight(self, now_ms: int) -> float:
        """Return how much it counts: the longer ago, the less."""
        return self.times * float(0.5 ** (max(now_ms - self.last_ms, 0) / _HALVED_MS))


class Continuation(NamedTuple):
    """The roads of a remembered drive from here on, and how probably they are driven again."""

    roads: tuple[str, ...]
    probability: float


@dataclass(frozen=True, slots=True)
class Habits:
    """The drives that are remembered of one vehicle; a value."""

    drives: tuple[RememberedDrive, ...] = ()

    def after(
        self,
        roads: Sequence[str],
        now_ms: int,
        most_roads: int = MOST_DRIVES * MOST_ROADS,
        paces: Mapping[str, float] | None = None,
    ) -> Habits:
        """Return the habits after a further drive, with the paces of some of its roads.

        A drive that was made before, at about the same time of the day, counts once more. Beyond
        the bounds, on drives and on the roads of all together, those that count least are dropped.
        """
        if len(roads) < 2:
            return self
        made = tuple(roads)[-MOST_ROADS:]
        times, others = 1.0, []
        driven = {road_id: round(100.0 * pace) for road_id, pace in (paces or {}).items()}
        for drive in self.drives:
            if (
                hours_apart(drive.last_ms, now_ms) > _SAME_HOURS
                or _same_part(made, drive.roads) < _SAME
            ):
                others.append(drive)
                continue
            weight = drive.weight(now_ms)
            for road_id, percent in zip(drive.roads, drive.paces, strict=False):
                if percent:
                    new = driven.get(road_id, percent)
                    driven[road_id] = round((weight * percent + new) / (weight + 1.0))
            times += weight
            if len(drive.roads) > len(made):
                made = drive.roads
        kept = [one for one in others if one.weight(now_ms) >= _FORGOTTEN]
        percents = tuple(driven.get(road_id, 0) for road_id in made) if driven else ()
        kept.append(RememberedDrive(made, times, now_ms, percents))
        kept.sort(key=lambda one: (-one.weight(now_ms), -one.last_ms))
        left = most_roads
        for number, one in enumerate(kept[:MOST_DRIVES]):
            left -= len(one.roads)
            if left < 0:
                return Habits(tuple(kept[:number]))
        return Habits(tuple(kept[:MOST_DRIVES]))

    def continuations(
        self, driven: Sequence[str], road_id: str, now_ms: int, turn: Turn
    ) -> list[Continuation]:
        """Return how remembered drives go on from a road, for a vehicle that drove these roads.

        The rest of the probability, to 1, follows the traffic.
        """
        history = driven if driven and driven[-1] == road_id else (*driven, road_id)
        found = [
            (
                drive.roads[place:],
                drive.weight(now_ms) * _likeness(history, drive.roads, place, turn),
            )
            for drive in self.drives
            for place in _places(drive.roads, road_id)
        ]
        # A vehicle that drives in circles repeats its present drive, which is not remembered yet.
        found += [
            (tuple(history[place:]), _likeness(history, history, place, turn))
            for place in _places(history[:-_LEAST_ROUND], road_id)
        ]
        total = sum(weight for _, weight in found)
        kept = min(total / (total + _FREE), _MOST)
        return [Continuation(roads, kept * weight / total) for roads, weight in found]


def hours_apart(one_ms: int, other_ms: int) -> float:
    """Return how far two times are apart by the hour of the day, from 0 to 12."""
    hours = abs(one_ms - other_ms) / _HOUR_MS % _DAY_HOURS
    return min(hours, _DAY_HOURS - hours)


def _places(roads: Sequence[str], road_id: str) -> Iterator[int]:
    """Yield the places of a road in a drive, its last place left out."""
    if road_id in roads:
        for place, one in enumerate(roads[:-1]):
            if one == road_id:
                yield place


def _likeness(history: Sequence[str], roads: Sequence[str], place: int, turn: Turn) -> float:
    """Return the odds, by the way that led here, of a drive that passed here against any other."""
    odds = 1.0
    for back in range(1, min(len(history), place + 1, _MOST_TURNS)):
        before, after = history[-1 - back], history[-back]
        if roads[place - back] != before:
            return odds * _JOINED
        part = turn(before, after)
        if part is not None:
            odds *= max(_KEPT / max(part, _LEAST_TURN), 1.0)
    return odds


def _same_part(one: Sequence[str], other: Sequence[str]) -> float:
    """Return which part of the shorter of two drives is in the other one, in the same order."""
    shorter = min(len(one), len(other))
    if not shorter or set(one).isdisjoint(other):
        return 0.0
    blocks = SequenceMatcher(None, one, other, autojunk=False).get_matching_blocks()
    return sum(block.size for block in blocks) / shorter


class TurnCounts:
    """How often the vehicles of a fleet take which turn: each junction counts a vehicle once.

    A vehicle's turns from one road add up to 1 at most, however often it drives there, so no
    vehicle outweighs the others. None stands for a way that is not on the map.
    """

    def __init__(self) -> None:
        self._taken: dict[str, dict[str | None, float]] = {}

    def add(self, habits: Habits, now_ms: int, turn: Turn) -> None:
        """Count the turns of a vehicle in."""
        mine: dict[str, dict[str | None, float]] = {}
        for drive in habits.drives:
            weight = drive.weight(now_ms)
            for road_id, following in _turns(drive.roads, turn):
                counts = mine.setdefault(road_id, {})
                counts[following] = counts.get(following, 0.0) + weight
        for road_id, counts in mine.items():
            total = max(sum(counts.values()), 1.0)
            taken = self._taken.setdefault(road_id, {})
            for following, count in counts.items():
                taken[following] = taken.get(following, 0.0) + count / total

    def of(self, road_id: str) -> dict[str | None, float]:
        """Return how many vehicles, or parts of them, go on from a road to which others."""
        return self._taken.get(road_id, {})

    def __iter__(self) -> Iterator[str]:
        return iter(self._taken)


def _turns(roads: Sequence[str], turn: Turn) -> Iterator[tuple[str, str | None]]:
    for here, there in pairwise(roads):
        yield here, None if turn(here, there) is None else there
