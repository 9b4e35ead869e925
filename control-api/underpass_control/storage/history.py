"""Expected and observed blockages as one list."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, delete, or_, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage import blockages, expectations
from underpass_control.storage.expectations import PASSED, PREDICTED, WITHDRAWN
from underpass_control.storage.models import Announcement, Blockage, PredictedBlockage, Terminal

OBSERVED = "observed"
EXPECTED = (PREDICTED, PASSED, WITHDRAWN)


@dataclass(frozen=True, order=True, slots=True)
class Place:
    """A place in the list, ordered by entry; expected blockages come before observed ones."""

    entry_ms: int
    is_observed: bool
    id: int


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which blockages: those that began from `since_ms` to before `until_ms`."""

    states: Collection[str] = (*EXPECTED, OBSERVED)
    terminal: int | None = None
    beam: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    newest_first: bool = False


async def page(
    connection: AsyncConnection, wanted: Wanted, *, after: Place | None, limit: int
) -> list[tuple[Place, dict[str, Any]]]:
    """Return the blockages after a place, each as the API shows it and with its own place."""
    found: list[tuple[Place, dict[str, Any]]] = []
    states = [state for state in wanted.states if state in EXPECTED]
    if states:
        of_state = PredictedBlockage.state.in_(states)
        for row in await _rows(connection, PredictedBlockage, wanted, after, limit, of_state):
            place = Place(row["entry_ms"], False, row["id"])
            found.append((place, expectations.shown(row)))
    if OBSERVED in wanted.states:
        for row in await _rows(connection, Blockage, wanted, after, limit):
            place = Place(row["entry_ms"], True, row["id"])
            found.append((place, blockages.shown(blockages.of_row(row))))
    found.sort(key=lambda one: one[0], reverse=wanted.newest_first)
    return found[:limit]


async def _rows(
    connection: AsyncConnection,
    table: type[Blockage] | type[PredictedBlockage],
    wanted: Wanted,
    after: Place | None,
    limit: int,
    *where: ColumnElement[bool],
) -> list[Mapping[str, Any]]:
    query = select(table.__table__).where(*where)
    if wanted.terminal is not None:
        query = query.where(table.terminal == wanted.terminal)
    if wanted.beam is not None:
        query = query.join(Terminal, Terminal.node == table.terminal).where(
            Terminal.beam_id == wanted.beam
        )
    if wanted.since_ms is not None:
        query = query.where(table.entry_ms >= wanted.since_ms)
    if wanted.until_ms is not None:
        query = query.where(table.entry_ms < wanted.until_ms)
    if after is not None:
        query = query.where(_behind(table, after, newest_first=wanted.newest_first))
    order = [table.entry_ms, table.id]
    if wanted.newest_first:
        query = query.order_by(*(column.desc() for column in order))
    else:
        query = query.order_by(*order)
    rows = await connection.execute(query.limit(limit))
    return [row._asdict() for row in rows]


def _behind(
    table: type[Blockage] | type[PredictedBlockage], after: Place, *, newest_first: bool
) -> ColumnElement[bool]:
    is_observed = table is Blockage
    here = table.entry_ms == after.entry_ms
    if newest_first:
        further = table.entry_ms < after.entry_ms
        rest = after.is_observed and not is_observed
        same = tuple_(table.entry_ms, table.id) < (after.entry_ms, after.id)
    else:
        further = table.entry_ms > after.entry_ms
        rest = is_observed and not after.is_observed
        same = tuple_(table.entry_ms, table.id) > (after.entry_ms, after.id)
    if is_observed == after.is_observed:
        return same
    return or_(further, here) if rest else further


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int = 5_000) -> int:
    """Delete at most `limit` blockages, and announcements of them, that began before a time.

    An observed one that lasts stays: its node reports it only once more, at its end, and alerts and
    the ledger go by it until then.

    Return how many: another call is due while it is the limit.
    """
    count = 0
    for table in (Blockage, PredictedBlockage, Announcement):
        old = select(table.id).where(table.entry_ms < before_ms).limit(limit - count)
        if table is Blockage:
            old = old.where(Blockage.exit_ms.is_not(None))
        result = await connection.execute(delete(table).where(table.id.in_(old)))
        count += result.rowcount
    return count
