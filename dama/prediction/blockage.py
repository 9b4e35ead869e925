"""A blockage to come."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dama.prediction.same import Span


@dataclass(frozen=True, slots=True)
class Blockage:
    """An interval without line of sight, at the terminal's antenna.

    Times are UTC in milliseconds since 1970; `confidence` is the probability that it comes.
    `obstruction_id` is None where a terminal announces a blockage without saying by what.
    `based_on_ms` is the time of the fix, or of the announcement, that it goes back to. Entry and
    exit are as probably earlier as later, if nothing unforeseen holds the vehicle up;
    `entry_within_ms` and `exit_within_ms` hold them with
    0.8, a tenth lying before and a tenth after, None where nobody says how exactly they are known.
    """

    obstruction_id: str | None
    entry_ms: int
    exit_ms: int
    confidence: float
    based_on_ms: int
    source: Literal["predicted", "announced"] = "predicted"
    entry_within_ms: tuple[int, int] | None = None
    exit_within_ms: tuple[int, int] | None = None

    @property
    def span(self) -> Span:
        """What is compared to tell whether another is the same blockage."""
        return Span(self.obstruction_id, self.entry_ms, self.exit_ms)

    @property
    def duration_s(self) -> float:
        """T_t: seconds without line of sight."""
        return (self.exit_ms - self.entry_ms) / 1000.0
