"""The intake of reports: read, sorted, stored in one transaction, and announced."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.instants import is_plausible
from underpass_control.metrics import Metrics
from underpass_control.planning import acknowledgements
from underpass_control.reports import messages
from underpass_control.reports.sorting import MOST_LINKS, RefusedError, Sorted, Sorter
from underpass_control.storage import (
    announcements,
    attachments,
    blockages,
    links,
    nodes,
    registry,
    settings,
    usage,
)
from underpass_control.storage.attachments import Proof
from underpass_control.storage.changes import Changes, Publish
from underpass_control.storage.database import Database
from underpass_control.storage.links import LinkState
from underpass_control.storage.positions import PositionWriter


class TooManyError(ValueError):
    """The post has more than may be taken in at once."""


@dataclass(frozen=True)
class Refused:
    """A report that was not taken in: its place in the post, and why."""

    index: int
    detail: str


class Intake:
    """Takes in what gateways post.

    A repeated report changes nothing: positions and announcements are identified by their times,
    blockages by their entries, link states and counts by their order within a run.
    """

    def __init__(
        self,
        database: Database,
        changes: Changes,
        writer: PositionWriter,
        metrics: Metrics,
        show_terminal: Callable[[Any], dict[str, Any]],
    ) -> None:
        """Also take the function that renders a changed terminal's row."""
        self._database = database
        self._changes = changes
        self._writer = writer
        self._metrics = metrics
        self._show_terminal = show_terminal

    async def take(
        self, post: messages.ReportPost, received_ms: int, *, by_operator: bool = False
    ) -> list[Refused]:
        """Store a post's reports; return those that were refused.

        An operator's post may speak for terminals at any gateway.

        Raises:
            TooManyError: Too many links; nothing was stored.
            BusyError, DatabaseLostError, IntegrityError: Not all is stored; the same post may be
                sent again.
        """
        read, refused = _read(post)
        sorter, moves = await self._sorter(post.node, received_ms, read, by_operator=by_operator)
        found, more = _sort(sorter, read)
        await asyncio.gather(
            self._store_positions(post.node, found), self._store(post.node, found, moves)
        )
        refused += more
        for kind, count in Counter(entry.report.kind for _, entry in read).items():
            self._metrics.reports.labels(kind).inc(count)
        self._metrics.reports_refused.inc(len(refused))
        self._metrics.reports_of_strangers.inc(len(found.strangers))
        self._metrics.reports_elsewhere.inc(len(found.elsewhere))
        self._metrics.capacities_passed_over.inc(found.implausible)
        return sorted(refused, key=lambda one: one.index)

    async def _sorter(
        self,
        gateway: int,
        received_ms: int,
        read: list[tuple[int, messages.ReportEntry]],
        *,
        by_operator: bool,
    ) -> tuple[Sorter, dict[int, Proof]]:
        """Return the sorter of a post, which knows terminals that proved a move to its gateway."""
        named = {node for _, entry in read for node in _named(entry)}
        if len(named) > MOST_LINKS:
            raise TooManyError(f"more than {MOST_LINKS} terminals in one post")
        async with self._database.reading() as connection:
            found = await attachments.of_terminals(connection, named)
            given = (
                proof
                for _, entry in read
                if (proof := _proof(entry, gateway, received_ms)) is not None
                and entry.node in found
                and proof.moves(found[entry.node])
            )
            moves = await attachments.proved(connection, given, received_ms)
        for node, proof in moves.items():
            found[node] = found[node].moved(gateway, proof.time_ms)
        return Sorter(gateway, received_ms, found, by_operator), moves

    async def _store_positions(self, gateway: int, found: Sorted) -> None:
        if found.positions:
            await self._writer.store(found.positions, ("gateway", gateway))
            self._metrics.positions.inc(len(found.positions))

    async def _store(self, gateway: int, found: Sorted, moves: Mapping[int, Proof]) -> None:
        others = (
            moves,
            found.states,
            found.nodes,
            found.blockages,
            found.announcements,
            found.acknowledgements,
            found.settings,
        )
        if not any(others):
            return
        async with self._changes.transaction() as (connection, publish):
            newest = await _newest(connection, found.states)
            await links.put(connection, newest)
            await usage.count(connection, found.counts)
            await self._learn(connection, publish, gateway, newest, moves)
            await nodes.put(connection, found.nodes)
            beam_paths = await _beam_paths(connection, found.blockages, newest)
            observed = await blockages.observe(connection, found.blockages, beam_paths)
            paths = {s.key: found.paths[*s.key, s.time_ms] for s in newest}
            lifted = await blockages.lift(connection, paths, beam_paths)
            await announcements.put(connection, found.announcements)
            await acknowledgements.store(connection, publish, found.acknowledgements)
            reported = await settings.report(connection, found.settings)
            for change in (
                *reported,
                *links.changes_of(newest),
                *blockages.changes_of([*observed, *lifted], beam_paths),
                *announcements.changes_of(found.announcements),
            ):
                publish(change)
        self._measure(one for one in observed if not one.is_beside(beam_paths))

    async def _learn(
        self,
        connection: AsyncConnection,
        publish: Publish,
        gateway: int,
        newest: Iterable[LinkState],
        moves: Mapping[int, Proof],
    ) -> None:
        """Learn at which gateway terminals are."""
        heard = {state.terminal: state.received_ms for state in newest if _is_own(state)}
        spoken_of = {state.terminal for state in newest} - heard.keys()
        rows = await attachments.learn(
            connection, gateway, proofs=moves, heard=heard, spoken_of=spoken_of
        )
        # A gateway's first post may be heard of thousands.
        changed = await registry.terminals(connection, {row.node for row in rows})
        for node, row in changed.items():
            state = self._show_terminal(row)
            publish({"kind": "terminal", "terminal": node, "action": "set", "state": state})

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


