"""Which road a matcher says that a vehicle is on, fix by fix, against the road that it drove.

A match is right if it is on the way of the map that the vehicle was on at some moment within a
second of the fix, in its direction: along a road, noise alone is worth a second. A junction is
right if the match is right 3 s after the vehicle has passed it. Only fixes on roads that the
predictor's map has count: it has those that lead to obstructions, and no others.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

from dama.prediction import Predictor
from dama.prediction.places import Course, turn_deg
from tests.drives.extract import Extract
from tests.drives.kinds import KnownDrive

_ASIDE_MS = 1_000
_BEHIND_JUNCTION_MS = 3_000
_ACROSS_DEG = 90.0


class Match(NamedTuple):
    """A way of the map, by its id, and in which direction it is driven, in degrees from north."""

    way_id: int
    heading_deg: float


@dataclass
class Matched:
    """How many fixes and junctions there were, and of how many the match was right."""

    fixes: int = 0
    right: int = 0
    junctions: int = 0
    junctions_right: int = 0

    def add(self, other: Matched) -> None:
        """Count others in."""
        self.fixes += other.fixes
        self.right += other.right
        self.junctions += other.junctions
        self.junctions_right += other.junctions_right

    @property
    def right_percent(self) -> float:
        """Which part of the fixes was matched to the road that was driven."""
        return 100.0 * self.right / self.fixes if self.fixes else 0.0

    @property
    def junctions_percent(self) -> float:
        """Behind which part of the junctions the match was right."""
        return 100.0 * self.junctions_right / self.junctions if self.junctions else 0.0


def judge(extract: Extract, made: KnownDrive, matches: Sequence[Match | None]) -> Matched:
    """Compare the matches of a drive's fixes with the edges that it took."""
    fixes, on = made.drive.fixes, made.drive.pieces
    courses = [Course(edge.line) for edge in made.edges]

    def is_right(number: int) -> bool:
        match = matches[number]
        near = (
            piece
            for fix, piece in zip(fixes, on, strict=True)
            if abs(fix.time_ms - fixes[number].time_ms) <= _ASIDE_MS
        )
        return match is not None and any(
            made.edges[piece].way.id == match.way_id
            and turn_deg(
                courses[piece]
                .foot(fixes[number].place, 0, len(made.edges[piece].line) - 1)
                .heading_deg,
                match.heading_deg,
            )
            < _ACROSS_DEG
            for piece in set(near)
        )

    result = Matched()
    known = [made.edges[piece].id in made.known for piece in on]
    for number, is_known in enumerate(known):
        if is_known:
            result.fixes += 1
            result.right += is_right(number)
    for before, after in pairwise(range(len(fixes))):
        passed = range(on[before], on[after])
        if not any(len(extract.steps(made.edges[piece])) > 1 for piece in passed):
            continue
        until_ms = fixes[after].time_ms + _BEHIND_JUNCTION_MS
        later = next((n for n in range(after, len(fixes)) if fixes[n].time_ms >= until_ms), None)
        if later is not None and known[before] and known[later]:
            result.junctions += 1
            result.junctions_right += is_right(later)
    return result


def matches_of_predictor(made: KnownDrive) -> tuple[list[Match | None], float]:
    """Return what the predictor matches, as each fix comes, and the processor's seconds for it."""
    predictor = Predictor(made.known)
    found: list[Match | None] = []
    taken_s = 0.0
    for fix in made.drive.fixes:
        began = time.process_time()
        predictor.feed(fix)
        taken_s += time.process_time() - began
        found.append(_most_probable(predictor))
    return found, taken_s


def _most_probable(predictor: Predictor) -> Match | None:
    hypotheses = predictor.track.hypotheses
    off = 1.0 - sum(hypothesis.weight for hypothesis in hypotheses)
    if not hypotheses or hypotheses[0].weight < off:
        return None
    best = hypotheses[0]
    heading = predictor.map.course(best.road_id).at(best.offset_m)[1]
    return Match(int(best.road_id.split("/")[1]), heading)


def judge_all(
    extract: Extract, drives: Iterable[tuple[KnownDrive, Sequence[Match | None]]]
) -> Matched:
    """Judge the matches of many drives together."""
    total = Matched()
    for made, matches in drives:
        total.add(judge(extract, made, matches))
    return total
