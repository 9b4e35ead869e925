"""Stores plans as planning does."""

from __future__ import annotations

from sqlalchemy import insert
from sqlalchemy.ext.asyncio import AsyncConnection
from underpass_control.planning import stored
from underpass_control.storage.changes import Changes
from underpass_control.storage.models import Lease

from dama.planner import Plan
from dama.planner.text import plan_document, text

HOLDER, FENCE = "the tests", 1
# Later than any test: leases go by the database's clock, not by the tests' time.
_FOR_EVER_MS = 9_000_000_000_000


async def hold(connection: AsyncConnection, beam: str) -> None:
    """Take a beam's lease."""
    await connection.execute(
        insert(Lease).values(beam_id=beam, holder=HOLDER, fence=FENCE, until_ms=_FOR_EVER_MS)
    )


async def publish(changes: Changes, made: Plan) -> None:
    """Store a plan with the next version."""
    async with changes.transaction() as (connection, publish):
        document = text(plan_document(made))
        await stored.store(
            connection, publish, made, document, holder=HOLDER, fence=FENCE, reason="test"
        )
