"""The result for each lane: intervals in which the sky is clear, blocked, unsure or unknown."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from dama.prediction.places import Course, Line
from dama.sky.lanes import Integers, Lane, Samples
from dama.sky.satellite import Floats, Satellite

# Probabilities in one interval lie between two of these; beyond the first and last they are sure.
BOUNDS = (0.1, 0.3, 0.5, 0.7, 0.9)


class State(StrEnum):
    """Whether a place is blocked."""

    CLEAR = "clear"
    BLOCKED = "blocked"
    UNSURE = "unsure"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Interval:
    """A part of a lane, from one distance along it to another, and how probably it is blocked.

    Where `is_unknown`, ground of unknown height may hide the satellite as well.
    """

    from_m: float
    to_m: float
    probability: float
    is_unknown: bool = False

    @property
    def state(self) -> State:
        """Whether it is clear, blocked, unsure, or unknown."""
        if self.is_unknown:
            return State.UNKNOWN
        if self.probability < BOUNDS[0]:
            return State.CLEAR
        return State.BLOCKED if self.probability >= BOUNDS[-1] else State.UNSURE


class Masks:
    """The intervals of all lanes, for one satellite and antenna."""

    def __init__(
        self,
        satellite: Satellite,
        samples: Samples,
        blocked: Floats,
        unknown: npt.NDArray[np.bool_],
    ) -> None:
        """Also take the probability that each sample is blocked, and where ground is unknown."""
        self.satellite = satellite
        self.blocked = blocked
        # What is blocked anyway is so whatever the ground is.
        self._unknown = unknown & (blocked < BOUNDS[-1])
        self._samples = samples
        self._lanes = {lane.id: n for n, lane in enumerate(samples.lanes)}
        band = np.searchsorted(BOUNDS, blocked, side="right").astype(np.int8)
        begins = np.zeros(samples.total, dtype=np.bool_)
        begins[samples.first] = True
        begins[1:] |= (band[1:] != band[:-1]) | (self._unknown[1:] != self._unknown[:-1])
        self._begins: Integers = np.flatnonzero(begins)
        many = np.diff(self._begins, append=samples.total)
        sums = np.add.reduceat(blocked, self._begins) if samples.total else blocked
        self._probability: Floats = sums / many

    def __len__(self) -> int:
        """Return how many intervals there are."""
        return len(self._begins)

    def of(self, lane_id: str) -> tuple[Interval, ...]:
        """Return a lane's intervals, in order, from its beginning to its end."""
        number = self._lanes[lane_id]
        first, count = int(self._samples.first[number]), int(self._samples.counts[number])
        length = float(self._samples.lengths[number])
        low, high = np.searchsorted(self._begins, (first, first + count))
        starts = [float(begin - first) for begin in self._begins[low:high]]
        ends = [*starts[1:], length]
        probabilities = self._probability[low:high].tolist()
        unknown = self._unknown[self._begins[low:high]].tolist()
        return tuple(
            Interval(*one) for one in zip(starts, ends, probabilities, unknown, strict=True)
        )

    def metres_of(self, lane_id: str) -> Floats:
        """Return the probability that a lane is blocked, for each of its metres."""
        number = self._lanes[lane_id]
        first = int(self._samples.first[number])
        return self.blocked[first : first + int(self._samples.counts[number])]

    @property
    def metres(self) -> int:
        """The length of all lanes in metres."""
        return len(self.blocked)

    @property
    def unknown_m(self) -> int:
        """How many of these metres may be blocked by ground of unknown height."""
        return int(self._unknown.sum())

    @property
    def lanes(self) -> tuple[Lane, ...]:
        """All lanes."""
        return self._samples.lanes

    def line_of(self, lane_id: str, interval: Interval) -> Line:
        """Return the part of the road's middle that belongs to an interval."""
        course = Course(self._samples.lanes[self._lanes[lane_id]].line)
        return course.part(interval.from_m, interval.to_m)
