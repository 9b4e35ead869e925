"""A blockage to come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dama.prediction.same import Span


@dataclass(frozen=True, slots=True)
class Blockage:
    """An interval without line of sight, at the terminal's antenna.

    Times are UTC in milliseconds since 1970; `confidence` is the probability that it comes.
    `obstruction_id` is None where a terminal announces a blockage without naming an obstruction.
    `based_on_ms` is the time of the fix, or of the announcement, that it is based on. Entry and
    exit are medians, provided that nothing unforeseen delays the vehicle. `entry_within_ms` and
    `exit_within_ms` are intervals that contain them with probability 0.8, with 0.1 before and 0.1
    after; None where their accuracy is unknown. `by_route` says that a known route leads there.
    """

    obstruction_id: str | None
    entry_ms: int
    exit_ms: int
    confidence: float
    based_on_ms: int
    source: Literal["predicted", "announced"] = "predicted"
    entry_within_ms: tuple[int, int] | None = None
    exit_within_ms: tuple[int, int] | None = None
    by_route: bool = False

    @property
    def span(self) -> Span:
        """The values by which it is compared with other blockages."""
        return Span(self.obstruction_id, self.entry_ms, self.exit_ms)

    @property
    def duration_s(self) -> float:
        """T_t: seconds without line of sight."""
        return (self.exit_ms - self.entry_ms) / 1000.0
