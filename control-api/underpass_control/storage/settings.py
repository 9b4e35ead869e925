"""What is set of terminals from afar: set, sent to their gateways, reported back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import and_, func, literal, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.attachments import SERVED_BY
from underpass_control.storage.changes import Change
from underpass_control.storage.models import Terminal
from underpass_control.storage.models import TerminalSettings as Table

# Of the format that nodes read.
_FORMAT = 1
# With what names and versions it, a document is within what a node takes.
MOST_BYTES = 60_000
# Classes, and paths.
MOST_ENTRIES = 32


ReportedState = Literal["trial", "confirmed", "rolled-back", "refused"]


@dataclass(frozen=True, slots=True)
class Reported:
    """What a terminal says has become of settings.

    Attributes:
        version: theirs.
        state: how far it is with them; on trial and confirmed ones are in force, else all is as it
            was before.
        reason: why they are not in force.
    """

    terminal: int
    version: int
    state: ReportedState
    reason: str | None
    received_ms: int

    @property
    def applied(self) -> bool:
        """Whether they are in force."""
        return self.state in ("trial", "confirmed")


async def put(
    connection: AsyncConnection, terminal: int, document: dict[str, Any], now_ms: int
) -> Row[Any]:
    """Set a terminal's settings, with a version above the last; return the row.

    Raises:
        IntegrityError: The terminal is not known.
    """
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    values = {"document": document, "set_ms": now_ms}
    made = dialect.insert(Table).values(terminal=terminal, version=now_ms, **values)
    # A clock that is set back, or that of another replica, gives no version twice.
    later = func.max if connection.dialect.name == "sqlite" else func.greatest
    version = later(Table.version + 1, now_ms)
    changed = made.on_conflict_do_update(
        index_elements=["terminal"], set_={"version": version, **values}
    )
    returned = changed.returning(*Table.__table__.columns)
    row: Row[Any] = (await connection.execute(returned)).one()
    return row


async def get(connection: AsyncConnection, terminal: int) -> Row[Any] | None:
    """Return the row of a terminal's settings."""
    found = await connection.execute(select(Table.__table__).where(Table.terminal == terminal))
    return found.one_or_none()


async def page(connection: AsyncConnection, *, after: int | None, limit: int) -> Sequence[Row[Any]]:
    """Return settings in order of terminals, from behind one on."""
    query = select(Table.__table__).order_by(Table.terminal).limit(limit)
    if after is not None:
        query = query.where(Table.terminal > after)
    return (await connection.execute(query)).all()


async def of_gateway(connection: AsyncConnection, gateway: int) -> Sequence[Row[Any]]:
    """Return terminal, version and document of the terminals that are at a gateway."""
    columns = (Table.terminal, Table.version, Table.document)
    query = select(*columns).join(Terminal, Terminal.node == Table.terminal)
    query = query.where(SERVED_BY.in_([gateway])).order_by(Table.terminal)
    return (await connection.execute(query)).all()


async def report(connection: AsyncConnection, given: Iterable[Reported]) -> list[Change]:
    """Store what terminals say; return the changes. What is said again changes nothing."""
    newest: dict[int, Reported] = {}
    for one in given:
        known = newest.get(one.terminal)
        if known is None or known.version < one.version or _follows(one, known):
            newest[one.terminal] = one
    changes: list[Change] = []
    for one in newest.values():
        older = or_(Table.reported_version.is_(None), Table.reported_version < one.version)
        # A restart may bring what was refused into force, and the other way round.
        same = Table.reported_version == one.version
        # That they were on trial, said late, takes back nothing that has come of it.
        differs = and_(same, Table.reported_state != one.state, literal(one.state != "trial"))
        # Settings that were never set here are an operator's at the gateway.
        known_here = Table.version >= one.version
        stored = (
            update(Table)
            .where(Table.terminal == one.terminal, known_here, or_(older, differs))
            .values(
                reported_version=one.version,
                applied=one.applied,
                reported_state=one.state,
                reason=one.reason,
                reported_ms=one.received_ms,
            )
        )
        if (await connection.execute(stored)).rowcount > 0:
            changes.append(change_of(one.terminal, one.version, one.state))
    return changes


def _follows(one: Reported, other: Reported) -> bool:
    """Tell whether what is said counts after something else: a trial comes before its end."""
    return one.version == other.version and one.state != "trial"


def change_of(terminal: int, version: int, action: str) -> Change:
    """Return the change that announces what is done with a terminal's settings."""
    return {"kind": "settings", "terminal": terminal, "settings": version, "action": action}


def fits(terminal: int, document: dict[str, Any]) -> bool:
    """Tell whether a document is no larger than what may be set."""
    few = all(len(entries) <= MOST_ENTRIES for entries in document.values())
    return few and len(wire(terminal, 0, document)) <= MOST_BYTES


def wire(terminal: int, version: int, document: dict[str, Any]) -> bytes:
    """Return the document that nodes are sent."""
    whole = {"version": _FORMAT, "settings": version, "node": terminal, **document}
    return json.dumps(whole, separators=(",", ":")).encode()
