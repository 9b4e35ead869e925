"""How far the times of a drive are from what was expected of them.

Posted limits are not what is driven, traffic differs from road to road, and so do drivers. How much
that makes on a map is not known beforehand; but wherever a vehicle moves freely, what was expected
of the last seconds can be compared with how long they took.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

# A forecast is judged after so many seconds; after a longer gap it says nothing.
JUDGED_S = 20.0
MOST_S = 40.0
# What is usual counts as so many forecasts, and those of the drive as so many at most.
_USUAL = 2.0
_MOST = 12.0
# A time that is further from what was expected, as a logarithm, is that of another way.
_FURTHEST = 0.7


class Forecast(NamedTuple):
    """Where a vehicle was, and at which part of what the map expects it would go on."""

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
        """Return the errors after a time that was expected to be another one."""
        if taken_s <= 0.0 or expected_s <= 0.0:
            return self
        error = math.log(taken_s / expected_s)
        if abs(error) > _FURTHEST:
            return self
        kept = 1.0 - 1.0 / _MOST
        return Errors(kept * self.squares + error * error, kept * self.count + 1.0)

    def spread(self, usual: float) -> float:
        """Return one standard deviation of a time as a part of it; `usual` is that of any drive.

        It is no less, since a few good minutes say nothing of what is rare.
        """
        shown = (_USUAL * usual * usual + self.squares) / (_USUAL + self.count)
        return max(math.sqrt(shown), usual)
