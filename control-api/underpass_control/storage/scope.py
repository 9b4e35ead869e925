"""The rows that a tenant may see: every statement is restricted here, wherever it is written.

During a request of a tenant's caller, each connection to the database carries the tenant. Each
SELECT, UPDATE and DELETE on it, inner ones included, gets conditions for all tables that it names.
Tables without a rule, and SQL as text, are refused: a table forgotten here shows nothing rather
than everything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, cast

from sqlalchemy import ColumnElement, Connection, FromClause, Table, func, select
from sqlalchemy.sql import Delete, Executable, Select, Subquery, TextClause, Update
from sqlalchemy.sql.elements import ClauseElement
from sqlalchemy.sql.selectable import CTE, Alias, Join
from sqlalchemy.sql.visitors import ExternallyTraversible, cloned_traverse

from underpass_control.storage.models import Terminal, User

OPTION = "underpass_tenant"
# Tables whose rows all tenants may see, as far as an endpoint shows them.
SHARED = frozenset({"beam", "capacity_step", "map_tile", "obstruction", "plan", "tileset"})
# The column that has the tenant.
OF_TENANT = {
    "audit_entry": "tenant_id",
    "slice": "tenant_id",
    "rollout": "tenant_id",
    "tenant": "id",
    "terminal": "tenant_id",
    "token": "tenant_id",
    "user_account": "tenant_id",
}
# The column that has a terminal.
OF_TERMINAL = {
    "alert": "terminal",
    "announcement": "terminal",
    "blockage": "terminal",
    "intervention": "terminal",
    "link_state": "terminal",
    "link_usage": "terminal",
    "node_report": "terminal",
    "position_report": "terminal",
    "predicted_blockage": "terminal",
    "remembered_drive": "terminal",
    "rollout_terminal": "terminal",
    "route": "terminal",
    "terminal_settings": "terminal",
    "terminal_tag": "terminal",
}
# The column with the end of something about a terminal; NULL: it lasts. Rows that ended before the
# terminal came to its tenant are not for that tenant. All other rows of a terminal describe its
# present state, and move with it.
RECORDED_UNTIL = {
    "alert": "resolved_ms",
    "announcement": "announced_ms",
    "blockage": "exit_ms",
    "intervention": "until_ms",
    "link_usage": "start_ms",
    "position_report": "time_ms",
    "predicted_blockage": "exit_ms",
}
# Queries of these tables find rows by terminal in any case, and should stop at the first or last.
_ASKED_BY_TERMINAL = frozenset({"position_report"})
assert RECORDED_UNTIL.keys() >= _ASKED_BY_TERMINAL, "nothing else restricts them"
# The column that has a user.
OF_USER = {"user_session": "user_id"}
# Tables hidden from tenants: lending and debts would tell about others.
REFUSED = frozenset(
    {
        "acknowledgement",
        "enrolment",
        "gateway_settings",
        "alert_message",
        "alert_pending",
        "alert_rule",
        "alert_target",
        "lease",
        "ledger_entry",
        "ledger_lot",
        "ledger_opening",
        "ledger_posting",
        "obstruction_count",
        "settled",
        "settled_usage",
    }
)

# Later than any time that is stored.
_NEVER_MS = 2**62
_TENANT: ContextVar[str | None] = ContextVar("tenant", default=None)


class ScopeError(RuntimeError):
    """A statement reads what no tenant may see."""


@contextmanager
def within(tenant: str | None) -> Iterator[None]:
    """Have all connections that are opened meanwhile see a tenant's rows; None: all rows."""
    before = _TENANT.set(tenant)
    try:
        yield
    finally:
        _TENANT.reset(before)


def current_tenant() -> str | None:
    """Return the tenant that connections opened now are restricted to."""
    return _TENANT.get()


def restrict(
    connection: Connection,
    statement: Executable,
    multiparams: Any,
    params: Any,
    _options: Any,
) -> tuple[Executable, Any, Any]:
    """Restrict a statement before it is executed, if its connection is (`before_execute`).

    Raises:
        ScopeError: No tenant may see what it reads.
    """
    tenant = connection.get_execution_options().get(OPTION)
    if tenant is not None:
        statement = restricted(statement, tenant)
    return statement, multiparams, params


def restricted(statement: Executable, tenant: str) -> Executable:
    """Return a statement that sees a tenant's rows only.

    Raises:
        ScopeError: No tenant may see what it reads.
    """
    if isinstance(statement, TextClause):
        raise ScopeError("SQL as text cannot be restricted to a tenant")

    def of_select(one: Select[Any]) -> None:
        for source in one.get_final_froms():
            one._where_criteria += tuple(_conditions(source, tenant))

    def of_change(one: Update | Delete) -> None:
        one._where_criteria += tuple(_conditions(one.table, tenant))

    visits: dict[str, Any] = {"select": of_select, "update": of_change, "delete": of_change}
    clone: Any = cloned_traverse(cast("ExternallyTraversible", statement), {}, visits)
    return cast("Executable", clone)


def _conditions(source: ClauseElement, tenant: str) -> Iterator[ColumnElement[bool]]:
    """Yield what rows of a source have to meet."""
    if isinstance(source, Join):
        yield from _conditions(source.left, tenant)
        yield from _conditions(source.right, tenant)
        return
    if isinstance(source, Subquery | CTE):
        # Its own SELECT has been restricted.
        return
    table = source.element if isinstance(source, Alias) else source
    if not (isinstance(table, Table) and isinstance(source, FromClause)):
        raise ScopeError(f"{type(source).__name__} cannot be restricted to a tenant")
    name = table.name
    if name in SHARED:
        return
    if name in OF_TENANT:
        yield source.c[OF_TENANT[name]] == tenant
    elif name in OF_TERMINAL:
        own = Terminal.__table__.alias()
        terminal = source.c[OF_TERMINAL[name]]
        if name not in _ASKED_BY_TERMINAL:
            # Rows are found by this, as the indexes go by terminals.
            yield terminal.in_(select(own.c.node).where(own.c.tenant_id == tenant).correlate(None))
        if name in RECORDED_UNTIL:
            since_ms = (
                select(own.c.tenant_since_ms)
                .where(own.c.node == terminal, own.c.tenant_id == tenant)
                .correlate(source)
                .scalar_subquery()
            )
            # Other tenants' terminals have no such time, so the condition is never true for them.
            yield func.coalesce(source.c[RECORDED_UNTIL[name]], _NEVER_MS) >= since_ms
    elif name in OF_USER:
        own = User.__table__.alias()
        yield source.c[OF_USER[name]].in_(
            select(own.c.id).where(own.c.tenant_id == tenant).correlate(None)
        )
    else:
        raise ScopeError(f"no tenant may read the table {name}")
