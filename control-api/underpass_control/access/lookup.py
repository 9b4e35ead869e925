"""Finds the caller of a secret, and whether the secret is still in force."""

from __future__ import annotations

from collections.abc import Collection

from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access import sessions, tokens
from underpass_control.access.caller import Caller, Credential, Kind


async def find_caller(connection: AsyncConnection, text: str, now_ms: int) -> Caller | None:
    """Return the caller of a token or a session's cookie; None if there is none in force."""
    if text.startswith(sessions.PREFIX):
        return await sessions.find_session(connection, text, now_ms)
    return await tokens.find_token(connection, text, now_ms)


async def in_force(
    connection: AsyncConnection, credentials: Collection[Credential], now_ms: int
) -> set[Credential]:
    """Return which of some tokens and sessions are still in force."""
    found: set[Credential] = set()
    for kind, good in (
        (Kind.TOKEN, tokens.tokens_in_force),
        (Kind.USER, sessions.sessions_in_force),
    ):
        ids = [one.id for one in credentials if one.kind is kind]
        if ids:
            found |= {Credential(kind, one) for one in await good(connection, ids, now_ms)}
    return found
