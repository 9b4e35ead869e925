"""The measured capacities and the set efficiencies of links over time, for each 10 s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.models import LinkUsage


class Place(NamedTuple):
    """A place in the list, ordered by time, then by link and by the reporting node and path."""

    start_ms: int
    link: str
    node: int
    incarnation: int
    path: str


@dataclass(frozen=True, slots=True)
class Carried:
    """A link's capacity according to the last report of 10 s.

    Attributes:
        place: the time, the link, and the report's origin.
        time_ms: of that report, UTC, ms since the Unix epoch.
        efficiency: as set by a modem or an operator, otherwise None.
        capacity_bps: as measured, in bit/s of IP bytes, otherwise None.
        capacity_reason: the basis of the measurement.
    """

    place: Place
    time_ms: int
    efficiency: float | None
    capacity_bps: int | None
    capacity_reason: str | None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which: from `since_ms` to before `until_ms`, of one link or both."""

    terminal: int
    link: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    newest_first: bool = False


async def page(
    connection: AsyncConnection, wanted: Wanted, *, after: Place | None, limit: int
) -> list[Carried]:
    """Return the known capacities after a place; times without any are left out."""
    table = LinkUsage
    key = tuple_(table.start_ms, table.link, table.node, table.incarnation, table.path)
    query = select(table.__table__).where(
        table.terminal == wanted.terminal,
        or_(table.capacity_bps.is_not(None), table.efficiency_told),
    )
    if wanted.link is not None:
        query = query.where(table.link == wanted.link)
    if wanted.since_ms is not None:
        query = query.where(table.start_ms >= wanted.since_ms)
    if wanted.until_ms is not None:
        query = query.where(table.start_ms < wanted.until_ms)
    if after is not None:
        query = query.where(key < after if wanted.newest_first else key > after)
    order = (column.desc() if wanted.newest_first else column for column in key.clauses)
    rows = await connection.execute(query.order_by(*order).limit(limit))
    return [
        Carried(
            Place(row.start_ms, row.link, row.node, row.incarnation, row.path),
            row.last_time_ms,
            row.efficiency if row.efficiency_told else None,
            row.capacity_bps,
            row.capacity_reason,
        )
        for row in rows
    ]
