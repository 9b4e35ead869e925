"""Remote settings of terminals and gateways: set, sent to gateways, reported back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any, Literal

from sqlalchemy import ColumnElement, and_, func, literal, or_, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.attachments import SERVED_BY
from underpass_control.storage.changes import Change, RevisionError
from underpass_control.storage.membership import portions_of
from underpass_control.storage.models import GatewaySettings, Terminal, TerminalSettings

# The version of the format that nodes read.
_FORMAT = 1
# Together with its name and version, a document is within a node's limit.
MOST_BYTES = 60_000
# The most classes, and the most paths.
MOST_ENTRIES = 32
# The most terminals of a gateway, and the most paths of a terminal.
MOST_TERMINALS = 500
# The version where nothing is set: all others are times, ms, or above.
NOTHING_SET = 0


ReportedState = Literal["trial", "confirmed", "rolled-back", "refused"]


@dataclass(frozen=True, slots=True)
class Reported:
    """The state of settings, as reported by a terminal or, for its own, by a gateway.

    Attributes:
        node: the terminal's number, or the gateway's.
        version: theirs.
        state: those on trial or confirmed are in force, otherwise the former ones are.
        reason: why they are not in force.
    """

    node: int
    version: int
    state: ReportedState
    reason: str | None
    received_ms: int
    by_gateway: bool = False

    @property
    def applied(self) -> bool:
        """Whether they are in force."""
        return self.state in ("trial", "confirmed")

    @property
    def table(self) -> Table:
        """Where these are."""
        return GatewaySettings if self.by_gateway else TerminalSettings


Table = type[TerminalSettings] | type[GatewaySettings]


async def put(
    connection: AsyncConnection,
    node: int,
    document: dict[str, Any],
    now_ms: int,
    *,
    table: Table = TerminalSettings,
    replaced: int | None = None,
) -> Row[Any]:
    """Set the settings of a terminal, or gateway, with a version above the last; return the row.

    Raises:
        IntegrityError: The terminal is not known.
        RevisionError: `replaced` is given and is not their version.
    """
    key = _key(table).name
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    values = {"document": document, "set_ms": now_ms}
    made = dialect.insert(table).values({key: node, "version": now_ms, **values})
    # No version is used twice, even if a clock is set back or another replica's differs.
    later = func.max if connection.dialect.name == "sqlite" else func.greatest
    version = later(table.version + 1, now_ms)
    changed = made.on_conflict_do_update(
        index_elements=[key],
        set_={"version": version, **values},
        where=None if replaced is None else table.version == replaced,
    )
    returned = changed.returning(*table.__table__.columns)
    row: Row[Any] | None = (await connection.execute(returned)).one_or_none()
    if row is None:
        raise RevisionError
    return row


async def get(
    connection: AsyncConnection, node: int, *, table: Table = TerminalSettings
) -> Row[Any] | None:
    """Return the row of a terminal's settings, or of a gateway's."""
    found = await connection.execute(select(table.__table__).where(_key(table) == node))
    return found.one_or_none()


async def page(connection: AsyncConnection, *, after: int | None, limit: int) -> Sequence[Row[Any]]:
    """Return the settings after a terminal, in order of terminals."""
    terminal = _key(TerminalSettings)
    query = select(TerminalSettings.__table__).order_by(terminal).limit(limit)
    if after is not None:
        query = query.where(terminal > after)
    return (await connection.execute(query)).all()


def _key(table: Table) -> ColumnElement[int]:
    [column] = table.__table__.primary_key
    return column


@dataclass(frozen=True, slots=True)
class Outgoing:
    """Settings that are sent to a gateway: a terminal's, or its own."""

    node: int
    is_own: bool
    version: int
    document: dict[str, Any]


# A node, and whether these are a gateway's own settings.
Whose = tuple[int, bool]


async def of_gateway(
    connection: AsyncConnection, gateway: int, sent: Mapping[Whose, int]
) -> tuple[AbstractSet[Whose], list[Outgoing]]:
    """Return whose settings a gateway gets, and those with versions above the ones sent so far.

    Only the latter are read: one change would otherwise cost all documents, many MB of a large
    fleet.
    """
    table = TerminalSettings
    of_terminals = select(table.terminal, table.version)
    at_it = of_terminals.join(Terminal, Terminal.node == table.terminal)
    known = await connection.execute(at_it.where(SERVED_BY.in_([gateway])))
    versions: dict[Whose, int] = {(row.terminal, False): row.version for row in known}
    of_own = select(GatewaySettings.version).where(_key(GatewaySettings) == gateway)
    own_version = await connection.scalar(of_own)
    if own_version is not None:
        versions[gateway, True] = own_version
    newer = {whose for whose, version in versions.items() if sent.get(whose, 0) < version}
    found: list[Outgoing] = []
    for some in portions_of(sorted(node for node, is_own in newer if not is_own)):
        query = of_terminals.add_columns(table.document).where(table.terminal.in_(some))
        rows = await connection.execute(query.order_by(table.terminal))
        found += [Outgoing(row.terminal, False, row.version, row.document) for row in rows]
    own = None
    if (gateway, True) in newer:
        own = await get(connection, gateway, table=GatewaySettings)
    if own is not None:
        found.append(Outgoing(gateway, True, own.version, own.document))
    return versions.keys(), found


async def report(connection: AsyncConnection, given: Iterable[Reported]) -> list[Change]:
    """Store nodes' reports; return the changes. A repeated report changes nothing."""
    newest: dict[tuple[int, bool], Reported] = {}
    for one in given:
        whose = one.node, one.by_gateway
        known = newest.get(whose)
        if known is None or known.version < one.version or _follows(one, known):
            newest[whose] = one
    changes: list[Change] = []
    for one in newest.values():
        table = one.table
        older = or_(table.reported_version.is_(None), table.reported_version < one.version)
        # A restart may bring refused settings into force, and the other way round.
        same = table.reported_version == one.version
        # A late report of the trial does not undo its reported result.
        differs = and_(same, table.reported_state != one.state, literal(one.state != "trial"))
        # Settings that were never set here are an operator's at the gateway.
        known_here = table.version >= one.version
        stored = (
            update(table)
            .where(_key(table) == one.node, known_here, or_(older, differs))
            .values(
                reported_version=one.version,
                applied=one.applied,
                reported_state=one.state,
                reason=one.reason,
                reported_ms=one.received_ms,
            )
        )
        if (await connection.execute(stored)).rowcount > 0:
            change = change_of(one.node, one.version, one.state, by_gateway=one.by_gateway)
            changes.append(change)
    return changes


def _follows(one: Reported, other: Reported) -> bool:
    """Tell whether a report counts after another: a trial comes before its result."""
    return one.version == other.version and one.state != "trial"


def change_of(node: int, version: int, action: str, *, by_gateway: bool = False) -> Change:
    """Return the change that announces the state of a terminal's or gateway's settings."""
    whose = "gateway" if by_gateway else "terminal"
    return {"kind": "settings", whose: node, "settings": version, "action": action}


def fits(node: int, document: dict[str, Any]) -> bool:
    """Tell whether a document is within the size limit."""
    few = all(
        len(entries) <= (MOST_TERMINALS if kind == "terminal" else MOST_ENTRIES)
        for kind, entries in document.items()
    )
    return few and len(wire(node, 0, document)) <= MOST_BYTES


def wire(node: int, version: int, document: dict[str, Any]) -> bytes:
    """Return the document that is sent to nodes."""
    whole = {"version": _FORMAT, "settings": version, "node": node, **document}
    return json.dumps(whole, separators=(",", ":")).encode()
