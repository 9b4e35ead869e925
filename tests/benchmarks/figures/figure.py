"""The type of a figure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One row of the report.

    Targets are for `subject`, by default Underpass. Nine of ten runs reach `p90` or better. With
    `tolerance` the target is a value to match, not a limit: the median must lie that close to it.
    """

    id: str
    title: str
    unit: str
    target: float | None = None
    target_p90: float | None = None
    tolerance: float | None = None
    more_is_better: bool = False
    elsewhere: str = ""
    subject: str = "underpass"

    def meets(self, median: float, p90: float) -> bool | None:
        """Tell whether both targets are reached; None if there is none."""
        if self.target is None:
            return None
        if self.tolerance is not None:
            return abs(median - self.target) <= self.tolerance
        sign = -1 if self.more_is_better else 1
        if sign * median > sign * self.target:
            return False
        return self.target_p90 is None or sign * p90 <= sign * self.target_p90
