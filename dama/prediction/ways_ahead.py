"""The ways ahead of a road: which obstructions they pass, how often, and how probably."""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

from dama.prediction.obstruction import Road
from dama.prediction.places import Course, turn_deg

# How far ahead ways are followed.
HORIZON_M = 5_000.0
# The most passages of one obstruction that are reported on one way.
MOST_PASSAGES = 3
# The most branches of the road that are followed, and the least probability of one.
MAX_STEPS = 256
LEAST = 0.03
# The longest roundabout. A way ends where more than this part of the traffic would come back to
# its own way.
_ROUND_M = 300.0
_ALL = 0.999
# A vehicle that turns by more than this from one road into the next turns round on the spot.
_ROUND_DEG = 170.0


class Way(NamedTuple):
    """A way into an obstruction and through it: its roads up to the portal, and from there on.

    `number` is how many passages of the same obstruction lie before it on this way.
    """

    obstruction_id: str
    number: int
    probability: float
    approach: tuple[str, ...]
    inside: tuple[str, ...]


@dataclass(slots=True)
class _Entry:
    """A place where a way enters an obstruction, and the exits by which vehicles leave it."""

    obstruction_id: str
    number: int
    probability: float
    approach: tuple[str, ...]
    # The roads from there to an exit, each with its probability.
    exits: list[tuple[float, tuple[str, ...]]] = field(default_factory=list)

    def leave(self, probability: float, ways: tuple[str, ...]) -> None:
        """Add an exit: a way that leaves the obstruction at its end."""
        self.exits.append((probability, ways[len(self.approach) :]))

    def through(self, rounds: Iterable[_Round]) -> Iterator[Way]:
        """Yield the ways from the portal to an exit, with their probabilities.

        Ways that were not followed to an exit are divided over the known exits: the probability of
        entry does not depend on how much is known of the inside. Vehicles that come round before
        they enter take the same ways once more.
        """
        entered = self.probability
        again: dict[int, float] = {}
        for one in rounds:
            if self.obstruction_id not in one.passed and self.approach[: len(one.way)] == one.way:
                again[len(one.way)] = again.get(len(one.way), 0.0) + one.part
        for part in again.values():
            entered *= 1.0 + part
        total = math.fsum(probability for probability, _ in self.exits)
        for probability, inside in self.exits:
            part = entered * probability / total
            yield Way(self.obstruction_id, self.number, part, self.approach, inside)


class _Round(NamedTuple):
    """The part of the vehicles on a way's last road that come to that road again.

    `passed` are the obstructions that they drive through on this round.
    """

    way: tuple[str, ...]
    part: float
    passed: frozenset[str]


class _Branch(NamedTuple):
    """A way ahead, not yet followed to its end; the most probable, then the oldest, comes first."""

    minus_probability: float
    number: int
    road_id: str
    done_m: float
    ways: tuple[str, ...]
    entered: _Entry | None
    # The roads driven so far; none is followed again, since a vehicle that comes back is predicted
    # when it does. The obstructions passed, one entry per passage; these may be passed again.
    driven: frozenset[str]
    passed: tuple[str, ...]

    @property
    def probability(self) -> float:
        """How probably it is taken."""
        return -self.minus_probability


class _Reached(NamedTuple):
    """How probably a way is taken, where its last road begins, and how many it has passed."""

    probability: float
    begins_m: float
    passed: int


def ways_ahead(
    road_id: str, roads: Mapping[str, Road], courses: Mapping[str, Course]
) -> Iterator[Way]:
    """Follow a road onward from its beginning, the most probable ways first.

    Of each obstruction and number, the probabilities add up to 1 at most. A way that turns round at
    a dead end passes no obstruction again: that is predicted once the vehicle has turned.
    """
    todo = [_Branch(-1.0, 0, road_id, 0.0, (), None, frozenset(), ())]
    entries: list[_Entry] = []
    rounds: list[_Round] = []
    reached: dict[tuple[str, ...], _Reached] = {}
    for step in range(1, MAX_STEPS + 1):
        if not todo:
            break
        branch = heapq.heappop(todo)
        road = roads[branch.road_id]
        entered, passed = branch.entered, branch.passed
        driven = branch.driven | {road.id}
        if entered and entered.obstruction_id != road.covered_by:
            entered.leave(branch.probability, branch.ways)
            passed += (entered.obstruction_id,)
            entered = None
        if road.covered_by and not entered:
            number = passed.count(road.covered_by)
            if number == MOST_PASSAGES or (
                number and _turns_round((*branch.ways, road.id), courses)
            ):
                continue
            entered = _Entry(road.covered_by, number, branch.probability, branch.ways)
            entries.append(entered)
        done_m = branch.done_m + courses[road.id].length_m
        ways = (*branch.ways, road.id)
        reached[ways] = _Reached(branch.probability, branch.done_m, len(passed))
        left = branch.probability
        # A way that is inside an obstruction at the horizon is followed to its exit.
        onwards = road.onward if done_m <= HORIZON_M or entered else ()
        comes = {
            one.road_id: ways[: ways.index(one.road_id) + 1]
            for one in onwards
            if one.road_id in driven
        }
        soon = {name for name, way in comes.items() if done_m - reached[way].begins_m <= _ROUND_M}
        again = math.fsum(one.probability for one in onwards if one.road_id in comes.keys() - soon)
        for onward in onwards if again < _ALL else ():
            # No vehicle drives round a block: that part of the traffic takes the other ways.
            probability = branch.probability * onward.probability / (1.0 - again)
            if onward.road_id in soon:
                # A vehicle that comes round soon takes the ways already followed from there.
                way = comes[onward.road_id]
                since = frozenset(passed[reached[way].passed :])
                seen = since | {entered.obstruction_id} if entered else since
                rounds.append(_Round(way, probability / reached[way].probability, seen))
            elif onward.road_id in comes:
                continue
            elif onward.road_id in roads and probability >= LEAST:
                left -= probability
                following = _Branch(
                    -probability,
                    step,
                    onward.road_id,
                    done_m,
                    ways,
                    entered,
                    driven,
                    passed,
                )
                heapq.heappush(todo, following)
        if entered and (left > LEAST or left >= branch.probability):
            # The traffic that is not followed any further leaves the obstruction here.
            entered.leave(left, ways)
    for branch in todo:
        if branch.entered:
            branch.entered.leave(branch.probability, branch.ways)
    for entry in entries:
        yield from entry.through(rounds)


def _turns_round(ways: Sequence[str], courses: Mapping[str, Course]) -> bool:
    """Tell whether a way turns round at a dead end, where most vehicles stay for a while."""
    return any(
        turn_deg(before.at(before.length_m)[1], after.at(0.0)[1]) > _ROUND_DEG
        for before, after in pairwise(courses[road_id] for road_id in ways)
    )
