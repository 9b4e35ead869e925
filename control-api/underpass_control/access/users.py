"""Users, and the tenants that they and vehicles belong to."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from sqlalchemy import ColumnElement, delete, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access.sessions import end_sessions_of
from underpass_control.access.tokens import is_in_force
from underpass_control.roles import Role
from underpass_control.storage.changes import RevisionError
from underpass_control.storage.models import Slice, Tenant, Terminal, Token, User

DEFAULT_TENANT = "default"
USER_ROLES = frozenset({Role.VIEWER, Role.OPERATOR, Role.ADMINISTRATOR})
# Gateways serve terminals of all tenants.
TENANT_ROLES = USER_ROLES | {Role.TERMINAL}
USER_NAME = re.compile(r"[a-z0-9][a-z0-9._@+-]{0,63}")
_SHOWN = tuple(column for column in User.__table__.columns if column.name != "password_hash")


def user_state(row: Row[Any]) -> dict[str, Any]:
    """Return a user as the log of changes shows it."""
    return {"name": row.name, "role": row.role, "tenant": row.tenant_id}


async def get_user(connection: AsyncConnection, name: str) -> Row[Any] | None:
    """Return a user's row without the password's hash."""
    return (await connection.execute(select(*_SHOWN).where(User.name == name))).one_or_none()


async def password_hash_of(connection: AsyncConnection, name: str) -> tuple[int, str] | None:
    """Return a user's number and the password's hash; None if there is no password."""
    query = select(User.id, User.password_hash).where(User.name == name, User.issuer.is_(None))
    row = (await connection.execute(query)).one_or_none()
    return None if row is None else (row.id, row.password_hash)


async def lock_user(connection: AsyncConnection, name: str) -> None:
    """Make other changes of a user wait until the transaction ends.

    A change ends the sessions that it sees; a session that begins meanwhile would continue.
    """
    # SQLite has no other way to lock than to write.
    same = update(User).where(User.name == name).values(revision=User.revision)
    await connection.execute(same)


async def page_of_users(
    connection: AsyncConnection, *, after: str | None, limit: int | None
) -> Sequence[Row[Any]]:
    """Return users behind a name, in order of names."""
    query = select(*_SHOWN).order_by(User.name).limit(limit)
    if after is not None:
        query = query.where(User.name > after)
    return (await connection.execute(query)).all()


async def create_user(
    connection: AsyncConnection,
    *,
    name: str,
    role: Role,
    tenant: str | None,
    password_hash: str,
    now_ms: int,
) -> None:
    """Make a user.

    Raises:
        IntegrityError: There is one of that name, or no such tenant.
    """
    await connection.execute(
        insert(User).values(
            name=name,
            role=role.value,
            tenant_id=tenant,
            password_hash=password_hash,
            created_ms=now_ms,
        )
    )


async def change_user(
    connection: AsyncConnection,
    user_id: int,
    values: dict[str, Any],
    *,
    revision: int | None = None,
) -> list[int]:
    """Change columns of a user; return the sessions that end by it: all.

    Raises:
        RevisionError: `revision` is given and is not the user's.
    """
    change = update(User).where(*_at(user_id, revision))
    changed = await connection.execute(change.values({**values, "revision": User.revision + 1}))
    if revision is not None and not changed.rowcount:
        raise RevisionError
    return await end_sessions_of(connection, user_id)


async def remove_user(
    connection: AsyncConnection, user_id: int, *, revision: int | None = None
) -> list[int]:
    """Remove a user; return the sessions that end by it.

    Raises:
        RevisionError: `revision` is given and is not the user's.
    """
    # Lock the user first, then the sessions, in the same order as changes and sign-ins: otherwise
    # two could deadlock, and a session that begins meanwhile would end without being reported.
    same = update(User).where(*_at(user_id, revision)).values(revision=User.revision)
    locked = await connection.execute(same)
    if revision is not None and not locked.rowcount:
        raise RevisionError
    ended = await end_sessions_of(connection, user_id)
    await connection.execute(delete(User).where(User.id == user_id))
    return ended


def _at(user_id: int, revision: int | None) -> list[ColumnElement[bool]]:
    where: list[ColumnElement[bool]] = [User.id == user_id]
    return where if revision is None else [*where, User.revision == revision]


async def page_of_tenants(
    connection: AsyncConnection, *, after: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Return tenants behind an id, in order of ids."""
    query = select(Tenant.__table__).order_by(Tenant.id).limit(limit)
    if after is not None:
        query = query.where(Tenant.id > after)
    return (await connection.execute(query)).all()


async def get_tenant(connection: AsyncConnection, tenant: str) -> Row[Any] | None:
    """Return a tenant, locked against being deleted meanwhile."""
    query = (
        select(Tenant.__table__)
        .where(Tenant.id == tenant)
        .with_for_update(read=True, key_share=True)
    )
    return (await connection.execute(query)).one_or_none()


async def lock_tenant(connection: AsyncConnection, tenant: str) -> Row[Any] | None:
    """Return a tenant, locked so that nothing is given to it meanwhile."""
    if connection.dialect.name == "sqlite":
        # SQLite can lock only by writing. On PostgreSQL, writing before locking could deadlock with
        # a transaction that has read the tenant and is about to rename it.
        same = update(Tenant).where(Tenant.id == tenant).values(name=Tenant.name)
        await connection.execute(same)
    query = select(Tenant.__table__).where(Tenant.id == tenant).with_for_update()
    return (await connection.execute(query)).one_or_none()


async def put_tenant(connection: AsyncConnection, tenant: str, name: str) -> bool:
    """Set a tenant; tell whether it is new."""
    changed = update(Tenant).where(Tenant.id == tenant).values(name=name)
    if (await connection.execute(changed)).rowcount:
        return False
    await connection.execute(insert(Tenant).values(id=tenant, name=name))
    return True


async def belongings_of(connection: AsyncConnection, tenant: str, now_ms: int) -> str | None:
    """Return what belongs to a tenant, for people; None if nothing does.

    Revoked and expired tokens do not count.
    """
    for what, column, *where in (
        ("vehicles", Terminal.tenant_id),
        ("users", User.tenant_id),
        ("tokens", Token.tenant_id, is_in_force(now_ms)),
        ("slices", Slice.tenant_id),
    ):
        query = select(column).where(column == tenant, *where).limit(1)
        if (await connection.execute(query)).first():
            return what
    return None


async def remove_tenant(connection: AsyncConnection, tenant: str, now_ms: int) -> None:
    """Delete a tenant to which nothing belongs, with its revoked and expired tokens.

    Raises:
        IntegrityError: Users or tokens in force belong to it.
    """
    over = Token.tenant_id == tenant, ~is_in_force(now_ms)
    await connection.execute(delete(Token).where(*over))
    await connection.execute(delete(Tenant).where(Tenant.id == tenant))
