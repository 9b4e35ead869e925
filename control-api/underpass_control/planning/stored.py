"""Stored plans: written by the holder of the lease, read by all."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from sqlalchemy import Select, delete, func, insert, select, tuple_
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.orm import aliased

from dama.planner import Link, Plan
from dama.planner.text import read_plan
from underpass_control.instants import moment_of, rfc3339
from underpass_control.planning import lease
from underpass_control.storage.changes import Publish
from underpass_control.storage.models import Acknowledgement
from underpass_control.storage.models import Plan as Table


@dataclass(frozen=True)
class StoredPlan:
    """A plan with its version."""

    beam: str
    link: Link
    version: int
    issued_ms: int
    start_ms: int
    end_ms: int
    fence: int
    # Why it was made.
    reason: str
    # As `dama.planner.text` writes it.
    document: str

    @cached_property
    def made(self) -> Plan:
        """The plan itself."""
        return read_plan(json.loads(self.document))

    async def read(self) -> Plan:
        """Return the plan itself: a large one takes tenths of a second to read, in a thread."""
        return await asyncio.to_thread(lambda: self.made)

    def amounts(self, from_ms: int, to_ms: int) -> dict[str, tuple[int, int]]:
        """Return each terminal's bits and its fair share in a period (`Plan.amounts`)."""
        return self.made.amounts(from_ms, to_ms)


@dataclass(frozen=True)
class InForce:
    """A plan within the time in which it holds."""

    from_ms: int
    to_ms: int
    plan: StoredPlan


