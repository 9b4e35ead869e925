"""Bearer tokens."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access.caller import Caller, Credential, Kind
from underpass_control.access.secrets import digest_of, new_secret
from underpass_control.roles import Role
from underpass_control.storage.models import Token

PREFIX = "upc_"
# All but the hash.
_SHOWN = tuple(column for column in Token.__table__.columns if column.name != "digest")


async def create_token(
    connection: AsyncConnection,
    *,
    name: str,
    role: Role,
    node: int | None,
    now_ms: int,
    expires_ms: int | None,
    tenant: str | None = None,
) -> tuple[int, str]:
    """Make a token; return its number and the token, which is not stored or shown again."""
    text = new_secret(PREFIX)
    values = {
        "name": name,
        "digest": digest_of(text),
        "role": role.value,
        "node": node,
        "tenant_id": tenant,
        "created_ms": now_ms,
        "expires_ms": expires_ms,
    }
    made = await connection.execute(insert(Token).values(values).returning(Token.id))
    return made.scalar_one(), text


async def revoke_token(connection: AsyncConnection, token_id: int, now_ms: int) -> bool:
    """Revoke a token; return whether there was one in force."""
    result = await connection.execute(
        update(Token)
        .where(Token.id == token_id, Token.revoked_ms.is_(None))
        .values(revoked_ms=now_ms)
    )
    return result.rowcount > 0


async def revoke_tokens_of(connection: AsyncConnection, terminal: int, now_ms: int) -> None:
    """Revoke the tokens of a terminal, so that they do not hold for a later one of its number."""
    await connection.execute(
        update(Token)
        .where(
            Token.node == terminal,
            Token.role == Role.TERMINAL.value,
            Token.revoked_ms.is_(None),
        )
        .values(revoked_ms=now_ms)
    )


async def get_token(connection: AsyncConnection, token_id: int) -> Row[Any] | None:
    """Return a token's row without its hash."""
    return (await connection.execute(select(*_SHOWN).where(Token.id == token_id))).one_or_none()


async def page_of_tokens(
    connection: AsyncConnection, *, after: int | None, limit: int | None
) -> Sequence[Row[Any]]:
    """Return tokens behind a number, in order, without their hashes."""
    query = select(*_SHOWN).order_by(Token.id).limit(limit)
    if after is not None:
        query = query.where(Token.id > after)
    return (await connection.execute(query)).all()


async def find_token(connection: AsyncConnection, text: str, now_ms: int) -> Caller | None:
    """Return the caller of a token; None if there is none in force."""
    # The look-up is by the hash of the sent text, so its duration tells nothing about tokens.
    row = (
        await connection.execute(
            select(*_SHOWN).where(Token.digest == digest_of(text), is_in_force(now_ms))
        )
    ).one_or_none()
    if row is None:
        return None
    credential = Credential(Kind.TOKEN, row.id)
    return Caller(credential, row.name, Role(row.role), row.node, row.tenant_id, row.expires_ms)


async def tokens_in_force(
    connection: AsyncConnection, ids: Collection[int], now_ms: int
) -> set[int]:
    """Return which of some tokens are neither expired nor revoked."""
    return set(
        await connection.scalars(select(Token.id).where(Token.id.in_(ids), is_in_force(now_ms)))
    )


def is_in_force(now_ms: int) -> ColumnElement[bool]:
    """Return the condition that a token is neither expired nor revoked."""
    return Token.revoked_ms.is_(None) & (Token.expires_ms.is_(None) | (Token.expires_ms > now_ms))
