"""Terminals in bulk, within one transaction."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.fleet.change import Fleet, TerminalChange
from underpass_control.storage import attachments, registry
from underpass_control.storage.membership import portions_of
from underpass_control.storage.models import Beam, Tenant, Terminal
from underpass_control.storage.tags import OF_TERMINAL, put_tags, tags_of

# The number of terminals that are read at once.
_AT_ONCE = 500
# Columns of the table that a file has under another name.
_RENAMED = {"beam": "beam_id", "tenant": "tenant_id"}
_SETTINGS = (
    *("beam_id", "name", "weight", "gateway", "tenant_id", "opensand_id"),
    *("forward_minimum_bps", "forward_maximum_bps", "return_minimum_bps", "return_maximum_bps"),
)
_SHOWN_AS = {of: name for name, of in _RENAMED.items()}


def settings_of(row: Row[Any]) -> dict[str, Any]:
    """Return the columns of a file from a terminal's row with tags, except the node."""
    settings = {_SHOWN_AS.get(name, name): getattr(row, name) for name in _SETTINGS}
    return {**settings, "tags": tags_of(row)}


async def all_settings(connection: AsyncConnection) -> AsyncIterator[dict[str, Any]]:
    """Yield all terminals as in a file, in order of their nodes."""
    after: int | None = None
    while True:
        rows = await registry.page(connection, Terminal, after=after, limit=_AT_ONCE)
        for row in rows:
            yield {"node": row.node, **settings_of(row)}
        if len(rows) < _AT_ONCE:
            return
        after = rows[-1].node


async def read_fleet(
    connection: AsyncConnection, nodes: Collection[int], *, lock: bool = False
) -> Fleet:
    """Return the existing state, as far as it concerns these terminals.

    `lock`: until the transaction ends, no one else changes these terminals or deletes a tenant.
    """
    if lock and connection.dialect.name == "sqlite":
        # Before anything is read: the driver would begin to write only with the first change.
        await connection.exec_driver_sql("BEGIN IMMEDIATE")
    found: dict[int, Row[Any]] = {}
    for some in portions_of(sorted(nodes)):
        query = select(Terminal.__table__, OF_TERMINAL).where(Terminal.node.in_(some))
        if lock:
            query = query.with_for_update(of=Terminal)
        found |= {row.node: row for row in await connection.execute(query)}
    tenants = select(Tenant.id)
    if lock:
        tenants = tenants.with_for_update(read=True, key_share=True)
    numbers = await connection.execute(
        select(Terminal.beam_id, Terminal.opensand_id, Terminal.node).where(
            Terminal.opensand_id.is_not(None)
        )
    )
    return Fleet(
        terminals={node: settings_of(row) for node, row in found.items()},
        revisions={node: row.revision for node, row in found.items()},
        beams=set(await connection.scalars(select(Beam.id))),
        tenants=set(await connection.scalars(tenants)),
        opensand={(beam, number): node for beam, number, node in numbers if number is not None},
    )


async def put_changes(
    connection: AsyncConnection, changes: Sequence[TerminalChange], now_ms: int
) -> dict[int, Row[Any]]:
    """Make changes, one for each terminal; return the resulting rows, with tags.

    Raises:
        IntegrityError: A beam was just deleted, or another caller makes the same terminal.
    """
    ordered = sorted(changes, key=lambda one: one.node)
    await _assign(connection, [one for one in ordered if one.before is not None], now_ms)
    # An NCC's number may move from one terminal to another: first clear all that change.
    for some in portions_of([one.node for one in ordered if _renumbered(one)]):
        await connection.execute(
            update(Terminal).where(Terminal.node.in_(some)).values(opensand_id=None)
        )
    for some in portions_of([one.node for one in ordered if _changes_hands(one)]):
        await connection.execute(
            update(Terminal).where(Terminal.node.in_(some)).values(tenant_since_ms=now_ms)
        )
    new = [{"node": one.node, **_columns(one.after)} for one in ordered if one.before is None]
    old = [{"of": one.node, **_columns(one.after)} for one in ordered if one.before is not None]
    for rows in portions_of(new):
        await connection.execute(insert(Terminal), rows)
    change = (
        update(Terminal)
        .where(Terminal.node == bindparam("of"))
        .values({name: bindparam(name) for name in _SETTINGS} | {"revision": Terminal.revision + 1})
    )
    for rows in portions_of(old):
        await connection.execute(change, rows)
    await put_tags(connection, {one.node: one.after["tags"] for one in ordered})
    return await registry.terminals(connection, [one.node for one in ordered])


async def _assign(
    connection: AsyncConnection, changes: Iterable[TerminalChange], now_ms: int
) -> None:
    def gateway(one: TerminalChange) -> int:
        return one.after["gateway"] or 0

    for to, group in groupby(sorted(changes, key=gateway), key=gateway):
        for some in portions_of([one.node for one in group]):
            await attachments.assign(connection, some, to or None, now_ms)


def _renumbered(one: TerminalChange) -> bool:
    return one.before is not None and one.before["opensand_id"] is not None


def _changes_hands(one: TerminalChange) -> bool:
    return one.before is not None and one.before["tenant"] != one.after["tenant"]


def _columns(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {_RENAMED.get(name, name): to for name, to in settings.items() if name != "tags"}
