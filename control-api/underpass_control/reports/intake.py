"""Reports taken in: read, sorted, stored in one transaction, told."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.metrics import Metrics
from underpass_control.planning import acknowledgements
from underpass_control.reports import messages
from underpass_control.reports.sorting import MOST_LINKS, RefusedError, Sorted, Sorter
from underpass_control.storage import announcements, blockages, links, usage
from underpass_control.storage.changes import Announce, Changes
from underpass_control.storage.database import Database
from underpass_control.storage.links import LinkState
from underpass_control.storage.models import Terminal
from underpass_control.storage.positions import PositionWriter


class TooManyError(ValueError):
    """The post has more in it than is taken in at once."""


@dataclass(frozen=True)
class Refused:
    """A report that was not taken in: its place in the post, and why."""

    index: int
    detail: str


class Intake:
    """Takes in what gateways post.

    A report that comes again changes nothing: positions and announcements are known by their
    times, blockages by their entries, link states and counts by their order among those of a run.
    """

    def __init__(
        self,
        database: Database,
        changes: Changes,
        writer: PositionWriter,
        metrics: Metrics,
        show_terminal: Callable[[Any], dict[str, Any]],
    ) -> None:
        """Take, too, how a terminal's row is shown where it has changed."""
        self._database = database
        self._changes = changes
        self._writer = writer
        self._metrics = metrics
        self._show_terminal = show_terminal

    async def take(self, post: messages.ReportPost, received_ms: int) -> list[Refused]:
        """Store a post's reports; return those that were refused.

        Raises:
            TooManyError: Too many links; nothing was stored.
            BusyError, DatabaseLostError, IntegrityError: Not all is stored; the same may be sent
                again.
        """
        read, refused = _read(post)
        found, more = await self._sort(post.node, received_ms, read)
        await asyncio.gather(self._store_positions(found), self._store(post.node, found))
        refused += more
        for _, entry in read:
            self._metrics.reports.labels(entry.report.kind).inc()
        self._metrics.reports_refused.inc(len(refused))
        self._metrics.reports_of_strangers.inc(len(found.strangers))
        return sorted(refused, key=lambda one: one.index)

    async def _sort(
        self, gateway: int, received_ms: int, read: list[tuple[int, messages.ReportEntry]]
    ) -> tuple[Sorted, list[Refused]]:
        named = {node for _, entry in read for node in _named(entry)}
        if len(named) > MOST_LINKS:
            raise TooManyError(f"more than {MOST_LINKS} terminals in one post")
        async with self._database.reading() as connection:
            rows = await connection.execute(select(Terminal.node).where(Terminal.node.in_(named)))
            known = {row.node for row in rows}
        sorter = Sorter(gateway, received_ms, known)
        found, refused = Sorted(), []
        for index, entry in read:
            try:
                sorter.sort(entry, found)
            except RefusedError as error:
                refused.append(Refused(index, str(error)))
        return found, refused

    async def _store_positions(self, found: Sorted) -> None:
        if found.positions:
            await self._writer.store(found.positions)
            self._metrics.positions.inc(len(found.positions))

    async def _store(self, gateway: int, found: Sorted) -> None:
        others = (found.states, found.blockages, found.announcements, found.acknowledgements)
        if not any(others):
            return
        async with self._changes.transaction() as (connection, announce):
            newest = await _newest(connection, found.states)
            await links.put(connection, newest)
            await usage.count(connection, found.counts)
            await self._learn(connection, announce, gateway, newest)
            observed = await blockages.observe(connection, found.blockages)
            up = {(s.terminal, s.link, s.path): s.time_ms for s in newest if s.state == "up"}
            lifted = await blockages.lift(connection, up)
            await announcements.put(connection, found.announcements)
            await acknowledgements.store(connection, announce, found.acknowledgements)
            for change in (
                *links.told(newest),
                *blockages.told([*observed, *lifted]),
                *announcements.told(found.announcements),
            ):
                announce(change)
        self._measure(observed)

    async def _learn(
        self,
        connection: AsyncConnection,
        announce: Announce,
        gateway: int,
        newest: Iterable[LinkState],
    ) -> None:
        """Learn which gateway terminals are at: the one that posts what they say themselves.

        A gateway's own word counts for those only that have said nothing yet: one that a terminal
        has left goes on speaking of it.
        """
        own = {state.terminal for state in newest if state.node == state.terminal}
        spoken_of = {state.terminal for state in newest} - own
        elsewhere = Terminal.heard_by.is_(None) | (Terminal.heard_by != gateway)
        for terminals, where in ((own, elsewhere), (spoken_of, Terminal.heard_by.is_(None))):
            if not terminals:
                continue
            rows = await connection.execute(
                update(Terminal)
                .where(Terminal.node.in_(terminals), where)
                .values(heard_by=gateway, revision=Terminal.revision + 1)
                .returning(Terminal.__table__)
            )
            for row in rows.all():
                state = self._show_terminal(row)
                announce(
                    {"kind": "terminal", "terminal": row.node, "action": "set", "state": state}
                )

    def _measure(self, observed: Iterable[blockages.Observed]) -> None:
        for one in observed:
            if not (one.is_sensed and one.exit_reported):
                continue
            expected = one.entry_error_ms is not None
            self._metrics.blockages.labels(one.link, "yes" if expected else "no").inc()
            if one.entry_error_ms is not None and one.exit_error_ms is not None:
                self._metrics.entry_error.observe(abs(one.entry_error_ms) / 1000)
                self._metrics.exit_error.observe(abs(one.exit_error_ms) / 1000)


def _read(
    post: messages.ReportPost,
) -> tuple[list[tuple[int, messages.ReportEntry]], list[Refused]]:
    read, refused = [], []
    for index, document in enumerate(post.reports):
        try:
            read.append((index, messages.entry(document)))
        except messages.EntryError as error:
            refused.append(Refused(index, str(error)))
    count = sum(len(e.report.links) for _, e in read if isinstance(e.report, messages.StatusReport))
    if count > MOST_LINKS:
        raise TooManyError(f"{count} links in one post, more than {MOST_LINKS}")
    return read, refused


def _named(entry: messages.ReportEntry) -> Iterable[int]:
    yield entry.node
    if isinstance(entry.report, messages.StatusReport):
        yield from (link.terminal for link in entry.report.links)
    elif isinstance(entry.report, messages.BlockageReport):
        yield entry.report.terminal


async def _newest(connection: AsyncConnection, states: Iterable[LinkState]) -> list[LinkState]:
    """Return of each link the newest of the states, if it is later than what is stored."""
    newest: dict[tuple[int, str], LinkState] = {}
    for state in states:
        if state.replaces(newest.get(state.key)):
            newest[state.key] = state
    if not newest:
        return []
    stored = await links.of_terminals(connection, list({state.terminal for state in states}))
    return [state for key, state in newest.items() if state.replaces(stored.get(key))]
