"""A terminal's own announcements of blockages, and how they are reconciled with predictions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from dama.prediction.blockage import Blockage
from dama.prediction.same import is_announced

# The furthest and longest announcement accepted: a corrupt one must not reserve a beam.
MAX_AHEAD_MS = 3_600_000
MAX_DURATION_MS = 3_600_000


class AnnouncementError(ValueError):
    """An announcement with impossible values."""


@dataclass(frozen=True, slots=True)
class Announcement:
    """A blockage that a terminal recognises: when, how long, how sure (0: it will not come).

    Times are UTC in milliseconds since 1970; `announced_ms` is when it was announced.
    """

    announced_ms: int
    entry_ms: int
    duration_ms: int
    confidence: float
    obstruction_id: str | None = None

    def __post_init__(self) -> None:
        if not 0.0 <= self.confidence <= 1.0:
            raise AnnouncementError(f"confidence {self.confidence} is not between 0 and 1")
        if not 0 < self.duration_ms <= MAX_DURATION_MS:
            raise AnnouncementError(f"duration {self.duration_ms} ms is not in (0 ms, 1 h]")
        if abs(self.entry_ms - self.announced_ms) > MAX_AHEAD_MS:
            raise AnnouncementError("the entry is more than an hour from the announcement")

    @property
    def blockage(self) -> Blockage:
        """The announced blockage."""
        return Blockage(
            self.obstruction_id,
            self.entry_ms,
            self.entry_ms + self.duration_ms,
            self.confidence,
            self.announced_ms,
            "announced",
        )


def reconcile(
    predicted: Iterable[Blockage], announced: Iterable[Announcement], now_ms: int
) -> tuple[Blockage, ...]:
    """Return the blockages to plan with, the next first.

    The rule, for one terminal:

    1. Announcements that are over are left out; of several for the same blockage the latest
       counts.
    2. An announcement and a prediction are of the same blockage if they name the same obstruction
       and both are ahead, if they overlap in time, or if their entries differ by at most 10 s or a
       quarter of the time to the entry. If they name different obstructions, they never are.
    3. The one of the two that is based on the later moment gives the times: the terminal sees
       every fix, but an announcement made before a stop is older than the fixes after it. If both
       are equally late, the announcement counts.
    4. If the announcement is the later one, its confidence counts, and 0 withdraws the
       prediction; otherwise, and if the prediction is by a known route, the greater confidence
       counts: a program on board that does not know the route must not hide what it leads to.
    5. A blockage that only one of them has stays as it is.
    """
    open_ones: list[Announcement] = []
    for announcement in sorted(announced, key=lambda a: a.announced_ms, reverse=True):
        said = announcement.blockage
        if said.exit_ms > now_ms and not any(
            is_announced(said.span, other.blockage.span, now_ms) for other in open_ones
        ):
            open_ones.append(announcement)
    left = list(predicted)
    result: list[Blockage] = []
    for announcement in open_ones:
        said = announcement.blockage
        matching = [blockage for blockage in left if is_announced(said.span, blockage.span, now_ms)]
        if not matching:
            result.append(said)
            continue
        nearest = min(matching, key=lambda blockage: abs(blockage.entry_ms - said.entry_ms))
        left.remove(nearest)
        result.append(_of_both(nearest, said))
    found = [blockage for blockage in (*result, *left) if blockage.confidence > 0.0]
    return tuple(sorted(found, key=lambda blockage: (blockage.entry_ms, blockage.exit_ms)))


def _of_both(predicted: Blockage, said: Blockage) -> Blockage:
    greater = max(predicted.confidence, said.confidence)
    if said.based_on_ms < predicted.based_on_ms:
        return replace(predicted, confidence=greater)
    return replace(
        said,
        obstruction_id=said.obstruction_id or predicted.obstruction_id,
        confidence=greater if predicted.by_route and said.confidence > 0.0 else said.confidence,
    )
