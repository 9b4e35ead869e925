"""Position reports: stored in large numbers, read by terminal and time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import ColumnElement, Select, delete, exists, func, literal, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import aliased

from underpass_control.instants import milliseconds_of, moment_of, rfc3339
from underpass_control.storage.bulk import BulkInsert
from underpass_control.storage.changes import Change, Changes, listed
from underpass_control.storage.database import DatabaseLostError
from underpass_control.storage.membership import among
from underpass_control.storage.models import PositionReport, Terminal
from underpass_control.storage.tags import tagged

# Reports in one transaction at most: a commit costs the same for many as for one.
_MOST_AT_ONCE = 5000
# How often receivers usually report.
_USUAL_MS = 1_000
# No report has a time that is further off.
_BEYOND_MS = 2**60


class Position(NamedTuple):
    """Where a terminal was; the fields are those of the table, in its units."""

    terminal: int
    time_ms: int
    longitude: float
    latitude: float
    speed_mps: float | None = None
    heading_deg: float | None = None
    altitude_m: float | None = None
    accuracy_m: float | None = None
    gnss_time_ms: int | None = None
    node_time_ms: int | None = None
    received_ms: int = 0
    clocks_differ: bool = False


_INSERT = BulkInsert(PositionReport, Position._fields, "DO NOTHING")


class BusyError(RuntimeError):
    """Too many reports wait to be stored, in all or of one party."""


@dataclass
class _Batch:
    positions: Sequence[Position]
    party: Hashable
    stored: asyncio.Future[None]


class PositionWriter:
    """Stores reports in transactions that many callers share.

    A caller returns when its own reports are committed; meanwhile the next transaction gathers.
    """

    def __init__(self, changes: Changes, *, capacity: int = 50_000) -> None:
        """Take `capacity` reports that wait at most."""
        self._changes = changes
        self._capacity = capacity
        self._waiting = 0
        # How many of each party wait.
        self._of: Counter[Hashable] = Counter()
        self._queue: asyncio.Queue[_Batch] = asyncio.Queue()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to store; `close` ends it."""
        self._task = asyncio.create_task(self._run(), name="position-writer")

    async def store(self, positions: Sequence[Position], party: Hashable = None) -> None:
        """Return when the reports are committed; those already there are left as they are.

        If the party is given, it may have at most as many waiting as there is room left, so it
        cannot lock the others out.

        Raises:
            BusyError: Too many wait already; nothing was taken.
            DatabaseLostError: They may be sent again later.
            IntegrityError: A terminal is not known; none of them was stored.
        """
        room, own = self._capacity - self._waiting, self._of[party]
        if len(positions) > room or (party is not None and own + len(positions) > room):
            raise BusyError(f"{self._waiting} reports wait to be stored, {own} of them of yours")
        batch = _Batch(positions, party, asyncio.get_running_loop().create_future())
        self._waiting += len(positions)
        self._of[party] += len(positions)
        self._queue.put_nowait(batch)
        await batch.stored

    @property
    def waiting(self) -> int:
        """Return how many reports wait."""
        return self._waiting

    async def close(self) -> None:
        """Store what waits, and end."""
        if self._task:
            await self._queue.join()
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            batches = await self._gather()
            try:
                await self._commit(batches)
            except Exception as error:
                await self._separately(batches, error)
            for batch in batches:
                self._waiting -= len(batch.positions)
                self._of[batch.party] -= len(batch.positions)
                if not self._of[batch.party]:
                    del self._of[batch.party]
                self._queue.task_done()

    async def _gather(self) -> list[_Batch]:
        batches = [await self._queue.get()]
        count = len(batches[0].positions)
        while count < _MOST_AT_ONCE and not self._queue.empty():
            batches.append(self._queue.get_nowait())
            count += len(batches[-1].positions)
        return batches

    async def _commit(self, batches: Sequence[_Batch]) -> None:
        positions = [position for batch in batches for position in batch.positions]
        async with self._changes.transaction() as (connection, publish):
            await _INSERT.execute(connection, positions)
            for change in _told(positions):
                publish(change)
        for batch in batches:
            if not batch.stored.done():
                batch.stored.set_result(None)

    async def _separately(self, batches: Sequence[_Batch], error: Exception) -> None:
        """Store each batch separately, so that only the callers with wrong reports get an error."""
        if len(batches) == 1 or isinstance(error, DatabaseLostError):
            for batch in batches:
                _fail(batch, error)
            return
        for batch in batches:
            try:
                await self._commit([batch])
            except Exception as own:
                _fail(batch, own)


