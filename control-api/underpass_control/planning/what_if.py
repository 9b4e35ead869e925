"""What would be planned if something were different: without effect."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Blockage, CapacityStep, Link, Plan, Request, Terminal
from underpass_control.planning.beam_planner import HORIZON_MS, SETTLE_MS, Terms, moved
from underpass_control.planning.delays import DEFAULT_MS
from underpass_control.planning.interventions import applied
from underpass_control.planning.stored import current_plan
from underpass_control.planning.terms import BeamTerms
from underpass_control.storage.expectations import PREDICTED
from underpass_control.storage.models import PredictedBlockage
from underpass_control.storage.models import Terminal as TerminalTable


@dataclass(frozen=True)
class Basis:
    """The present state of one link of a beam."""

    terms: BeamTerms
    # The plan that gives demands, efficiencies and balances, if there is one.
    present: Plan | None
    blockages: tuple[Blockage, ...]


async def basis_of(
    connection: AsyncConnection, beam: str, link: Link, terms: BeamTerms, now_ms: int
) -> Basis:
    """Read it."""
    plan = await current_plan(connection, beam, link)
    rows = await connection.execute(
        select(PredictedBlockage.__table__)
        .join(TerminalTable, TerminalTable.node == PredictedBlockage.terminal)
        .where(
            TerminalTable.beam_id == beam,
            PredictedBlockage.state == PREDICTED,
            PredictedBlockage.exit_ms > now_ms,
        )
    )
    frozen_ms = terms.interventions.in_force(link, now_ms).frozen_ms
    blockages = tuple(
        Blockage(
            str(row.terminal),
            row.entry_ms,
            row.exit_ms,
            row.confidence,
            is_lent_for=frozen_ms is None or row.first_ms < frozen_ms,
        )
        for row in rows
    )
    return Basis(terms, None if plan is None else await plan.read(), blockages)


@dataclass(frozen=True)
class Instead:
    """The differences from the present state; None: unchanged."""

    end_ms: int | None
    capacity: tuple[CapacityStep, ...] | None
    # By node, the changed values of a terminal, by the names of `dama.planner.Terminal`.
    terminals: Mapping[int, Mapping[str, object]]
    blockages: tuple[Blockage, ...] | None
    signalling_delay_ms: int | None
    one_way_delay_ms: int | None
    least_confidence: float | None


def request_of(beam: str, link: Link, basis: Basis, instead: Instead, now_ms: int) -> Request:
    """Return what to plan."""
    blockages = basis.blockages if instead.blockages is None else instead.blockages
    delay_ms = DEFAULT_MS if instead.signalling_delay_ms is None else instead.signalling_delay_ms
    last_ms = max((one.exit_ms for one in blockages), default=now_ms)
    settle_ms = max(now_ms, last_ms) + SETTLE_MS
    end_ms = max(now_ms + HORIZON_MS, settle_ms) if instead.end_ms is None else instead.end_ms
    terminals = {int(one.id): one for one in _terminals(basis, link, now_ms)}
    for node, different in instead.terminals.items():
        known = terminals.get(node, Terminal(str(node)))
        terminals[node] = replace(known, **different)  # type: ignore[arg-type]
    request = Request(
        beam=beam,
        link=link,
        now_ms=now_ms,
        end_ms=end_ms,
        capacity=instead.capacity or basis.terms.capacity[link],
        terminals=tuple(terminals.values()),
        blockages=blockages,
        signalling_delay_ms=delay_ms,
        one_way_delay_ms=(
            basis.terms.one_way_delay_ms
            if instead.one_way_delay_ms is None
            else instead.one_way_delay_ms
        ),
        settle_ms=settle_ms,
    )
    if instead.least_confidence is None:
        return request
    return replace(request, least_confidence=instead.least_confidence)


def _terminals(basis: Basis, link: Link, now_ms: int) -> Iterable[Terminal]:
    terms: Mapping[int, Terms] = basis.terms.terminals[link]
    effects = basis.terms.interventions.in_force(link, now_ms).effects
    known: dict[int, Terminal] = {}
    owed: dict[int, int] = {}
    if basis.present is not None:
        members = (member for group in basis.present.groups for member in group.members)
        known = {int(member.id): member for member in members}
        owed = moved(basis.present, now_ms)
    for node, one in terms.items():
        present = known.get(node, Terminal(str(node)))
        terminal = replace(
            present,
            weight=one.weight,
            fair_share=one.fair_share,
            minimum_bps=one.minimum_bps,
            maximum_bps=one.maximum_bps,
            owed_bits=owed.get(node, 0),
        )
        yield applied(terminal, effects.get(node))
