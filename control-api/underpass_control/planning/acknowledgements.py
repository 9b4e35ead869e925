"""Acknowledgements: which node has taken which plan over, and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Link
from underpass_control.instants import moment_of, rfc3339
from underpass_control.storage.changes import Announce
from underpass_control.storage.models import Acknowledgement as Table
from underpass_control.storage.models import Plan


@dataclass(frozen=True)
class Acknowledgement:
    """A node has had a plan since a time, in control's clock."""

    beam: str
    link: Link
    version: int
    node: int
    applied_ms: int


async def store(
    connection: AsyncConnection, announce: Announce, given: Iterable[Acknowledgement]
) -> int:
    """Store acknowledgements; those of plans that are not there, or no longer, are left out.

    One that comes again changes nothing. Return how many are new.
    """
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    new = 0
    for one in given:
        plan = select(Plan.issued_ms).where(
            Plan.beam_id == one.beam,
            Plan.link == Link(one.link).value,
            Plan.version == one.version,
        )
        issued_ms = (await connection.execute(plan)).scalar_one_or_none()
        if issued_ms is None:
            continue
        row = {
            "beam_id": one.beam,
            "link": Link(one.link).value,
            "version": one.version,
            "node": one.node,
            "applied_ms": one.applied_ms,
        }
        insert = dialect.insert(Table).values(row).on_conflict_do_nothing().returning(Table.node)
        if (await connection.execute(insert)).scalar_one_or_none() is None:
            continue
        new += 1
        announce(
            {
                "kind": "acknowledgements",
                "beam": one.beam,
                "link": row["link"],
                "plan": one.version,
                "node": one.node,
                "applied": rfc3339(moment_of(one.applied_ms)),
                "after_ms": one.applied_ms - issued_ms,
            }
        )
    return new


async def of_plan(
    connection: AsyncConnection,
    beam: str,
    link: Link,
    version: int,
    *,
    after: int | None,
    limit: int,
) -> list[Acknowledgement]:
    """Return those of a plan, behind a node, in order of nodes."""
    query = select(Table.node, Table.applied_ms).where(
        Table.beam_id == beam, Table.link == link.value, Table.version == version
    )
    if after is not None:
        query = query.where(Table.node > after)
    rows = await connection.execute(query.order_by(Table.node).limit(limit))
    return [Acknowledgement(beam, link, version, row.node, row.applied_ms) for row in rows]