def _told(positions: Iterable[Position]) -> Iterator[Change]:
    """Return the positions in order of time, each once, some in each change.

    All of them are announced: a road is recognised only from several fixes in a row.
    """
    stored: dict[tuple[int, int], Position] = {}
    for one in positions:
        stored.setdefault((one.time_ms, one.terminal), one)
    return listed("positions", (_shown(stored[key]) for key in sorted(stored)))


def _shown(position: Position) -> dict[str, object]:
    shown: dict[str, object] = {
        "terminal": position.terminal,
        "time": rfc3339(moment_of(position.time_ms)),
        "longitude": position.longitude,
        "latitude": position.latitude,
    }
    if position.speed_mps is not None:
        shown["speed_mps"] = position.speed_mps
    if position.heading_deg is not None:
        shown["heading_deg"] = position.heading_deg
    if position.accuracy_m is not None:
        shown["accuracy_m"] = position.accuracy_m
    return shown


def of_change(change: Change) -> Iterator[Position]:
    """Yield the positions that a change of the kind `positions` tells."""
    for one in change["positions"]:
        values = {name: value for name, value in one.items() if name != "time"}
        yield Position(time_ms=milliseconds_of(one["time"]), **values)


def _fail(batch: _Batch, error: Exception) -> None:
    if not batch.stored.done():
        batch.stored.set_exception(error)


async def newest(connection: AsyncConnection, terminal: int, until_ms: int) -> Position | None:
    """Return a terminal's newest report before `until_ms`."""
    found = await track(connection, terminal, until_ms=until_ms, limit=1, newest_first=True)
    return found[0] if found else None


async def newest_of_all(
    connection: AsyncConnection,
    until_ms: int,
    *,
    beam: str | None = None,
    tag: str | None = None,
    after: int | None = None,
    limit: int = 100,
) -> list[Position]:
    """Return each terminal's newest report before a time, in order of terminals.

    They are those of one beam, of those with a tag, or of all.

    `after` is the terminal of the last one of the page before. Terminals that have reported no
    position are not among them.
    """
    table = PositionReport.__table__
    newest_ms = (
        select(func.max(PositionReport.time_ms))
        .where(PositionReport.terminal == Terminal.node, PositionReport.time_ms < until_ms)
        .correlate(Terminal)
        .scalar_subquery()
    )
    query = (
        select(table)
        .join(Terminal, PositionReport.terminal == Terminal.node)
        .where(PositionReport.time_ms == newest_ms)
    )
    if beam is not None:
        query = query.where(Terminal.beam_id == beam)
    if tag is not None:
        query = query.where(tagged(tag))
    if after is not None:
        query = query.where(Terminal.node > after)
    rows = await connection.execute(query.order_by(Terminal.node).limit(limit))
    return [Position(**row) for row in rows.mappings()]


async def track(
    connection: AsyncConnection,
    terminal: int,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
    after_ms: int | None = None,
    limit: int = 1000,
    newest_first: bool = False,
    apart_ms: int | None = None,
) -> list[Position]:
    """Return a terminal's reports from `since_ms` to before `until_ms`, in order of time.

    Args:
        connection: where they are read.
        terminal: whose they are.
        since_ms: from when on.
        until_ms: before when.
        after_ms: the time of the last one of the page before.
        limit: how many at most.
        newest_first: the other order.
        apart_ms: of each interval of so long since the epoch, the one that is first in the order.
    """
    time_ms = PositionReport.time_ms
    wanted = [PositionReport.terminal == terminal]
    if since_ms is not None:
        wanted.append(time_ms >= since_ms)
    if until_ms is not None:
        wanted.append(time_ms < until_ms)
    if after_ms is not None:
        if apart_ms is not None:
            start_ms = after_ms // apart_ms * apart_ms
            after_ms = start_ms if newest_first else start_ms + apart_ms - 1
            # A cursor may be anybody's making.
            after_ms = max(-_BEYOND_MS, min(after_ms, _BEYOND_MS))
        wanted.append(time_ms < after_ms if newest_first else time_ms > after_ms)
    if apart_ms is not None:
        wanted = [
            PositionReport.terminal == terminal,
            time_ms.in_(_apart(wanted, apart_ms, limit, newest_first=newest_first)),
        ]
    query = select(PositionReport.__table__).where(*wanted).limit(limit)
    rows = await connection.execute(query.order_by(time_ms.desc() if newest_first else time_ms))
    return [Position(**row) for row in rows.mappings()]


