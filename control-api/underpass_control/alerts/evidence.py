"""Reads the facts of all terminals from the database, for the rules of alerts."""

from __future__ import annotations

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Link
from underpass_control.alerts.rules import Facts, Loss
from underpass_control.planning.interventions import Kind
from underpass_control.storage.models import (
    Beam,
    Blockage,
    Intervention,
    LedgerLot,
    LinkState,
    NodeReport,
    PredictedBlockage,
    Terminal,
)

# The sources that observe a link; a plan or an operator only forbids its use.
_SENSED = ("modem", "probing")


async def read(connection: AsyncConnection, now_ms: int) -> list[Facts]:
    """Return the facts of all terminals now."""
    heard = await _heard(connection)
    losses = await _losses(connection)
    owes = await _owes(connection)
    nodes = await _nodes(connection)
    quiet_beams, quiet_terminals = await _in_maintenance(connection, now_ms)
    rows = await connection.execute(
        select(
            Terminal.node, Terminal.beam_id, Beam.forward_capacity_bps, Beam.return_capacity_bps
        ).join(Beam, Beam.id == Terminal.beam_id)
    )
    return [
        Facts(
            row.node,
            row.beam_id,
            heard.get(row.node),
            losses.get(row.node, {}),
            owes.get((row.beam_id, row.node), {}),
            {Link.FORWARD: row.forward_capacity_bps, Link.RETURN: row.return_capacity_bps},
            row.beam_id in quiet_beams or row.node in quiet_terminals,
            *nodes.get(row.node, (None, None)),
        )
        for row in rows
    ]


async def _heard(connection: AsyncConnection) -> dict[int, int]:
    """Return when the last report by each terminal itself came."""
    query = (
        select(LinkState.terminal, func.max(LinkState.received_ms).label("heard_ms"))
        .where(LinkState.node == LinkState.terminal)
        .group_by(LinkState.terminal)
    )
    return {row.terminal: row.heard_ms for row in await connection.execute(query)}


async def _nodes(connection: AsyncConnection) -> dict[int, tuple[str, int | None]]:
    """Return which version each terminal runs, and when its certificate ends."""
    said = NodeReport
    query = select(said.terminal, said.version, said.certificate_end_ms)
    rows = await connection.execute(query.where(said.terminal.is_not(None)))
    return {terminal: (version, end_ms) for terminal, version, end_ms in rows if terminal}


async def _losses(connection: AsyncConnection) -> dict[int, dict[Link, Loss]]:
    expected = PredictedBlockage.__table__.alias()
    rows = await connection.execute(
        select(Blockage.terminal, Blockage.link, Blockage.entry_ms, expected.c.exit_ms)
        .join(expected, expected.c.id == Blockage.predicted, isouter=True)
        .where(Blockage.exit_ms.is_(None), Blockage.source.in_(_SENSED))
        .order_by(Blockage.entry_ms)
    )
    found: dict[int, dict[Link, Loss]] = {}
    for terminal, link, since_ms, exit_ms in rows:
        losses = found.setdefault(terminal, {})
        loss = Loss(since_ms, exit_ms)
        # Of several paths, take the one that should have been back first.
        known = losses.get(Link(link), loss)
        losses[Link(link)] = min(known, loss, key=lambda one: one.due_ms)
    return found


async def _owes(connection: AsyncConnection) -> dict[tuple[str, int], dict[Link, int]]:
    lot = LedgerLot
    total = func.sum(lot.bits)
    rows = await connection.execute(
        select(lot.beam_id, lot.terminal, lot.link, total)
        .group_by(lot.beam_id, lot.terminal, lot.link)
        .having(total < 0)
    )
    found: dict[tuple[str, int], dict[Link, int]] = {}
    for beam, terminal, link, bits in rows:
        found.setdefault((beam, terminal), {})[Link(link)] = -int(bits)
    return found


async def _in_maintenance(connection: AsyncConnection, now_ms: int) -> tuple[set[str], set[int]]:
    one = Intervention
    rows = await connection.execute(
        select(one.beam_id, one.terminal).where(
            one.kind == Kind.MAINTENANCE.value,
            one.from_ms <= now_ms,
            one.until_ms > now_ms,
        )
    )
    found = rows.all()
    beams = {row.beam_id for row in found if row.beam_id is not None}
    return beams, {row.terminal for row in found if row.terminal is not None}
