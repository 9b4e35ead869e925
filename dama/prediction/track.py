"""The state kept of a terminal's track: a value that can be stored and resumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from dama.prediction.fix import Fix
from dama.prediction.forecast import Errors, Forecast
from dama.prediction.matching import Hypothesis
from dama.prediction.paces import Stretch
from dama.prediction.places import Position, distance_m, heading_deg
from dama.prediction.receiver import Receiver
from dama.prediction.speed import Pace

# The trail is as long as an approach road, in steps short enough to show a bend.
_TRAIL_STEP_M = 25.0
MAX_TRAIL = 96
# A longer time without a fix is a gap.
_GAP_MS = 3_000
# The length of the run of fixes from which speed is computed if the receiver gives none.
_BASELINE_MS = 10_000
_MAX_RECENT = 16


@dataclass(frozen=True, slots=True)
class Point:
    """A place passed, with its time."""

    time_ms: int
    lon: float
    lat: float

    @property
    def place(self) -> Position:
        """Longitude and latitude."""
        return self.lon, self.lat


@dataclass(frozen=True, slots=True)
class Track:
    """All that a prediction needs to know of the past.

    - `trail` holds places 25 m or more apart, and those of stops, the oldest first; `recent` the
      last seconds' fixes.
    - `standing_since_ms` is None while the vehicle moves; `course_deg` is its last sure direction.
    - `matched` is where the hypotheses were last matched to the map.
    - `driven` are the sure roads of this drive, in order; `sure` is where the last was matched.
    - `stretch` is the time driven on the present road; `paces` are those of the others, by road.
    - `drift` is how fast the receiver's error wanders, as a part of the usual.
    - `forecast` is the forecast of the present seconds; `errors` are the errors of earlier ones.
    - `receiver` is how its fixes follow from one another.
    """

    last: Fix | None = None
    pace: Pace = field(default_factory=Pace)
    standing_since_ms: int | None = None
    course_deg: float | None = None
    hypotheses: tuple[Hypothesis, ...] = ()
    matched: Point | None = None
    trail: tuple[Point, ...] = ()
    recent: tuple[Point, ...] = ()
    driven: tuple[str, ...] = ()
    sure: Point | None = None
    stretch: Stretch = field(default_factory=Stretch)
    paces: Mapping[str, float] = field(default_factory=dict)
    drift: float = 1.0
    forecast: Forecast | None = None
    errors: Errors = field(default_factory=Errors)
    receiver: Receiver = field(default_factory=Receiver)

    def trail_with(self, fix: Fix, *, standing: bool) -> tuple[Point, ...]:
        """Return the trail after a further fix.

        The begin and end of each stop and loss of fix are kept too: losses of link are judged by
        them.
        """
        trail, last = self.trail, self.last
        stopped_or_left = standing != (self.standing_since_ms is not None)
        if trail and distance_m(trail[-1].place, fix.place) < _TRAIL_STEP_M and not stopped_or_left:
            return trail
        if last and trail[-1].time_ms < last.time_ms:
            gap = last.time_ms <= fix.time_ms - _GAP_MS
            if gap or (stopped_or_left and not standing):
                trail = (*trail, Point(last.time_ms, last.lon, last.lat))
        return (*trail, Point(fix.time_ms, fix.lon, fix.lat))[-MAX_TRAIL:]

    def place_at(self, time_ms: int) -> Position | None:
        """Return the known place that is nearest in time; None if there is none."""
        points = (*self.trail, *self.recent)
        nearest = min(points, key=lambda point: abs(point.time_ms - time_ms), default=None)
        return None if nearest is None else nearest.place

    def recent_with(self, fix: Fix) -> tuple[Point, ...]:
        """Return the last seconds' fixes after a further one."""
        kept = [point for point in self.recent if point.time_ms >= fix.time_ms - _BASELINE_MS]
        return (*kept, Point(fix.time_ms, fix.lon, fix.lat))[-_MAX_RECENT:]


def speed_of(fix: Fix, recent: tuple[Point, ...]) -> float | None:
    """Return the speed that the receiver measured, or else the one over the last seconds."""
    if fix.speed_mps is not None:
        return fix.speed_mps
    oldest = recent[0]
    if fix.time_ms - oldest.time_ms < _BASELINE_MS // 2:
        return None
    return 1000.0 * distance_m(oldest.place, fix.place) / (fix.time_ms - oldest.time_ms)


def direction_of(fix: Fix, recent: tuple[Point, ...]) -> float | None:
    """Return the heading that the receiver gave, or else the one over the last metres."""
    if fix.heading_deg is not None:
        return fix.heading_deg
    for point in reversed(recent[:-1]):
        if distance_m(point.place, fix.place) >= _TRAIL_STEP_M:
            return heading_deg(point.place, fix.place)
    return None
