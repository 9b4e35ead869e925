"""How far the times of a drive are from the expected ones.

Vehicles do not keep to posted limits, and traffic and drivers differ from road to road. How large
that error is on a map is not known beforehand. But wherever a vehicle moves freely, the time
expected for the last stretch can be compared with the time that it took.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

# A forecast is judged after `JUDGED_S`; after more than `MOST_S` it is not counted.
JUDGED_S = 20.0
MOST_S = 40.0
# The usual error counts as `_USUAL` forecasts, and those of the drive as `_MOST` at most.
_USUAL = 2.0
_MOST = 12.0
# If the logarithm of time taken over time expected is larger, the vehicle took another way.
_FURTHEST = 0.7


class Forecast(NamedTuple):
    """Where a vehicle was, and its speed from there on, as a part of what the map expects."""

    time_ms: int
    road_id: str
    offset_m: float
    factor: float


@dataclass(frozen=True, slots=True)
class Errors:
    """The sum of the squares of the errors, as logarithms, and how many; older ones fade."""

    squares: float = 0.0
    count: float = 0.0

    def after(self, expected_s: float, taken_s: float) -> Errors:
        """Return the errors with one more forecast: the time expected and the time taken."""
        if taken_s <= 0.0 or expected_s <= 0.0:
            return self
        error = math.log(taken_s / expected_s)
        if abs(error) > _FURTHEST:
            return self
        kept = 1.0 - 1.0 / _MOST
        return Errors(kept * self.squares + error * error, kept * self.count + 1.0)

    def spread(self, usual: float) -> float:
        """Return one standard deviation of a time as a part of it; `usual` is that of any drive.

        It is at least `usual`, since a few good minutes say nothing of rare errors.
        """
        shown = (_USUAL * usual * usual + self.squares) / (_USUAL + self.count)
        return max(math.sqrt(shown), usual)