async def store(
    connection: AsyncConnection,
    publish: Publish,
    made: Plan,
    document: str,
    *,
    holder: str,
    fence: int,
    reason: str,
) -> StoredPlan:
    """Store a plan with the next version.

    Raises:
        FencedError: Another process plans the beam now; nothing was stored.
    """
    await lease.check(connection, made.beam, holder, fence)
    newest = select(func.max(Table.version)).where(
        Table.beam_id == made.beam, Table.link == made.link.value
    )
    last = (await connection.execute(newest)).scalar_one_or_none() or 0
    stored = StoredPlan(
        beam=made.beam,
        link=made.link,
        # Nodes ignore versions lower than the one they know, so a new or restored database has to
        # continue above the former ones.
        version=max(last + 1, made.issued_ms // 1000),
        issued_ms=made.issued_ms,
        start_ms=made.start_ms,
        end_ms=made.end_ms,
        fence=fence,
        reason=reason,
        document=document,
    )
    # The plan is at hand; the document need not be parsed.
    vars(stored)["made"] = made
    await connection.execute(
        insert(Table).values(
            beam_id=stored.beam,
            link=stored.link.value,
            version=stored.version,
            issued_ms=stored.issued_ms,
            start_ms=stored.start_ms,
            end_ms=stored.end_ms,
            fence=fence,
            reason=reason,
            document=document,
        )
    )
    publish(
        {
            "kind": "plans",
            "beam": stored.beam,
            "link": stored.link.value,
            "plan": stored.version,
            "issued": rfc3339(moment_of(stored.issued_ms)),
            "start": rfc3339(moment_of(stored.start_ms)),
            "end": rfc3339(moment_of(stored.end_ms)),
            "reason": reason,
        }
    )
    return stored


async def current_plan(connection: AsyncConnection, beam: str, link: Link) -> StoredPlan | None:
    """Return the newest plan, whether or not it is in force now."""
    return await _one(connection, _of(beam, link).order_by(Table.version.desc()).limit(1))


async def plan_of_version(
    connection: AsyncConnection, beam: str, link: Link, version: int
) -> StoredPlan | None:
    """Return the plan of a version."""
    return await _one(connection, _of(beam, link).where(Table.version == version))


async def has_version(connection: AsyncConnection, beam: str, link: Link, version: int) -> bool:
    """Tell whether there is a plan of a version, without reading it."""
    query = select(Table.version).where(
        Table.beam_id == beam, Table.link == link.value, Table.version == version
    )
    return await connection.scalar(query) is not None


async def plan_at(
    connection: AsyncConnection, beam: str, link: Link, time_ms: int
) -> StoredPlan | None:
    """Return the plan in force at a time; None if there was none, or only a stale one."""
    found = await plans_in_force(connection, beam, link, time_ms, time_ms + 1)
    return found[0].plan if found else None


async def plans_in_force(
    connection: AsyncConnection, beam: str, link: Link, from_ms: int, to_ms: int
) -> list[InForce]:
    """Return the plans in force in a period, each within its time, in order of time.

    A plan is in force from its start until its end or the start of a later version.
    """
    before = aliased(Table)
    first = (
        select(func.max(before.version))
        .where(before.beam_id == beam, before.link == Link(link).value, before.start_ms <= from_ms)
        .scalar_subquery()
    )
    query = (
        _of(beam, link)
        .where(Table.start_ms < to_ms, Table.version >= func.coalesce(first, 0))
        .order_by(Table.version.desc())
    )
    found: list[InForce] = []
    until_ms = to_ms
    for row in await connection.execute(query):
        begin_ms, end_ms = max(row.start_ms, from_ms), min(row.end_ms, until_ms)
        if begin_ms < end_ms:
            found.append(InForce(begin_ms, end_ms, _stored(row)))
        until_ms = min(until_ms, row.start_ms)
    return found[::-1]


async def versions(
    connection: AsyncConnection, beam: str, link: Link, *, before: int | None, limit: int
) -> list[Row[Any]]:
    """Return plans without their documents, the newest first, below a version."""
    columns = [column for column in Table.__table__.columns if column.name != "document"]
    query = select(*columns).where(Table.beam_id == beam, Table.link == link.value)
    if before is not None:
        query = query.where(Table.version < before)
    rows = await connection.execute(query.order_by(Table.version.desc()).limit(limit))
    return list(rows)


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` plans that ended before a time, but never the newest of a link.

    Return how many: another call is due while it is the limit.
    """
    old = _old(before_ms).limit(limit)
    key = tuple_(Table.beam_id, Table.link, Table.version)
    return (await connection.execute(delete(Table).where(key.in_(old)))).rowcount


async def prune_acknowledgements(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` acknowledgements of the plans that `prune` deletes; return how many.

    A plan has one for each node; together with the plans, they would make too large a transaction.
    """
    key = (Acknowledgement.beam_id, Acknowledgement.link, Acknowledgement.version)
    some = select(*key, Acknowledgement.node).where(tuple_(*key).in_(_old(before_ms))).limit(limit)
    which = tuple_(*key, Acknowledgement.node).in_(some)
    return (await connection.execute(delete(Acknowledgement).where(which))).rowcount


def _old(before_ms: int) -> Select[str, str, int]:
    newer = aliased(Table)
    has_newer = (
        select(newer.version)
        .where(
            newer.beam_id == Table.beam_id,
            newer.link == Table.link,
            newer.version > Table.version,
        )
        .exists()
    )
    keys = select(Table.beam_id, Table.link, Table.version)
    return keys.where(Table.end_ms < before_ms, has_newer)


def _of(beam: str, link: Link) -> Select[Any]:
    return select(Table.__table__).where(Table.beam_id == beam, Table.link == Link(link).value)


async def _one(connection: AsyncConnection, query: Select[Any]) -> StoredPlan | None:
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else _stored(row)


def _stored(row: Row[Any]) -> StoredPlan:
    return StoredPlan(
        beam=row.beam_id,
        link=Link(row.link),
        version=row.version,
        issued_ms=row.issued_ms,
        start_ms=row.start_ms,
        end_ms=row.end_ms,
        fence=row.fence,
        reason=row.reason,
        document=row.document,
    )
