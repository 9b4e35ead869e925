"""The type of a figure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One row of the report.

    Targets are for `subject`, by default Underpass. Nine of ten runs reach `p90` or better. With
    `tolerance` the target is a value to match, not a limit: the median must lie that close to it.
    `in_each` makes the target a bound for every run, `ahead` asks for a better median than each
    other subject's.
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
    in_each: bool = False
    ahead: bool = False

    def meets(self, median: float, p90: float, values: Sequence[float] = ()) -> bool | None:
        """Tell whether all targets are reached; None if there is none.

        Whether it is ahead of others is not judged here.
        """
        if self.target is None:
            return None
        if self.tolerance is not None:
            return abs(median - self.target) <= self.tolerance
        reached = [self.reaches(median, self.target)]
        if self.target_p90 is not None:
            reached.append(self.reaches(p90, self.target_p90))
        if self.in_each:
            reached += [self.reaches(value, self.target) for value in values]
        return all(reached)

    def reaches(self, value: float, target: float) -> bool:
        """Tell whether a value is as good as a target, or better."""
        return value >= target if self.more_is_better else value <= target
