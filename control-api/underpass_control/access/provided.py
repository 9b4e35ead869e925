"""Users who sign in by a provider: at each sign-in it tells who they are and what they may do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from sqlalchemy import insert, select
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access import users
from underpass_control.access.audit import Actor, Changed, record
from underpass_control.access.caller import Kind
from underpass_control.roles import Role
from underpass_control.storage.models import User


class ProvidedError(ValueError):
    """A user of the provider cannot sign in here; the text says why."""


@dataclass(frozen=True)
class Provided:
    """A user, as the provider describes them."""

    issuer: str
    subject: str
    # The user's name for people; the provider may give it to another user later, this service not.
    name: str
    # The browser's address.
    address: str


@dataclass(frozen=True)
class Taken:
    """A user who may sign in: its number, and the sessions that end because its grant changed."""

    user_id: int
    ended: Collection[int]


async def take_in(
    connection: AsyncConnection, who: Provided, role: Role, tenant: str | None, now_ms: int
) -> Taken:
    """Make the user, or update it to what the provider says now.

    Raises:
        ProvidedError: There is no such tenant, or the name is another user's.
    """
    if tenant is not None and await users.get_tenant(connection, tenant) is None:
        raise ProvidedError(f"you are of the tenant {tenant}, which there is not")
    before = await _known(connection, who)
    namesake = await users.get_user(connection, who.name)
    if namesake is not None and (before is None or namesake.id != before.id):
        detail = f"there is another user {who.name} here: an administrator can remove that one"
        raise ProvidedError(detail)
    if before is None:
        values = {
            "name": who.name,
            "role": role.value,
            "tenant_id": tenant,
            "password_hash": "",
            "created_ms": now_ms,
            "issuer": who.issuer,
            "subject": who.subject,
        }
        made = await connection.execute(insert(User).values(values).returning(User.id))
        user_id, ended = made.scalar_one(), list[int]()
        await _record(connection, who, user_id, "set", (None, _state(values)), now_ms)
        return Taken(user_id, ended)
    values = {"name": who.name, "role": role.value, "tenant_id": tenant}
    changed = {name: to for name, to in values.items() if getattr(before, name) != to}
    if not changed:
        return Taken(before.id, [])
    ended = await users.change_user(connection, before.id, changed)
    states = users.user_state(before), _state(values)
    await _record(connection, who, before.id, "set", states, now_ms)
    return Taken(before.id, ended)


async def turn_away(connection: AsyncConnection, who: Provided, now_ms: int) -> list[int]:
    """Remove a user to whom nothing is granted any more; return the sessions that end by it."""
    before = await _known(connection, who)
    if before is None:
        return []
    ended = await users.remove_user(connection, before.id)
    states = users.user_state(before), None
    await _record(connection, who, before.id, "delete", states, now_ms)
    return ended


async def _known(connection: AsyncConnection, who: Provided) -> Row[Any] | None:
    query = select(User.__table__).where(User.issuer == who.issuer, User.subject == who.subject)
    return (await connection.execute(query)).one_or_none()


async def _record(
    connection: AsyncConnection,
    who: Provided,
    user_id: int,
    action: str,
    states: tuple[dict[str, Any] | None, dict[str, Any] | None],
    now_ms: int,
) -> None:
    before, after = states
    tenant = (after or before or {})["tenant"]
    actor = Actor(Kind.USER.value, user_id, who.name, who.address)
    changed = Changed(action, f"/v1/users/{who.name}", tenant, before, after)
    await record(connection, actor, [changed], now_ms)


def _state(values: dict[str, Any]) -> dict[str, Any]:
    return {name.removesuffix("_id"): values[name] for name in ("name", "role", "tenant_id")}
