"""Slices: set, read, terminated; and the reports of their sites."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.models import Slice


@dataclass(frozen=True, slots=True)
class Reported:
    """A site's report about a slice.

    Attributes:
        revision: the slice's revision that it is about.
        state: `running`, `failed`, or `ended`: nothing of it is left.
        containers: name, state and health of each.
    """

    name: str
    revision: int
    state: str
    detail: str | None
    containers: list[dict[str, Any]]


async def get(connection: AsyncConnection, name: str) -> Row[Any] | None:
    """Return a slice's row."""
    found = await connection.execute(select(Slice.__table__).where(Slice.name == name))
    return found.one_or_none()


async def page(connection: AsyncConnection, *, after: str | None, limit: int) -> Sequence[Row[Any]]:
    """Return the slices after a name, in order of names."""
    query = select(Slice.__table__).order_by(Slice.name).limit(limit)
    if after is not None:
        query = query.where(Slice.name > after)
    return (await connection.execute(query)).all()


async def of_site(connection: AsyncConnection, site: str) -> Sequence[Row[Any]]:
    """Return all slices of a site."""
    query = select(Slice.__table__).where(Slice.site == site).order_by(Slice.name)
    return (await connection.execute(query)).all()


async def free_number(connection: AsyncConnection, most: int) -> int | None:
    """Return the lowest number that no slice has; None if all are taken."""
    taken = set(await connection.scalars(select(Slice.number)))
    return next((number for number in range(most) if number not in taken), None)


async def count_of(connection: AsyncConnection, tenant: str) -> int:
    """Return how many slices a tenant has."""
    query = select(func.count(Slice.name)).where(Slice.tenant_id == tenant)
    return (await connection.execute(query)).scalar_one()


async def create(
    connection: AsyncConnection,
    *,
    name: str,
    tenant: str,
    number: int,
    body: dict[str, Any],
    now_ms: int,
) -> Row[Any]:
    """Make a slice; return its row.

    Raises:
        IntegrityError: There is one of that name or number, or no such tenant.
    """
    made = insert(Slice).values(
        name=name,
        tenant_id=tenant,
        site=body["site"],
        number=number,
        revision=now_ms,
        body=body,
        set_ms=now_ms,
        ending=False,
    )
    returned = made.returning(*Slice.__table__.columns)
    row: Row[Any] = (await connection.execute(returned)).one()
    return row


async def change(
    connection: AsyncConnection,
    before: Row[Any],
    now_ms: int,
    *,
    body: dict[str, Any] | None = None,
    ending: bool = False,
) -> Row[Any] | None:
    """Give a slice another body, or begin its end; None if it was changed in the meantime."""
    values = {"revision": max(before.revision + 1, now_ms), "set_ms": now_ms, "ending": ending}
    if body is not None:
        values["body"] = body
    changed = (
        update(Slice)
        .where(Slice.name == before.name, Slice.revision == before.revision)
        .values(values)
        .returning(*Slice.__table__.columns)
    )
    return (await connection.execute(changed)).one_or_none()


async def report(connection: AsyncConnection, site: str, given: Reported, now_ms: int) -> None:
    """Store a site's report about a slice; one about another site's slice changes nothing."""
    own = (Slice.name == given.name, Slice.site == site)
    if given.state == "ended":
        ended = (Slice.ending, Slice.revision == given.revision)
        await connection.execute(delete(Slice).where(*own, *ended))
        return
    stored = update(Slice).where(*own, Slice.revision >= given.revision)
    await connection.execute(
        stored.values(
            reported_revision=given.revision,
            reported_ms=now_ms,
            reported=given.state,
            detail=given.detail,
            containers=given.containers,
        )
    )
