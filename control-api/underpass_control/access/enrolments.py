"""Permissions for nodes to enrol: each token for one key."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from sqlalchemy import delete, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access.secrets import digest_of
from underpass_control.enrolment.tokens import RANDOM_BYTES, token_of
from underpass_control.storage.models import Enrolment

# All but the hash and the configuration.
_SHOWN = tuple(
    column
    for column in Enrolment.__table__.columns
    if column.name not in ("digest", "configuration")
)


async def create_enrolment(
    connection: AsyncConnection,
    *,
    node: int,
    configuration: str,
    fingerprint: bytes,
    now_ms: int,
    expires_ms: int,
) -> tuple[int, str]:
    """Make an enrolment; return its number and token, which is not stored."""
    text = token_of(node, fingerprint, secrets.token_bytes(RANDOM_BYTES))
    values = {
        "digest": digest_of(text),
        "node": node,
        "configuration": configuration,
        "created_ms": now_ms,
        "expires_ms": expires_ms,
    }
    made = await connection.execute(insert(Enrolment).values(values).returning(Enrolment.id))
    return made.scalar_one(), text


async def get_enrolment(connection: AsyncConnection, enrolment: int) -> Row[Any] | None:
    """Return an enrolment without its secrets."""
    query = select(*_SHOWN).where(Enrolment.id == enrolment)
    return (await connection.execute(query)).one_or_none()


async def page_of_enrolments(
    connection: AsyncConnection,
    *,
    node: int | None,
    after: int | None,
    limit: int,
    newest_first: bool,
) -> Sequence[Row[Any]]:
    """Return enrolments of a node, or of all, behind a number, in order."""
    query = select(*_SHOWN).limit(limit)
    if node is not None:
        query = query.where(Enrolment.node == node)
    if after is not None:
        query = query.where(Enrolment.id < after if newest_first else Enrolment.id > after)
    order = Enrolment.id.desc() if newest_first else Enrolment.id
    return (await connection.execute(query.order_by(order))).all()


async def revoke_enrolment(connection: AsyncConnection, enrolment: int, now_ms: int) -> bool:
    """Revoke an enrolment; return whether there was one in force."""
    change = (
        update(Enrolment)
        .where(Enrolment.id == enrolment, Enrolment.revoked_ms.is_(None))
        .values(revoked_ms=now_ms)
    )
    return (await connection.execute(change)).rowcount > 0


async def find_enrolment(connection: AsyncConnection, text: str, now_ms: int) -> Row[Any] | None:
    """Return the whole enrolment of a token, if it is neither expired nor revoked."""
    query = select(Enrolment.__table__).where(
        Enrolment.digest == digest_of(text),
        Enrolment.revoked_ms.is_(None),
        Enrolment.expires_ms > now_ms,
    )
    return (await connection.execute(query)).one_or_none()


async def use_enrolment(
    connection: AsyncConnection, enrolment: int, key_sha256: str, now_ms: int
) -> bool:
    """Assign an enrolment to a key, if no key has it; return whether that was done."""
    change = (
        update(Enrolment)
        .where(
            Enrolment.id == enrolment,
            Enrolment.key_sha256.is_(None),
            Enrolment.revoked_ms.is_(None),
        )
        .values(key_sha256=key_sha256, used_ms=now_ms)
    )
    return (await connection.execute(change)).rowcount > 0


async def end_earlier(connection: AsyncConnection, node: int, enrolment: int, now_ms: int) -> None:
    """Revoke the other used enrolments of a node, since another key is now the node.

    Otherwise a key of stolen or replaced equipment could come again with its token and get a new
    certificate for the node's number.
    """
    await connection.execute(
        update(Enrolment)
        .where(
            Enrolment.node == node,
            Enrolment.id != enrolment,
            Enrolment.key_sha256.is_not(None),
            Enrolment.revoked_ms.is_(None),
        )
        .values(revoked_ms=now_ms)
    )


async def prune_enrolments(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` enrolments that expired before a time; return how many."""
    some = select(Enrolment.id).where(Enrolment.expires_ms < before_ms).limit(limit)
    return (await connection.execute(delete(Enrolment).where(Enrolment.id.in_(some)))).rowcount
