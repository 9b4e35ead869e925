"""Interventions, by which operators temporarily overrule the planner: read, set, released."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, and_, case, delete, func, insert, or_, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Link
from dama.prediction import Span
from dama.prediction.same import OBSERVED_MS, is_same_passage
from underpass_control.planning.interventions import Intervention, Kind
from underpass_control.storage.expectations import PREDICTED
from underpass_control.storage.models import Beam, PredictedBlockage, Terminal
from underpass_control.storage.models import Intervention as Table

# The beam of an intervention; for a terminal's, the terminal's present beam.
_of = func.coalesce(Table.beam_id, Terminal.beam_id)


@dataclass(frozen=True)
class Wanted:
    """Which: of a beam, a terminal, a kind; `since_ms`: those that end later."""

    beam: str | None = None
    terminal: int | None = None
    kind: str | None = None
    since_ms: int | None = None


async def ahead(connection: AsyncConnection, beam: str, now_ms: int) -> list[Intervention]:
    """Return the interventions of a beam and its terminals that have not ended."""
    rows = await connection.execute(
        _rows().where(_of == beam, Table.until_ms > now_ms).order_by(Table.id)
    )
    return [_intervention(row) for row in rows]


async def page(
    connection: AsyncConnection, wanted: Wanted, *, after: int | None, limit: int
) -> Sequence[Row[Any]]:
    """Return the rows after a number, with `beam`: for a terminal's, its present beam."""
    query = _rows().order_by(Table.id).limit(limit)
    if wanted.beam is not None:
        query = query.where(_of == wanted.beam)
    if wanted.terminal is not None:
        query = query.where(Table.terminal == wanted.terminal)
    if wanted.kind is not None:
        query = query.where(Table.kind == wanted.kind)
    if wanted.since_ms is not None:
        query = query.where(Table.until_ms > wanted.since_ms)
    if after is not None:
        query = query.where(Table.id > after)
    rows: Sequence[Row[Any]] = (await connection.execute(query)).all()
    return rows


async def get(connection: AsyncConnection, number: int) -> Row[Any] | None:
    """Return a row."""
    found = await connection.execute(_rows().where(Table.id == number))
    row: Row[Any] | None = found.one_or_none()
    return row


async def lock(connection: AsyncConnection, beam: str) -> bool:
    """Make all other interventions on a beam wait; tell whether the beam exists.

    It is an update, which locks SQLite's file, not a query. It changes no key, so plans, which
    refer to the beam, can still be stored.
    """
    held = update(Beam).where(Beam.id == beam).values(one_way_delay_ms=Beam.one_way_delay_ms)
    return (await connection.execute(held)).rowcount > 0


async def add(connection: AsyncConnection, values: Mapping[str, Any]) -> int:
    """Store one; return its number."""
    made = await connection.execute(insert(Table).values(values).returning(Table.id))
    number: int = made.scalar_one()
    return number


async def change(
    connection: AsyncConnection, number: int, revision: int, values: Mapping[str, Any]
) -> bool:
    """Change one, if it is at a revision; tell whether it was."""
    known = Table.id == number, Table.revision == revision
    changed = update(Table).where(*known).values({**values, "revision": revision + 1})
    return (await connection.execute(changed)).rowcount > 0


async def remove(connection: AsyncConnection, number: int, revision: int) -> bool:
    """Delete one, if it is at a revision; tell whether it was."""
    gone = delete(Table).where(Table.id == number, Table.revision == revision)
    return (await connection.execute(gone)).rowcount > 0


async def overlapping(
    connection: AsyncConnection, values: Mapping[str, Any], *, but: int | None
) -> Row[Any] | None:
    """Return one of the same kind and target that overlaps in time, other than `but`."""
    query = _rows().where(
        Table.kind == values["kind"],
        _same_target(values),
        Table.from_ms < values["until_ms"],
        Table.until_ms > values["from_ms"],
    )
    if but is not None:
        query = query.where(Table.id != but)
    found = await connection.execute(query.order_by(Table.id).limit(1))
    row: Row[Any] | None = found.one_or_none()
    return row


async def count_ahead(connection: AsyncConnection, values: Mapping[str, Any], now_ms: int) -> int:
    """Return how many of the same target have not ended."""
    query = select(func.count(Table.id)).where(_same_target(values), Table.until_ms > now_ms)
    return (await connection.execute(query)).scalar_one()


