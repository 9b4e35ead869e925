"""The figures of settlements for each terminal and period; stored for as long as its usage."""

from __future__ import annotations

from collections.abc import Iterable

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Link
from underpass_control.settlement.period import Counted, Share
from underpass_control.storage.bulk import BulkInsert
from underpass_control.storage.models import SettledUsage

_KEEP = BulkInsert(SettledUsage, tuple(column.name for column in SettledUsage.__table__.columns))


async def keep(
    connection: AsyncConnection, beam: str, link: Link, start_ms: int, counted: Iterable[Counted]
) -> None:
    """Store the figures of a period."""
    rows = [
        (
            beam,
            link.value,
            start_ms,
            one.terminal,
            one.fair_bits,
            one.planned_bits,
            one.sent_bits,
            one.blocked,
            one.presumed,
        )
        for one in counted
        # A terminal that wants nothing and gets nothing needs no row.
        if one.fair_bits or one.planned_bits or one.sent_bits
    ]
    await _KEEP.execute(connection, rows)


async def shares(
    connection: AsyncConnection, beam: str, link: Link, since_ms: int, until_ms: int
) -> dict[int, Share]:
    """Return the bits that plans gave each terminal, and its fair share, in a period."""
    query = (
        select(
            SettledUsage.terminal,
            func.sum(SettledUsage.planned_bits),
            func.sum(SettledUsage.fair_bits),
        )
        .where(
            SettledUsage.beam_id == beam,
            SettledUsage.link == link.value,
            SettledUsage.start_ms >= since_ms,
            SettledUsage.start_ms < until_ms,
        )
        .group_by(SettledUsage.terminal)
    )
    rows = await connection.execute(query)
    return {terminal: Share(int(planned), int(fair)) for terminal, planned, fair in rows}


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` rows of periods before a time; return how many."""
    key = tuple_(
        SettledUsage.beam_id, SettledUsage.link, SettledUsage.start_ms, SettledUsage.terminal
    )
    old = select(*key.clauses).where(SettledUsage.start_ms < before_ms).limit(limit)
    result = await connection.execute(delete(SettledUsage).where(key.in_(old)))
    return result.rowcount
