"""How fair a link was over a time: each terminal's traffic and the plans' shares."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.formulas import jain_index
from dama.planner import Link
from underpass_control.settlement.period import PERIOD_MS, Share
from underpass_control.storage import settled_usage, usage
from underpass_control.storage.models import Terminal

# Terminals times periods: the bound on the cost of one question.
MOST_CELLS = 100_000
# In memory at a time.
_AT_ONCE = 5_000
_NOTHING = Share(0, 0)


class TooMuchError(ValueError):
    """The range has more periods, of all terminals together, than one question may cost."""


@dataclass
class Part:
    """A terminal's part of a link in a time.

    Attributes:
        weight: beside others.
        sent_bits: IP bits sent.
        offered_bits: bits that clients handed in.
        blocked_ms: how long it could not send.
        share: the plans' share for it, in bits of capacity, as far as it is settled.
    """

    terminal: int
    weight: int
    sent_bits: int = 0
    offered_bits: int = 0
    blocked_ms: int = 0
    share: Share = _NOTHING

    @property
    def takes_part(self) -> bool:
        """Whether it sent or wanted to; a terminal that wants nothing does not count."""
        return self.sent_bits > 0 or self.offered_bits > 0 or self.share.fair_bits > 0


async def weights_of(connection: AsyncConnection, beam: str) -> dict[int, int]:
    """Return the terminals of a beam with their weights."""
    query = select(Terminal.node, Terminal.weight).where(Terminal.beam_id == beam)
    rows = await connection.execute(query.order_by(Terminal.node))
    return dict(rows.all())


async def parts(
    connection: AsyncConnection,
    beam: str,
    link: Link,
    weights: Mapping[int, int],
    since_ms: int,
    until_ms: int,
) -> list[Part]:
    """Return the part of each terminal in a time, given in whole periods.

    Raises:
        TooMuchError: That is too long for so many terminals.
    """
    if not weights:
        # Without terminals no range would be too long, and each part of it costs a query.
        return []
    if len(weights) * (until_ms - since_ms) > MOST_CELLS * PERIOD_MS:
        longest_s = MOST_CELLS // len(weights) * PERIOD_MS // 1000
        raise TooMuchError(f"of {len(weights)} terminals, {longest_s} s can be asked for at once")
    found = {terminal: Part(terminal, weight) for terminal, weight in weights.items()}
    step_ms = max(1, _AT_ONCE // len(weights)) * PERIOD_MS
    for start_ms in range(since_ms, until_ms, step_ms):
        end_ms = min(start_ms + step_ms, until_ms)
        buckets = await usage.usage(connection, beam, link, start_ms, end_ms)
        for terminal in buckets.keys() & found.keys():
            part = found[terminal]
            for bucket in buckets[terminal]:
                part.sent_bits += bucket.sent_bits
                part.offered_bits += bucket.offered_bits
                part.blocked_ms += bucket.blocked_ms
    shares = await settled_usage.shares(connection, beam, link, since_ms, until_ms)
    for terminal, part in found.items():
        part.share = shares.get(terminal, _NOTHING)
    return list(found.values())


def jain_of(found: Collection[Part]) -> float | None:
    """Return Jain's index of the bits sent; None if no terminal sent or wanted to."""
    return _jain([Fraction(part.sent_bits) for part in found if part.takes_part])


def jain_by_weight(found: Collection[Part]) -> float | None:
    """Return Jain's index of the bits sent per weight; None if no terminal sent or wanted to."""
    return _jain([Fraction(part.sent_bits, part.weight) for part in found if part.takes_part])


def _jain(amounts: Sequence[Fraction]) -> float | None:
    return float(jain_index(amounts)) if amounts else None