async def promised_bps(
    connection: AsyncConnection, beam: str, link: Link, terminal: int, span_ms: tuple[int, int]
) -> int:
    """Return the most that the other terminals of a beam may be certain to have in a period.

    That is the sum of their guaranteed rates. A set rate counts instead if it is greater, or
    covers the whole period.
    """
    minimum = getattr(Terminal, f"{link.value}_minimum_bps")
    rate = getattr(Table, f"{link.value}_bps")
    from_ms, until_ms = span_ms
    always = case((and_(Table.from_ms <= from_ms, Table.until_ms >= until_ms), 1), else_=0)
    rates = (
        select(
            Table.terminal, func.max(rate).label("rate_bps"), func.max(always).label("is_always")
        )
        .where(
            Table.kind == Kind.RATE.value,
            Table.terminal.is_not(None),
            rate.is_not(None),
            Table.from_ms < until_ms,
            Table.until_ms > from_ms,
        )
        .group_by(Table.terminal)
        .subquery()
    )
    counts = or_(rates.c.is_always == 1, rates.c.rate_bps > minimum)
    each = case((counts, rates.c.rate_bps), else_=minimum)
    query = (
        select(func.coalesce(func.sum(each), 0))
        .select_from(Terminal.__table__.outerjoin(rates, rates.c.terminal == Terminal.node))
        .where(Terminal.beam_id == beam, Terminal.node != terminal)
    )
    return int((await connection.execute(query)).scalar_one())


async def withdrawal_of(
    connection: AsyncConnection, terminal: int, span: Span, now_ms: int, *, but: int | None
) -> Row[Any] | None:
    """Return a withdrawal of the same blockage of a terminal, other than `but`."""
    query = _rows().where(
        Table.kind == Kind.WITHDRAWAL.value, Table.terminal == terminal, Table.until_ms > now_ms
    )
    if but is not None:
        query = query.where(Table.id != but)
    for row in await connection.execute(query.order_by(Table.id)):
        if is_same_passage(Span(row.obstruction, row.entry_ms, row.exit_ms), span):
            found: Row[Any] = row
            return found
    return None


async def predicted(connection: AsyncConnection, blockage: int) -> Row[Any] | None:
    """Return a blockage that is expected at present."""
    query = select(PredictedBlockage.__table__).where(
        PredictedBlockage.id == blockage, PredictedBlockage.state == PREDICTED
    )
    return (await connection.execute(query)).one_or_none()


async def withdrawal_moved(connection: AsyncConnection, moved: Mapping[int, Span]) -> None:
    """Store the times of withdrawn blockages, as they are predicted now."""
    # One that has been released ends before its passage is over, and stays so.
    lasts = Table.until_ms >= Table.exit_ms + OBSERVED_MS
    for number, span in moved.items():
        times = {"entry_ms": round(span.entry_ms), "exit_ms": round(span.exit_ms)}
        until_ms = withdrawn_until_ms(times["exit_ms"])
        changed = update(Table).where(Table.id == number, lasts)
        await connection.execute(
            changed.values({**times, "until_ms": until_ms, "obstruction": span.obstruction_id})
        )


def withdrawn_until_ms(exit_ms: int) -> int:
    """Return when the passage of a withdrawn blockage is certainly over."""
    return exit_ms + OBSERVED_MS


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` that ended before a time; return how many."""
    some = select(Table.id).where(Table.until_ms < before_ms).limit(limit)
    return (await connection.execute(delete(Table).where(Table.id.in_(some)))).rowcount


def _rows() -> Select[Any]:
    joined = Table.__table__.outerjoin(Terminal.__table__, Terminal.node == Table.terminal)
    columns = Table.__table__.columns
    return select(*columns, _of.label("beam"), Terminal.tenant_id).select_from(joined)


def _same_target(values: Mapping[str, Any]) -> ColumnElement[bool]:
    terminal: int | None = values["terminal"]
    beam: str | None = values["beam_id"]
    return Table.beam_id == beam if terminal is None else Table.terminal == terminal


def _intervention(row: Row[Any]) -> Intervention:
    span = None
    if row.entry_ms is not None:
        span = Span(row.obstruction, row.entry_ms, row.exit_ms)
    return Intervention(
        row.id,
        Kind(row.kind),
        row.terminal,
        row.from_ms,
        row.until_ms,
        row.forward_bps,
        row.return_bps,
        span,
    )