def _apart(
    wanted: Sequence[ColumnElement[bool]], apart_ms: int, limit: int, *, newest_first: bool
) -> Select[tuple[int | None]]:
    """Return the times of the first wanted report of each interval.

    Each is sought in the index from the one before: reports between them cost nothing.
    """
    time_ms = PositionReport.time_ms
    first = func.max(time_ms) if newest_first else func.min(time_ms)
    one = select(first.label("time_ms"), literal(1).label("count")).where(*wanted)
    found = one.cte("found", recursive=True)
    start_ms = found.c.time_ms - found.c.time_ms % apart_ms
    beyond = time_ms < start_ms if newest_first else time_ms >= start_ms + apart_ms
    then = select(first).where(*wanted, beyond).scalar_subquery()
    again = select(then, found.c.count + 1).where(
        found.c.count < limit, found.c.time_ms.is_not(None)
    )
    return select(found.union_all(again).c.time_ms)


async def recent(
    connection: AsyncConnection,
    beam: str,
    *,
    since_ms: int,
    until_ms: int,
    within_ms: int,
    most: int,
    terminals: Collection[int] | None = None,
) -> list[Position]:
    """Return the last part of the track of each terminal of a beam, or of some, in order of time.

    That is what each reported within so long before its newest report before `until_ms`, if that is
    not before `since_ms`. Of so many terminals that one report a second of each would be more than
    `most` in all, there are fewer of each: as far apart as it takes, the newest and another one at
    least.
    """
    time_ms = PositionReport.time_ms
    newest = (
        select(func.max(time_ms))
        .where(PositionReport.terminal == Terminal.node, time_ms < until_ms)
        .scalar_subquery()
    )
    ends = select(Terminal.node, newest.label("newest_ms")).where(among(beam, terminals)).subquery()
    newest_ms = ends.c.newest_ms
    count = await connection.scalar(
        select(func.count()).select_from(ends).where(newest_ms >= since_ms)
    )
    wanted = (newest_ms >= since_ms, time_ms >= newest_ms - within_ms, time_ms <= newest_ms)
    query = select(PositionReport.__table__)
    apart_ms = within_ms // max(most // max(count or 0, 1), 2)
    if apart_ms > _USUAL_MS:
        # The last report of each interval, counted back from the newest one.
        kept = (
            select(PositionReport.terminal, func.max(time_ms).label("time_ms"))
            .join(ends, PositionReport.terminal == ends.c.node)
            .where(*wanted)
            .group_by(PositionReport.terminal, (newest_ms - time_ms) // apart_ms)
            .subquery()
        )
        is_kept = (PositionReport.terminal == kept.c.terminal) & (time_ms == kept.c.time_ms)
        query = query.join(kept, is_kept)
    else:
        query = query.join(ends, PositionReport.terminal == ends.c.node).where(*wanted)
    rows = await connection.execute(query.order_by(time_ms))
    return [Position(**row) for row in rows.mappings()]


async def dated_ahead(
    connection: AsyncConnection,
    beam: str,
    since_ms: int,
    *,
    limit: int,
    terminals: Collection[int] | None = None,
) -> list[Position]:
    """Return what a beam's terminals, or some, have reported for a time and later, in its order.

    Of each terminal, that is the first `limit` reports.
    """
    number = func.row_number().over(
        partition_by=PositionReport.terminal, order_by=PositionReport.time_ms
    )
    ahead = (
        select(PositionReport.__table__, number.label("number"))
        .join(Terminal, PositionReport.terminal == Terminal.node)
        .where(among(beam, terminals), PositionReport.time_ms >= since_ms)
        .subquery()
    )
    query = select(*(ahead.c[name] for name in Position._fields)).where(ahead.c.number <= limit)
    rows = await connection.execute(query.order_by(ahead.c.time_ms))
    return [Position(**row) for row in rows.mappings()]


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int = 50_000) -> int:
    """Delete at most `limit` reports older than a time, but never a terminal's newest.

    Return how many: another call is due while it is the limit.
    """
    newer = aliased(PositionReport)
    has_newer = exists().where(
        newer.terminal == PositionReport.terminal, newer.time_ms > PositionReport.time_ms
    )
    old = (
        select(PositionReport.terminal, PositionReport.time_ms)
        .where(PositionReport.time_ms < before_ms, has_newer)
        .limit(limit)
    )
    result = await connection.execute(
        delete(PositionReport).where(
            tuple_(PositionReport.terminal, PositionReport.time_ms).in_(old)
        )
    )
    return result.rowcount
