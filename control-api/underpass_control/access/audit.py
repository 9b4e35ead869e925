"""The log of changes: who, from where, what, and the state before and after.

An entry is written in the transaction that makes the change, so neither exists without the other.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, insert, select
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.models import AuditEntry

COMMAND_LINE = "command line"
# Of a larger state only its size is kept.
_MOST_STATE_BYTES = 16_384
_MOST_TARGET = 200

State = Mapping[str, Any] | None


@dataclass(frozen=True)
class Actor:
    """Who makes a change, and from where."""

    kind: str
    id: int | None
    name: str
    # The address under which requests are counted; empty if unknown.
    address: str


@dataclass(frozen=True)
class Changed:
    """A change, and the tenant that may see it.

    Attributes:
        action: `set`, `create`, `delete`, `revoke` and so on.
        target: the changed object, as the path of its endpoint names it.
        tenant: the tenant that sees the entry, beside callers of the whole system; None for none.
    """

    action: str
    target: str
    tenant: str | None = None
    before: State = None
    after: State = None


async def record(
    connection: AsyncConnection, actor: Actor, changes: Iterable[Changed], now_ms: int
) -> None:
    """Write an entry for each change; two for an object that moves from one tenant to another."""
    entries = [
        {
            "time_ms": now_ms,
            "actor_kind": actor.kind,
            "actor_id": actor.id,
            "actor": actor.name,
            "address": actor.address,
            "tenant_id": changed.tenant,
            "action": changed.action,
            "target": changed.target[:_MOST_TARGET],
            "before": _kept(changed.before),
            "after": _kept(changed.after),
        }
        for whole in changes
        for changed in _for_tenants(whole)
    ]
    await connection.execute(insert(AuditEntry), entries)


async def page_of_entries(
    connection: AsyncConnection,
    *,
    before: int | None,
    limit: int,
    since_ms: int | None = None,
    until_ms: int | None = None,
    actor: str | None = None,
    target: str | None = None,
    tenant: str | None = None,
) -> Sequence[Row[Any]]:
    """Return entries with numbers below `before`, the newest first.

    For a tenant, the entries on an earlier one of its id, which was deleted, are left out; those on
    other tenants are left out by the connection.
    """
    query = select(AuditEntry.__table__).order_by(AuditEntry.id.desc()).limit(limit)
    if before is not None:
        query = query.where(AuditEntry.id < before)
    if since_ms is not None:
        query = query.where(AuditEntry.time_ms >= since_ms)
    if until_ms is not None:
        query = query.where(AuditEntry.time_ms < until_ms)
    if actor is not None:
        query = query.where(AuditEntry.actor == actor)
    if target is not None:
        query = query.where(AuditEntry.target.startswith(target, autoescape=True))
    if tenant is not None:
        last = select(func.max(AuditEntry.id)).where(
            AuditEntry.action == "delete", AuditEntry.target == f"/v1/tenants/{tenant}"
        )
        query = query.where(AuditEntry.id > (await connection.scalar(last) or 0))
    return (await connection.execute(query)).all()


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` entries older than a time; return how many."""
    some = select(AuditEntry.id).where(AuditEntry.time_ms < before_ms).limit(limit)
    return (await connection.execute(delete(AuditEntry).where(AuditEntry.id.in_(some)))).rowcount


def _for_tenants(changed: Changed) -> Sequence[Changed]:
    """Return a change as tenants see it: each only the state that was, or is, its own."""
    before, after = changed.before, changed.after
    if before is None or after is None or before.get("tenant") == after.get("tenant"):
        return [changed]
    action, target = changed.action, changed.target
    return [
        Changed("leave", target, before.get("tenant"), before, None),
        Changed(action, target, after.get("tenant"), None, after),
    ]


def _kept(state: State) -> State:
    if state is None:
        return None
    size = len(json.dumps(state, separators=(",", ":"), default=str))
    return state if size <= _MOST_STATE_BYTES else {"bytes": size, "kept": False}
