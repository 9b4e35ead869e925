"""Who may do what: bearer tokens and their roles."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Collection
from dataclasses import dataclass

from sqlalchemy import ColumnElement, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.roles import Role
from underpass_control.storage.models import Token

_PREFIX = "upc_"
_RANDOM_BYTES = 32
# In characters; some room for tokens of later versions.
LONGEST_TOKEN = 128


@dataclass(frozen=True)
class Caller:
    """Whoever has shown a token."""

    token_id: int
    name: str
    role: Role
    # The node that a gateway's or terminal's token is for.
    node: int | None
    expires_ms: int | None

    def may_report_for(self, terminal: int) -> bool:
        """Tell whether it may speak for a terminal: gateways and operators do for all."""
        if self.role is Role.TERMINAL:
            return self.node == terminal
        return self.role in (Role.GATEWAY, Role.OPERATOR)

    def may_read(self, terminal: int) -> bool:
        """Tell whether it may see a terminal's data: a terminal sees its own only."""
        return self.role is not Role.TERMINAL or self.node == terminal


async def create_token(
    connection: AsyncConnection,
    *,
    name: str,
    role: Role,
    node: int | None,
    now_ms: int,
    expires_ms: int | None,
) -> str:
    """Make a token and return it: it is not stored and cannot be shown again."""
    text = _PREFIX + secrets.token_urlsafe(_RANDOM_BYTES)
    await connection.execute(
        insert(Token).values(
            name=name,
            digest=_digest(text),
            role=role.value,
            node=node,
            created_ms=now_ms,
            expires_ms=expires_ms,
        )
    )
    return text


async def revoke_token(connection: AsyncConnection, token_id: int, now_ms: int) -> bool:
    """Revoke a token; return whether there was one in force."""
    result = await connection.execute(
        update(Token)
        .where(Token.id == token_id, Token.revoked_ms.is_(None))
        .values(revoked_ms=now_ms)
    )
    return result.rowcount > 0


async def find_caller(connection: AsyncConnection, text: str, now_ms: int) -> Caller | None:
    """Return whose token this is; None if nobody's, or no longer."""
    # What is looked up is a hash of what was sent, so how long it takes tells nothing of tokens.
    row = (
        await connection.execute(
            select(Token.id, Token.name, Token.role, Token.node, Token.expires_ms).where(
                Token.digest == _digest(text), is_in_force(now_ms)
            )
        )
    ).one_or_none()
    if row is None:
        return None
    return Caller(row.id, row.name, Role(row.role), row.node, row.expires_ms)


async def in_force(
    connection: AsyncConnection, token_ids: Collection[int], now_ms: int
) -> set[int]:
    """Return which of some tokens are neither expired nor revoked."""
    query = select(Token.id).where(Token.id.in_(token_ids), is_in_force(now_ms))
    return set(await connection.scalars(query))


def is_in_force(now_ms: int) -> ColumnElement[bool]:
    """Return the condition that a token is neither expired nor revoked."""
    return Token.revoked_ms.is_(None) & (Token.expires_ms.is_(None) | (Token.expires_ms > now_ms))


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()
