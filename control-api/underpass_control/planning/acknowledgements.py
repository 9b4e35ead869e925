"""Acknowledgements: which node has adopted which plan, and when."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Link
from underpass_control.instants import moment_of, rfc3339
from underpass_control.storage.changes import Publish
from underpass_control.storage.models import Acknowledgement as Table
from underpass_control.storage.models import Plan

_Key = tuple[str, Link, int]
# Some 80 bytes each, so that they fit into one change.
_MOST_TOLD = 80


@dataclass(frozen=True)
class Acknowledgement:
    """A node has had a plan since a time, by the control service's clock."""

    beam: str
    link: Link
    version: int
    node: int
    applied_ms: int


async def store(
    connection: AsyncConnection, publish: Publish, given: Iterable[Acknowledgement]
) -> int:
    """Store acknowledgements, except those of plans that do not exist; return how many are new.

    A repeated acknowledgement changes nothing.
    """
    by_plan: dict[_Key, dict[int, Acknowledgement]] = {}
    for one in given:
        by_plan.setdefault((one.beam, Link(one.link), one.version), {}).setdefault(one.node, one)
    new = 0
    for key, nodes in by_plan.items():
        new += await _store_of_plan(connection, publish, key, nodes)
    return new


async def _store_of_plan(
    connection: AsyncConnection,
    publish: Publish,
    key: _Key,
    nodes: dict[int, Acknowledgement],
) -> int:
    beam, link, version = key
    plan = select(Plan.issued_ms).where(
        Plan.beam_id == beam, Plan.link == link.value, Plan.version == version
    )
    issued_ms = (await connection.execute(plan)).scalar_one_or_none()
    if issued_ms is None:
        return 0
    known = select(Table.node).where(
        Table.beam_id == beam,
        Table.link == link.value,
        Table.version == version,
        Table.node.in_(nodes),
    )
    stored = set(await connection.scalars(known))
    new = [one for node, one in nodes.items() if node not in stored]
    if not new:
        return 0
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    rows = [
        {
            "beam_id": beam,
            "link": link.value,
            "version": version,
            "node": one.node,
            "applied_ms": one.applied_ms,
        }
        for one in new
    ]
    # Another process may have stored the same meanwhile.
    await connection.execute(dialect.insert(Table).on_conflict_do_nothing(), rows)
    told = [
        {
            "node": one.node,
            "applied": rfc3339(moment_of(one.applied_ms)),
            "after_ms": one.applied_ms - issued_ms,
        }
        for one in new
    ]
    for start in range(0, len(told), _MOST_TOLD):
        publish(
            {
                "kind": "acknowledgements",
                "beam": beam,
                "link": link.value,
                "plan": version,
                "acknowledgements": told[start : start + _MOST_TOLD],
            }
        )
    return len(new)


async def of_plan(
    connection: AsyncConnection,
    beam: str,
    link: Link,
    version: int,
    *,
    after: int | None,
    limit: int,
) -> list[Acknowledgement]:
    """Return the acknowledgements of a plan, in order of nodes, from behind a node on."""
    query = select(Table.node, Table.applied_ms).where(
        Table.beam_id == beam, Table.link == link.value, Table.version == version
    )
    if after is not None:
        query = query.where(Table.node > after)
    rows = await connection.execute(query.order_by(Table.node).limit(limit))
    return [Acknowledgement(beam, link, version, row.node, row.applied_ms) for row in rows]
