"""Terminals' announcements of blockages ahead."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction import Announcement
from dama.prediction.announcement import MAX_DURATION_MS
from underpass_control.instants import milliseconds_of, moment_of, rfc3339
from underpass_control.storage.bulk import BulkInsert
from underpass_control.storage.changes import Change, listed
from underpass_control.storage.membership import among
from underpass_control.storage.models import Announcement as Table
from underpass_control.storage.models import Terminal


@dataclass(frozen=True, slots=True)
class Announced:
    """An announcement and its terminal."""

    terminal: int
    announcement: Announcement
    received_ms: int


_COLUMNS = (
    "terminal",
    "announced_ms",
    "entry_ms",
    "duration_ms",
    "confidence",
    "obstruction",
    "received_ms",
)
_INSERT = BulkInsert(Table, _COLUMNS, "DO NOTHING")


async def put(connection: AsyncConnection, announced: Iterable[Announced]) -> None:
    """Store announcements; those already stored are left unchanged."""
    rows = [
        (
            one.terminal,
            one.announcement.announced_ms,
            one.announcement.entry_ms,
            one.announcement.duration_ms,
            one.announcement.confidence,
            one.announcement.obstruction_id,
            one.received_ms,
        )
        for one in announced
    ]
    await _INSERT.execute(connection, rows)


async def page(
    connection: AsyncConnection,
    terminal: int,
    *,
    after: tuple[int, int] | None = None,
    limit: int,
) -> list[tuple[int, Announced]]:
    """Return a terminal's announcements, the latest first, each with its row's number.

    `after` is the time and the number of the last one on the page before.
    """
    query = select(Table.__table__).where(Table.terminal == terminal)
    if after is not None:
        query = query.where(tuple_(Table.announced_ms, Table.id) < after)
    query = query.order_by(Table.announced_ms.desc(), Table.id.desc()).limit(limit)
    return [(row.id, _of_row(row)) for row in await connection.execute(query)]


async def open_ones(
    connection: AsyncConnection,
    beam: str,
    now_ms: int,
    terminals: Collection[int] | None = None,
) -> list[Announced]:
    """Return the announcements whose blockages are not over, of a beam's terminals or some."""
    rows = await connection.execute(
        select(Table.__table__)
        .join(Terminal, Terminal.node == Table.terminal)
        .where(
            among(beam, terminals),
            Table.entry_ms > now_ms - MAX_DURATION_MS,
            Table.entry_ms + Table.duration_ms > now_ms,
        )
        .order_by(Table.announced_ms)
    )
    return [_of_row(row) for row in rows]


def _of_row(row: Any) -> Announced:
    announcement = Announcement(
        row.announced_ms, row.entry_ms, row.duration_ms, row.confidence, row.obstruction
    )
    return Announced(row.terminal, announcement, row.received_ms)


def changes_of(announced: Iterable[Announced]) -> Iterator[Change]:
    """Return the changes that publish announcements, several in each."""
    return listed("announcements", map(shown, announced))


def shown(one: Announced) -> dict[str, Any]:
    """Return an announcement as the API shows it."""
    said = one.announcement
    document: dict[str, Any] = {
        "terminal": one.terminal,
        "announced": rfc3339(moment_of(said.announced_ms)),
        "entry": rfc3339(moment_of(said.entry_ms)),
        "duration_ms": said.duration_ms,
        "confidence": said.confidence,
        "received": rfc3339(moment_of(one.received_ms)),
    }
    if said.obstruction_id is not None:
        document["obstruction"] = said.obstruction_id
    return document


def of_change(change: Mapping[str, Any]) -> Iterator[tuple[int, Announcement]]:
    """Yield what a change of the kind `announcements` tells, with whose it is."""
    for one in change["announcements"]:
        announcement = Announcement(
            milliseconds_of(one["announced"]),
            milliseconds_of(one["entry"]),
            one["duration_ms"],
            one["confidence"],
            one.get("obstruction"),
        )
        yield one["terminal"], announcement
