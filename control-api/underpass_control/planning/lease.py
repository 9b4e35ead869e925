"""Leases: each beam is planned by one process, and by another within seconds of its death.

The database's clock alone decides until when a lease is held. Each holder has a fence, higher than
those before it; whatever a holder writes is written in a transaction that checks it, so one that
wakes up late writes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Executable, Integer, cast, func, literal, select, text, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.types import BigInteger

from underpass_control.storage.changes import Publish
from underpass_control.storage.models import Beam, Lease

# The end of a holder is noticed after LASTS_MS and at most RETRY_S: in less than 5 s.
LASTS_MS = 3_000
RENEW_EVERY_S = 1.0
RETRY_S = 0.5
# A holder that stops within a transaction would keep its rows locked; PostgreSQL ends it.
_IDLE_MS = 2_000
_UNIX_EPOCH_DAYS = 2_440_587.5
_MS_PER_DAY = 86_400_000


class FencedError(RuntimeError):
    """The lease is no longer held: another process plans the beam."""


@dataclass(frozen=True)
class Held:
    """Who holds a beam's lease."""

    beam: str
    holder: str
    fence: int
    # By the database's clock.
    left_ms: int


async def renew(connection: AsyncConnection, publish: Publish, holder: str) -> dict[str, int]:
    """Renew all leases of a holder, and take those that nobody holds; return fences by beam.

    A lease that has run out and that nobody has taken since goes on with its fence.
    """
    await _bound(connection)
    now = _now_ms(connection)
    renewed = await connection.execute(
        update(Lease)
        .where(Lease.holder == holder)
        .values(until_ms=now + LASTS_MS)
        .returning(Lease.beam_id, Lease.fence)
    )
    held = {row.beam_id: row.fence for row in renewed}
    # Rows that another process has locked are skipped, not waited for.
    free = (
        select(Lease.beam_id)
        .where(~_lasts(now), Lease.holder != holder)
        .with_for_update(skip_locked=True)
    )
    taken = await connection.execute(
        update(Lease)
        .where(Lease.beam_id.in_(free.scalar_subquery()))
        .values(holder=holder, fence=Lease.fence + 1, until_ms=now + LASTS_MS)
        .returning(Lease.beam_id, Lease.fence)
    )
    new = {row.beam_id: row.fence for row in taken}
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    never = select(Beam.id, literal(holder), literal(1, BigInteger), now + LASTS_MS).where(
        ~select(Lease.beam_id).where(Lease.beam_id == Beam.id).exists()
    )
    insert = dialect.insert(Lease).from_select(["beam_id", "holder", "fence", "until_ms"], never)
    made = await connection.execute(
        insert.on_conflict_do_nothing().returning(Lease.beam_id, Lease.fence)
    )
    new |= {row.beam_id: row.fence for row in made}
    for beam, fence in sorted(new.items()):
        publish(_change(beam, holder, fence))
    return held | new


async def any_free(connection: AsyncConnection) -> bool:
    """Tell whether there is a beam that nobody plans."""
    held = select(Lease.beam_id).where(Lease.beam_id == Beam.id, _lasts(_now_ms(connection)))
    found = await connection.execute(select(Beam.id).where(~held.exists()).limit(1))
    return found.scalar_one_or_none() is not None


async def release(connection: AsyncConnection, holder: str) -> list[str]:
    """Give up all leases of a holder: the next one need not wait for their end.

    Return the beams.
    """
    given_up = update(Lease).where(Lease.holder == holder).values(until_ms=0)
    return sorted(await connection.scalars(given_up.returning(Lease.beam_id)))


async def now_ms(connection: AsyncConnection) -> int:
    """Return the time by the database's clock, UTC in ms since the Unix epoch."""
    time_ms: int = (await connection.execute(select(_now_ms(connection)))).scalar_one()
    return time_ms


async def check(connection: AsyncConnection, beam: str, holder: str, fence: int) -> None:
    """Make sure that a lease is held until the transaction is over.

    Raises:
        FencedError: It is not, or by another.
    """
    await _bound(connection)
    held = (
        Lease.beam_id == beam,
        Lease.holder == holder,
        Lease.fence == fence,
        Lease.until_ms > _now_ms(connection),
    )
    query: Executable
    if connection.dialect.name == "sqlite":
        # An update, not a query: it locks the file.
        query = update(Lease).where(*held).values(fence=Lease.fence).returning(Lease.fence)
    else:
        # FOR KEY SHARE: nobody can take the lease until the transaction ends (FOR UPDATE), but it
        # can be renewed, however long that takes.
        query = select(Lease.fence).where(*held).with_for_update(read=True, key_share=True)
    if (await connection.execute(query)).scalar_one_or_none() is None:
        raise FencedError(f"the lease of beam {beam} is no longer held with the fence {fence}")


async def holder_of(connection: AsyncConnection, beam: str) -> Held | None:
    """Return who plans a beam now; None if nobody does."""
    left = (Lease.until_ms - _now_ms(connection)).label("left_ms")
    query = select(Lease.holder, Lease.fence, left).where(Lease.beam_id == beam)
    row = (await connection.execute(query)).one_or_none()
    if row is None or not 0 < row.left_ms <= _longest_ms():
        return None
    return Held(beam, row.holder, row.fence, row.left_ms)


def _longest_ms() -> int:
    """Return what no lease lasts longer than: twice its length, since clocks are set a little."""
    return 2 * LASTS_MS


def _lasts(now: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a lease is held.

    One that ends later than any was given before the clock was set back. Its holder, had it lived,
    would have renewed it since; should it just be about to, it notices by the fence.
    """
    return (Lease.until_ms > now) & (Lease.until_ms <= now + _longest_ms())


def _change(beam: str, holder: str, fence: int) -> dict[str, object]:
    return {"kind": "lease", "beam": beam, "holder": holder, "fence": fence}


async def _bound(connection: AsyncConnection) -> None:
    if connection.dialect.name != "sqlite":
        limit = f"SET LOCAL idle_in_transaction_session_timeout = {_IDLE_MS}"
        await connection.execute(text(limit))


def _now_ms(connection: AsyncConnection) -> ColumnElement[int]:
    if connection.dialect.name == "sqlite":
        days = func.julianday("now") - _UNIX_EPOCH_DAYS
        return cast(days * _MS_PER_DAY, Integer)
    return cast(func.extract("epoch", func.clock_timestamp()) * 1000, BigInteger)
