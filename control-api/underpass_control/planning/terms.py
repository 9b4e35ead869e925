"""What an operator has set for a beam: its capacity over time, its terminals' terms, and more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import CapacityStep, FairShare, Link
from underpass_control.planning.beam_planner import Terms
from underpass_control.planning.interventions import Interventions
from underpass_control.storage import interventions
from underpass_control.storage.attachments import SERVED_BY
from underpass_control.storage.models import Beam, Terminal
from underpass_control.storage.models import CapacityStep as StepTable


@dataclass(frozen=True)
class BeamTerms:
    """All that is set for a beam."""

    one_way_delay_ms: int
    # The first step has long begun.
    set_capacity: Mapping[Link, tuple[CapacityStep, ...]]
    # The capacity that maintenance windows leave.
    capacity: Mapping[Link, tuple[CapacityStep, ...]]
    terminals: Mapping[Link, Mapping[int, Terms]]
    # The interventions on the beam and its terminals that have not ended.
    interventions: Interventions = field(default_factory=Interventions)
    # The satellite that its terminals use, by name; None if unknown.
    satellite: str | None = None


async def terms_of(connection: AsyncConnection, beam: str, now_ms: int) -> BeamTerms | None:
    """Return what is set for a beam, as of now; None if there is none."""
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
    set_capacity = {link: tuple(steps) for link, steps in capacity.items()}
    intervening = Interventions(await interventions.ahead(connection, beam, now_ms))
    return BeamTerms(
        one_way_delay_ms=row.one_way_delay_ms,
        set_capacity=set_capacity,
        capacity={link: intervening.capacity(link, of) for link, of in set_capacity.items()},
        terminals=terminals,
        interventions=intervening,
        satellite=row.satellite,
    )
