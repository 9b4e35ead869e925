"""What an operator has set for a beam: its capacity over time, and its terminals' terms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import CapacityStep, FairShare, Link
from underpass_control.planning.beam_planner import Terms
from underpass_control.storage.attachments import SERVED_BY
from underpass_control.storage.models import Beam, Terminal
from underpass_control.storage.models import CapacityStep as StepTable


@dataclass(frozen=True)
class BeamTerms:
    """All that is set for a beam."""

    one_way_delay_ms: int
    # The first step has long begun.
    capacity: Mapping[Link, tuple[CapacityStep, ...]]
    terminals: Mapping[Link, Mapping[int, Terms]]


async def terms_of(connection: AsyncConnection, beam: str) -> BeamTerms | None:
    """Return what is set for a beam; None if there is none."""
    row = (await connection.execute(select(Beam.__table__).where(Beam.id == beam))).one_or_none()
    if row is None:
        return None
    capacity = {
        Link.FORWARD: [CapacityStep(0, row.forward_capacity_bps)],
        Link.RETURN: [CapacityStep(0, row.return_capacity_bps)],
    }
    steps = await connection.execute(
        select(StepTable.link, StepTable.from_ms, StepTable.rate_bps)
        .where(StepTable.beam_id == beam)
        .order_by(StepTable.from_ms)
    )
    for link, from_ms, rate_bps in steps:
        of_link = capacity[Link(link)]
        if from_ms <= of_link[-1].from_ms:
            of_link.pop()
        of_link.append(CapacityStep(from_ms, rate_bps))
    serving = SERVED_BY.label("serving")
    rows = await connection.execute(
        select(Terminal.__table__, serving).where(Terminal.beam_id == beam).order_by(Terminal.node)
    )
    terminals: dict[Link, dict[int, Terms]] = {link: {} for link in Link}
    for one in rows:
        for link in Link:
            terminals[link][one.node] = Terms(
                weight=one.weight,
                minimum_bps=getattr(one, f"{link.value}_minimum_bps"),
                maximum_bps=getattr(one, f"{link.value}_maximum_bps"),
                gateway=one.serving,
                fair_share=FairShare(row.fair_share),
            )
    return BeamTerms(
        one_way_delay_ms=row.one_way_delay_ms,
        capacity={link: tuple(steps) for link, steps in capacity.items()},
        terminals=terminals,
    )
