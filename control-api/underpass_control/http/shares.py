"""The shares of a beam's capacity, as totals: the caller's vehicles, and all others together."""

from __future__ import annotations

import asyncio

from sqlalchemy import select

from dama.planner import Link
from underpass_control.http import plan_models as models
from underpass_control.http.at_once import InTurn
from underpass_control.http.endpoint import READERS, Call, Endpoint
from underpass_control.http.plans import known_beam
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import moment_of
from underpass_control.planning import stored
from underpass_control.storage.database import Database
from underpass_control.storage.models import Terminal

# Amounts are given for this time from now on.
_PERIOD_MS = 1_000
# Requests that may wait while one reads the plans, which may have some MB.
_MOST_WAITING = 1_024


class Shares:
    """The endpoint of totals."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns = InTurn(1, _MOST_WAITING, "shares of plans")

    def endpoints(self) -> list[Endpoint]:
        """Return it."""
        return [
            Endpoint(
                "GET",
                "/v1/beams/{beam}/shares",
                "What the plans give now: to the vehicles that the caller sees, and to all others",
                self._shares,
                READERS,
                tenancy=Tenancy.SHARED,
                answers=models.Shares,
            )
        ]

    async def _shares(self, call: Call) -> models.Shares:
        async with self._turns.one(call):
            now_ms = self._database.clock.now_ms()
            async with self._database.reading() as connection:
                beam = await known_beam(connection, call)
                query = select(Terminal.node).where(Terminal.beam_id == beam)
                # Restricted to the caller's tenant, as all reading here.
                own = {str(node) for node in await connection.scalars(query)}
                plans = [
                    await stored.plans_in_force(connection, beam, link, now_ms, now_ms + _PERIOD_MS)
                    for link in Link
                ]
            # Reading a large plan takes long, and everything else in this thread would wait.
            links = [
                await asyncio.to_thread(_of_link, link, found[0], own)
                for link, found in zip(Link, plans, strict=True)
                if found
            ]
        return models.Shares(beam=beam, time=moment_of(now_ms), links=links)


def _of_link(link: Link, held: stored.InForce, own: set[str]) -> models.LinkShares:
    amounts = held.plan.amounts(held.from_ms, held.to_ms)
    lasting_ms = held.to_ms - held.from_ms

    def total(names: set[str]) -> models.Share:
        bits = sum(amounts[name][0] for name in names)
        return models.Share(terminals=len(names), rate_bps=bits * 1000 // lasting_ms)

    mine = amounts.keys() & own
    return models.LinkShares(
        link=link.value, own=total(set(mine)), others=total(amounts.keys() - own)
    )
