"""Sessions of users who have signed in.

A session ends when it has not been used for a while; at a fixed time after signing in; and when its
user signs out, is removed, or gets another role, tenant or password.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Collection

from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access.caller import Caller, Credential, Kind
from underpass_control.access.secrets import digest_of, new_secret
from underpass_control.roles import Role
from underpass_control.storage.models import User, UserSession

PREFIX = "ups_"
# The most sessions of one user; a further one ends the oldest.
_MOST_OF_USER = 20


async def begin_session(
    connection: AsyncConnection, user_id: int, *, now_ms: int, lasts_ms: int, idle_ms: int
) -> str:
    """Begin a session of a user; return the secret that its cookie holds."""
    kept = (
        select(UserSession.id)
        .where(UserSession.user_id == user_id)
        .order_by(UserSession.id.desc())
        .limit(_MOST_OF_USER - 1)
    )
    await connection.execute(
        delete(UserSession).where(
            UserSession.user_id == user_id, UserSession.id.not_in(kept.scalar_subquery())
        )
    )
    text = new_secret(PREFIX)
    await connection.execute(
        insert(UserSession).values(
            digest=digest_of(text),
            user_id=user_id,
            created_ms=now_ms,
            expires_ms=now_ms + lasts_ms,
            idle_until_ms=now_ms + min(idle_ms, lasts_ms),
        )
    )
    return text


async def find_session(connection: AsyncConnection, text: str, now_ms: int) -> Caller | None:
    """Return the caller of a session; None if there is none in force."""
    query = (
        select(
            UserSession.id, UserSession.expires_ms, UserSession.user_id,
            User.name, User.role, User.tenant_id, User.issuer,
        )
        .join(User, User.id == UserSession.user_id)
        .where(UserSession.digest == digest_of(text), _lasts(now_ms))
    )  # fmt: skip
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        return None
    return Caller(
        Credential(Kind.USER, row.id),
        row.name,
        Role(row.role),
        None,
        row.tenant_id,
        row.expires_ms,
        row.user_id,
        row.issuer,
    )


async def sessions_in_force(
    connection: AsyncConnection, ids: Collection[int], now_ms: int
) -> set[int]:
    """Return which of some sessions are in force."""
    query = select(UserSession.id).where(UserSession.id.in_(ids), _lasts(now_ms))
    return set(await connection.scalars(query))


async def touch_sessions(
    connection: AsyncConnection, ids: Collection[int], now_ms: int, idle_ms: int
) -> None:
    """Extend sessions that have just been used to `idle_ms` from now, if they are in force.

    This never shortens a session that another replica has just extended with a later `now_ms`.
    """
    until_ms = now_ms + idle_ms
    for capped in (False, True):
        beyond = UserSession.expires_ms < until_ms
        await connection.execute(
            update(UserSession)
            .where(UserSession.id.in_(ids), _lasts(now_ms), beyond if capped else ~beyond)
            .where(UserSession.idle_until_ms < until_ms)
            .values(idle_until_ms=UserSession.expires_ms if capped else until_ms)
        )


async def end_session(connection: AsyncConnection, session_id: int) -> None:
    """End a session."""
    await connection.execute(delete(UserSession).where(UserSession.id == session_id))


async def end_sessions_of(connection: AsyncConnection, user_id: int) -> list[int]:
    """End all sessions of a user; return their numbers."""
    gone = delete(UserSession).where(UserSession.user_id == user_id).returning(UserSession.id)
    return list(await connection.scalars(gone))


async def prune_sessions(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` sessions that ended before a time; return how many."""
    some = select(UserSession.id).where(UserSession.idle_until_ms < before_ms).limit(limit)
    return (await connection.execute(delete(UserSession).where(UserSession.id.in_(some)))).rowcount


def csrf_token_of(secret: str) -> str:
    """Return the token that a changing request of a session must show beside its cookie.

    Only a page of the service can read it, from an answer; another site that makes a browser send
    the cookie does not know it. It is derived from the cookie's secret, so it ends with that.
    """
    return hmac.new(secret.encode(), b"underpass csrf", hashlib.sha256).hexdigest()


def _lasts(now_ms: int) -> ColumnElement[bool]:
    return UserSession.idle_until_ms > now_ms
