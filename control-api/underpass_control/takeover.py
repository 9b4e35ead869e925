"""Reads the last minutes of a beam for its new planner."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from itertools import groupby

import structlog
from sqlalchemy import and_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Link
from dama.prediction import Fix, FixError
from dama.prediction.fix import CLOCK_TOLERANCE_MS, MAX_SPEED_MPS
from underpass_control.demand import Demands
from underpass_control.prediction import Predictions
from underpass_control.storage import announcements, blockages, habits, links, positions, routes
from underpass_control.storage.membership import among
from underpass_control.storage.models import LinkState as StateTable
from underpass_control.storage.models import LinkUsage, Terminal
from underpass_control.storage.positions import Position
from underpass_control.taking_turns import Turns
from underpass_control.usage import BUCKET_MS

_LOG = structlog.get_logger()
# This much of a track is enough to find the road and the pace again. A vehicle that has been silent
# for longer than _SILENT_MS has left its road tunnel, or is parked.
_TRACK_MS = 40_000
_SILENT_MS = 15 * 60_000
# About the most positions of all terminals together. Each costs the prediction a fraction of a
# millisecond, and until all are taken in nothing is planned; from ones that are seconds apart road
# and pace are found, too.
_MOST_FIXES = 20_000


def fix_of(position: Position) -> Fix | None:
    """Return a position as a fix for predictions; None if it is impossible.

    A speed that no road vehicle has is left out, but the place is used.
    """
    speed_mps = position.speed_mps
    if speed_mps is not None and speed_mps > MAX_SPEED_MPS:
        speed_mps = None
    try:
        return Fix(
            position.time_ms,
            position.longitude,
            position.latitude,
            speed_mps,
            position.heading_deg,
            position.accuracy_m,
        )
    except FixError as error:
        _LOG.info("position not predicted with", terminal=position.terminal, error=str(error))
        return None


async def recall(
    connection: AsyncConnection,
    beam: str,
    predictions: Predictions,
    demands: Demands,
    now_ms: int,
    terminals: Collection[int] | None = None,
) -> None:
    """Take in the last minutes of a beam from the database, as if they had just been reported.

    Reports taken in before or meanwhile are not lost: each counts by its own time.

    Args:
        connection: to read by.
        beam: whose last minutes.
        predictions: they take in what is ahead of terminals.
        demands: they take in what links do.
        now_ms: UTC, ms since the Unix epoch.
        terminals: the ones to read; None: all.
    """
    lines = await routes.of_beam(connection, beam, terminals)
    if terminals is None:
        predictions.set_routes(lines)
    else:
        for terminal in terminals:
            predictions.set_route(terminal, lines.get(terminal))
    for terminal, remembered in (await habits.of_beam(connection, beam, terminals)).items():
        predictions.set_habits(terminal, remembered)
    found = await positions.recent(
        connection,
        beam,
        since_ms=now_ms - _SILENT_MS,
        until_ms=now_ms + CLOCK_TOLERANCE_MS,
        within_ms=_TRACK_MS,
        most=_MOST_FIXES,
        terminals=terminals,
    )
    found.sort(key=lambda one: (one.terminal, one.time_ms))
    turns = Turns()
    for terminal, track in groupby(found, key=lambda one: one.terminal):
        for position in track:
            if fix := fix_of(position):
                predictions.feed(terminal, fix)
            await turns.pause()
    for one in await announcements.open_ones(connection, beam, now_ms, terminals):
        predictions.announce(one.terminal, one.announcement)
    lost = await blockages.newest(connection, beam, now_ms - _SILENT_MS, terminals)
    for terminal, (entry_ms, exit_ms) in lost.items():
        # A past blockage matters only if its end was missed here.
        if exit_ms is None or predictions.is_blocked(terminal):
            predictions.observe(terminal, entry_ms, exit_ms)
    for state in await _states(connection, beam, terminals):
        demands.take(state.terminal, Link(state.link), state)


async def _states(
    connection: AsyncConnection, beam: str, terminals: Collection[int] | None
) -> Iterable[links.LinkState]:
    """Return the newest states, each after its run's counts of some seconds before."""
    newest = await links.of_beam(connection, beam, terminals)
    same = (LinkUsage.terminal, LinkUsage.link, LinkUsage.node, LinkUsage.incarnation)
    rows = await connection.execute(
        select(LinkUsage.__table__)
        .join(Terminal, Terminal.node == LinkUsage.terminal)
        .join(
            StateTable,
            and_(
                *(getattr(StateTable, column.key) == column for column in same),
                StateTable.path == LinkUsage.path,
            ),
        )
        .where(
            among(beam, terminals),
            LinkUsage.start_ms > StateTable.time_ms - 2 * BUCKET_MS,
            LinkUsage.first_uptime_ms < StateTable.uptime_ms,
        )
        .order_by(LinkUsage.start_ms)
    )
    before = []
    for row in rows:
        state = newest.get((row.terminal, row.link))
        second = 1 << row.first_time_ms % BUCKET_MS // 1_000
        if state is not None and not row.blocked & second:
            earlier = replace(
                state,
                uptime_ms=row.first_uptime_ms,
                time_ms=row.first_time_ms,
                sent_bytes=row.first_sent_bytes,
                offered_bytes=row.first_offered_bytes,
                state="up",
            )
            before.append(earlier)
    return (*before, *newest.values())
