"""Beams and their terminals: set, read, deleted; each change raises a row's revision."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import BigInteger, ColumnElement, Select, case, delete, literal, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.changes import RevisionError
from underpass_control.storage.membership import portions_of
from underpass_control.storage.models import (
    Acknowledgement,
    Announcement,
    Beam,
    Blockage,
    Lease,
    LinkUsage,
    Plan,
    PositionReport,
    PredictedBlockage,
    Terminal,
)
from underpass_control.storage.portions import Portion, rows_of
from underpass_control.storage.tags import OF_TERMINAL


async def put(
    connection: AsyncConnection,
    table: type[Beam] | type[Terminal],
    key: str | int,
    values: Mapping[str, Any],
    *,
    replaced: Mapping[str, Any] | None = None,
    revision: int | None = None,
) -> tuple[int, bool]:
    """Set a row's columns; return its revision, and whether it is new.

    `replaced` are further columns to set if the row exists; their values may depend on it.

    Raises:
        RevisionError: `revision` is given and is not the row's; or it is 0, and there is a row.
    """
    name = _key(table)
    change = update(table).where(name == key).returning(table.revision)
    if revision is not None:
        change = change.where(table.revision == revision)
    change = change.values({**values, **(replaced or {}), "revision": table.revision + 1})
    while True:
        changed = (await connection.execute(change)).scalar_one_or_none()
        if changed is not None:
            return changed, False
        if revision:
            raise RevisionError
        dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
        new = dialect.insert(table).values({name.key: key, **values})
        new = new.on_conflict_do_nothing(index_elements=[name.key])
        made = (await connection.execute(new.returning(table.revision))).scalar_one_or_none()
        if made is not None:
            return made, True
        # Another caller has made the row since the update.
        if revision is not None:
            raise RevisionError


async def get(
    connection: AsyncConnection, table: type[Beam] | type[Terminal], key: str | int
) -> Row[Any] | None:
    """Return a row; a terminal's with its tags."""
    found = await connection.execute(_shown(table).where(_key(table) == key))
    row: Row[Any] | None = found.one_or_none()
    return row


async def terminals(connection: AsyncConnection, nodes: Collection[int]) -> dict[int, Row[Any]]:
    """Return the rows of those of some terminals that there are, with their tags."""
    found: dict[int, Row[Any]] = {}
    for some in portions_of(nodes):
        rows = await connection.execute(_shown(Terminal).where(Terminal.node.in_(some)))
        found |= {row.node: row for row in rows}
    return found


async def page(
    connection: AsyncConnection,
    table: type[Beam] | type[Terminal],
    *,
    after: str | int | None,
    limit: int,
    where: Sequence[ColumnElement[bool]] = (),
) -> Sequence[Row[Any]]:
    """Return the rows after a key, in order of keys; those of terminals with their tags."""
    name = _key(table)
    query = _shown(table).where(*where).order_by(name).limit(limit)
    if after is not None:
        query = query.where(name > after)
    rows: Sequence[Row[Any]] = (await connection.execute(query)).all()
    return rows


async def touch(
    connection: AsyncConnection,
    table: type[Beam] | type[Terminal],
    key: str | int,
    *,
    revision: int | None = None,
) -> None:
    """Raise the revision of a row before data that belongs to it is changed elsewhere.

    Until the transaction ends, the row is locked against other changes.

    Raises:
        RevisionError: `revision` is given and is not the row's.
    """
    change = update(table).where(_key(table) == key)
    if revision is not None:
        change = change.where(table.revision == revision)
    changed = await connection.execute(change.values(revision=table.revision + 1))
    if revision is not None and not changed.rowcount:
        raise RevisionError


def reported(node: int) -> Sequence[Portion]:
    """Return functions that delete all reports of a terminal."""
    tables = (PositionReport, LinkUsage, Blockage, PredictedBlockage, Announcement)
    return [rows_of(table, table.terminal, node) for table in tables]


def planned(beam: str) -> Sequence[Portion]:
    """Return functions that delete all plans of a beam."""
    return [rows_of(table, table.beam_id, beam) for table in (Acknowledgement, Plan)]


async def terminals_of_gateway(
    connection: AsyncConnection, gateway: int
) -> Sequence[Row[int, int, int | None, int | None]]:
    """Return the data that a gateway needs of the terminals that an operator assigned to it."""
    columns = (
        Terminal.node,
        Terminal.weight,
        Terminal.forward_maximum_bps,
        Terminal.return_maximum_bps,
    )
    query = select(*columns).where(Terminal.gateway == gateway).order_by(Terminal.node)
    return (await connection.execute(query)).all()


async def satellites(connection: AsyncConnection) -> Sequence[str]:
    """Return the satellites that beams use."""
    query = select(Beam.satellite).where(Beam.satellite.is_not(None)).distinct()
    return [name for name in await connection.scalars(query) if name is not None]


def tenant_since(tenant: str, now_ms: int) -> ColumnElement[int]:
    """Return the expression of since when a terminal belongs to a tenant that it is given now."""
    stays = Terminal.tenant_id == tenant
    return case((stays, Terminal.tenant_since_ms), else_=literal(now_ms, BigInteger))


async def own_since_ms(connection: AsyncConnection, node: int) -> int | None:
    """Return since when a terminal belongs to its tenant; None if there is no such terminal."""
    query = select(Terminal.tenant_since_ms).where(Terminal.node == node)
    return (await connection.execute(query)).scalar_one_or_none()


async def has_terminals(connection: AsyncConnection, beam: str) -> bool:
    """Tell whether a beam has any terminals."""
    query = select(Terminal.node).where(Terminal.beam_id == beam).limit(1)
    return (await connection.execute(query)).scalar_one_or_none() is not None


async def remove(
    connection: AsyncConnection, table: type[Beam] | type[Terminal], key: str | int
) -> bool:
    """Delete a row; tell whether it was there."""
    if table is Beam:
        # Planning locks the lease first and the beam second; the same order here avoids deadlocks.
        lease = select(Lease.beam_id).where(Lease.beam_id == key).with_for_update()
        await connection.execute(lease)
    gone = await connection.execute(delete(table).where(_key(table) == key))
    return gone.rowcount > 0


def _shown(table: type[Beam] | type[Terminal]) -> Select[Any]:
    if table is Terminal:
        return select(Terminal.__table__, OF_TERMINAL)
    return select(table.__table__)


def _key(table: type[Beam] | type[Terminal]) -> Any:
    return Beam.id if table is Beam else Terminal.node
