"""The last reports of nodes about themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Literal

from sqlalchemy import select, tuple_
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.attachments import SERVED_BY
from underpass_control.storage.bulk import BulkInsert
from underpass_control.storage.models import NodeReport as Table
from underpass_control.storage.models import Terminal

Role = Literal["terminal", "gateway"]


@dataclass(frozen=True, slots=True)
class NodeReport:
    """A node's report about itself; the fields are those of the table."""

    node: int
    role: Role
    terminal: int | None
    version: str
    certificate_end_ms: int | None
    time_ms: int

    @property
    def key(self) -> tuple[int, str]:
        """Whose it is."""
        return self.node, self.role


_COLUMNS = tuple(one.name for one in fields(NodeReport))
_values = attrgetter(*_COLUMNS)
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[3:])
_PUT = BulkInsert(
    Table,
    _COLUMNS,
    f"(node, role) DO UPDATE SET {_CHANGES} WHERE excluded.time_ms > node_report.time_ms",
)


async def put(connection: AsyncConnection, given: Iterable[NodeReport]) -> None:
    """Store nodes' reports; one that is older than the stored one changes nothing.

    Gateways are stored only if they serve a terminal: a token for all gateways could name any
    number of them.
    """
    newest: dict[tuple[int, str], NodeReport] = {}
    for one in sorted(given, key=lambda one: one.time_ms):
        newest[one.key] = one
    gateways = {node for node, role in newest if role == "gateway"}
    for gateway in gateways - await _serving(connection, gateways):
        del newest[gateway, "gateway"]
    await _PUT.execute(connection, [_values(newest[key]) for key in sorted(newest)])


async def _serving(connection: AsyncConnection, gateways: Iterable[int]) -> set[int]:
    """Return those of some gateways that serve terminals."""
    asked = list(gateways)
    if not asked:
        return set()
    query = select(SERVED_BY).where(SERVED_BY.in_(asked)).distinct()
    return {node for node in await connection.scalars(query) if node is not None}


async def page(
    connection: AsyncConnection,
    *,
    after: tuple[int, str] | None,
    limit: int,
    role: Role | None = None,
) -> Sequence[Row[Any]]:
    """Return the rows after a node and role, in order of both; of one role, if that is given."""
    query = select(Table.__table__).order_by(Table.node, Table.role).limit(limit)
    if role is not None:
        query = query.where(Table.role == role)
    if after is not None:
        query = query.where(tuple_(Table.node, Table.role) > after)
    return (await connection.execute(query)).all()


async def of_terminal(connection: AsyncConnection, terminal: int) -> tuple[bool, Row[Any] | None]:
    """Return whether a terminal exists, and its report about itself, if any."""
    known = await connection.execute(select(Terminal.node).where(Terminal.node == terminal))
    if known.first() is None:
        return False, None
    found = await connection.execute(select(Table.__table__).where(Table.terminal == terminal))
    return True, found.one_or_none()
