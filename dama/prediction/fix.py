"""A position reported by a receiver, and which clock its time is taken from."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dama.prediction.places import Position, is_on_earth

# Faster than any road vehicle: beyond this, a message is corrupt or the receiver has leapt.
MAX_SPEED_MPS = 150.0
# Beyond this difference, GNSS time and the node's clock are flagged as different.
CLOCK_TOLERANCE_MS = 2_000


class FixError(ValueError):
    """A position with impossible values."""


@dataclass(frozen=True, slots=True)
class Fix:
    """A position report.

    `time_ms` is UTC in milliseconds since 1970, `speed_mps` over ground, `heading_deg` from true
    north, `accuracy_m` one standard deviation of the horizontal error. Values that the receiver did
    not give are None.
    """

    time_ms: int
    lon: float
    lat: float
    speed_mps: float | None = None
    heading_deg: float | None = None
    accuracy_m: float | None = None

    def __post_init__(self) -> None:
        if not is_on_earth(self.lon, self.lat):
            raise FixError(f"no place on Earth: longitude {self.lon}, latitude {self.lat}")
        if self.speed_mps is not None and not 0.0 <= self.speed_mps <= MAX_SPEED_MPS:
            raise FixError(f"speed {self.speed_mps} m/s is not between 0 and {MAX_SPEED_MPS:g}")
        if self.heading_deg is not None and not 0.0 <= self.heading_deg <= 360.0:
            raise FixError(f"heading {self.heading_deg} is not between 0 and 360 degrees")
        if self.accuracy_m is not None and not 0.0 <= self.accuracy_m < math.inf:
            raise FixError(f"accuracy {self.accuracy_m} m is not a positive number")

    @property
    def place(self) -> Position:
        """Longitude and latitude."""
        return self.lon, self.lat


def ruling_time(gnss_ms: int, node_ms: int, *, synchronised: bool) -> tuple[int, bool]:
    """Return the time of a report, and whether its two clocks differ.

    Up to a difference of two seconds GNSS time is used: it is the receiver's own, and more exact.
    Beyond that one of the clocks is wrong: the node's clock rules if it is synchronised, GNSS time
    if not, and the report is to be flagged.
    """
    differ = abs(gnss_ms - node_ms) > CLOCK_TOLERANCE_MS
    return (node_ms if differ and synchronised else gnss_ms), differ