def _sort(
    sorter: Sorter, read: list[tuple[int, messages.ReportEntry]]
) -> tuple[Sorted, list[Refused]]:
    found, refused = Sorted(), []
    for index, entry in read:
        try:
            sorter.sort(entry, found)
        except RefusedError as error:
            refused.append(Refused(index, str(error)))
    return found, refused


def _proof(entry: messages.ReportEntry, gateway: int, received_ms: int) -> Proof | None:
    """Return the proof in a report that its terminal is at the gateway, if there may be one."""
    if not isinstance(entry.report, messages.StatusReport) or entry.report.proof is None:
        return None
    given = entry.report.proof
    if given.gateway != gateway or not is_plausible(given.time_ms, received_ms):
        return None
    return Proof(entry.node, gateway, given.time_ms, bytes.fromhex(given.mac))


def _is_own(state: LinkState) -> bool:
    return state.node == state.terminal


def _named(entry: messages.ReportEntry) -> Iterable[int]:
    yield entry.node
    if isinstance(entry.report, messages.StatusReport):
        yield from (link.terminal for link in entry.report.links)
    elif isinstance(entry.report, messages.BlockageReport):
        yield entry.report.terminal


async def _beam_paths(
    connection: AsyncConnection, seen: Iterable[blockages.Observed], newest: Iterable[LinkState]
) -> dict[tuple[int, str], str]:
    """Return the paths that follow the beam's plan, if some reports may be of other paths."""
    terminals = list({one.terminal for one in seen})
    known = await links.of_terminals(connection, terminals) if terminals else {}
    known |= {state.key: state for state in newest}
    return {key: state.path for key, state in known.items() if state.plan is not None}


async def _newest(connection: AsyncConnection, states: Iterable[LinkState]) -> list[LinkState]:
    """Return the newest state of each link, if it is later than the stored one."""
    newest: dict[tuple[int, str], LinkState] = {}
    for state in states:
        if state.replaces(newest.get(state.key)):
            newest[state.key] = state
    if not newest:
        return []
    stored = await links.of_terminals(connection, list({state.terminal for state in states}))
    return [state for key, state in newest.items() if state.replaces(stored.get(key))]
