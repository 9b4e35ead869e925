"""What a figure is."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One row of the report.

    Targets are for `subject`, Underpass unless it says otherwise. `p90` is the value that nine of
    ten runs reach or better it. With `tolerance` the target is to be met, not exceeded: the median
    lies that close to it.
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
        """Tell whether both targets are reached; None where there is none."""
        if self.target is None:
            return None
        if self.tolerance is not None:
            return abs(median - self.target) <= self.tolerance
        sign = -1 if self.more_is_better else 1
        if sign * median > sign * self.target:
            return False
        return self.target_p90 is None or sign * p90 <= sign * self.target_p90
