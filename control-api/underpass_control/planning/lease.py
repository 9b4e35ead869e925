"""Leases: one process plans each beam; if it dies, another does within seconds.

The database's clock alone decides until when a lease is held. Each holder has a fence, higher than
all before it. All its writes are in transactions that check the fence, so a holder that wakes up
late writes nothing.
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
# A holder that stops within a transaction would keep rows locked; PostgreSQL ends it after this.
_IDLE_MS = 2_000
_UNIX_EPOCH_DAYS = 2_440_587.5
_MS_PER_DAY = 86_400_000


class FencedError(RuntimeError):
    """The lease is no longer held: another process plans the beam."""


@dataclass(frozen=True)
class Held:
    """The holder of a beam's lease."""

    beam: str
    holder: str
    fence: int
    # By the database's clock.
    left_ms: int


async def renew(connection: AsyncConnection, publish: Publish, holder: str) -> dict[str, int]:
    """Renew all leases of a holder, and take those that are free; return fences by beam.

    An expired lease that no other process has taken continues with its fence.
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
    """Tell whether there is a beam that no process plans."""
    held = select(Lease.beam_id).where(Lease.beam_id == Beam.id, _lasts(_now_ms(connection)))
    found = await connection.execute(select(Beam.id).where(~held.exists()).limit(1))
    return found.scalar_one_or_none() is not None


async def release(connection: AsyncConnection, holder: str) -> list[str]:
    """Give up all leases of a holder, so that the next one need not wait; return the beams."""
    given_up = update(Lease).where(Lease.holder == holder).values(until_ms=0)
    return sorted(await connection.scalars(given_up.returning(Lease.beam_id)))


async def now_ms(connection: AsyncConnection) -> int:
    """Return the time by the database's clock, UTC in ms since the Unix epoch."""
    time_ms: int = (await connection.execute(select(_now_ms(connection)))).scalar_one()
    return time_ms


async def check(connection: AsyncConnection, beam: str, holder: str, fence: int) -> None:
    """Make sure that a lease is held until the end of the transaction.

    Raises:
        FencedError: It is not held, or by another holder.
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
        # FOR KEY SHARE: until the transaction ends, no other holder can take the lease (FOR
        # UPDATE), but it can be renewed.
        query = select(Lease.fence).where(*held).with_for_update(read=True, key_share=True)
    if (await connection.execute(query)).scalar_one_or_none() is None:
        raise FencedError(f"the lease of beam {beam} is no longer held with the fence {fence}")


async def holder_of(connection: AsyncConnection, beam: str) -> Held | None:
    """Return the present holder of a beam's lease; None if there is none."""
    left = (Lease.until_ms - _now_ms(connection)).label("left_ms")
    query = select(Lease.holder, Lease.fence, left).where(Lease.beam_id == beam)
    row = (await connection.execute(query)).one_or_none()
    if row is None or not 0 < row.left_ms <= _longest_ms():
        return None
    return Held(beam, row.holder, row.fence, row.left_ms)


def _longest_ms() -> int:
    """Return the longest time a lease can have left: twice its length, for small clock steps."""
    return 2 * LASTS_MS


def _lasts(now: ColumnElement[int]) -> ColumnElement[bool]:
    """Return the condition that a lease is held.

    A lease that ends later than is possible was given before the clock was set back, and does not
    count. A living holder would have renewed it since; if it is just about to, the fence tells it.
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
