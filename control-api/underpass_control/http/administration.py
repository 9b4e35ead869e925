"""Shared by the endpoints for administrators: users, tokens, tenants, and the log of changes.

A tenant's administrators see only what belongs to it: `storage.scope` leaves out all else. Whatever
they make belongs to the tenant.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access import users
from underpass_control.access.caller import Caller
from underpass_control.http.problem import Problem
from underpass_control.instants import moment_of
from underpass_control.roles import Role
from underpass_control.storage.models import Terminal


def tenant_for(caller: Caller, given: str | None) -> str | None:
    """Return the tenant of an object that a caller makes.

    Raises:
        Problem: 403, the given tenant is not the caller's.
    """
    if caller.tenant is None:
        return given
    if given not in (None, caller.tenant):
        raise Problem(HTTPStatus.FORBIDDEN, f"you administrate the tenant {caller.tenant} only")
    return caller.tenant


async def check_tenant_exists(connection: AsyncConnection, tenant: str | None) -> None:
    """Check that a tenant exists.

    Raises:
        Problem: 409, there is none.
    """
    if tenant is not None and await users.get_tenant(connection, tenant) is None:
        raise Problem(HTTPStatus.CONFLICT, f"there is no tenant {tenant}")


async def check_token(
    connection: AsyncConnection, role: Role, node: int | None, tenant: str | None
) -> None:
    """Check that a token of a role may be made.

    Raises:
        Problem: 422, it may not.
    """
    detail = None
    if role is Role.TERMINAL and node is None:
        detail = "a terminal's token needs its node"
    elif node is not None and role not in (Role.TERMINAL, Role.GATEWAY):
        detail = f"the token of a {role.value} is for no node"
    elif tenant is not None and role not in users.TENANT_ROLES:
        detail = f"the role {role.value} serves all tenants: its token belongs to none"
    elif tenant is not None and role is Role.TERMINAL:
        query = select(Terminal.node).where(Terminal.node == node, Terminal.tenant_id == tenant)
        if (await connection.execute(query)).first() is None:
            detail = f"the tenant {tenant} has no terminal {node}"
    if detail is not None:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


def token_state(row: Row[Any]) -> dict[str, Any]:
    """Return a token as the API and the log of changes show it."""
    state: dict[str, Any] = {
        "id": row.id,
        "name": row.name,
        "role": row.role,
        "node": row.node,
        "tenant": row.tenant_id,
    }
    for name in ("created", "expires", "revoked"):
        ms = getattr(row, f"{name}_ms")
        state[name] = None if ms is None else moment_of(ms)
    return {name: value for name, value in state.items() if value is not None}
