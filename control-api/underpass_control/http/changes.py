"""The log of changes."""

from __future__ import annotations

from typing import Any

from sqlalchemy.engine import Row

from underpass_control.access import audit
from underpass_control.http import account_models as models
from underpass_control.http.cursor import next_page, number_after
from underpass_control.http.endpoint import ADMINISTRATORS, Call, Endpoint
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import milliseconds, moment_of
from underpass_control.storage.database import Database


class LogOfChanges:
    """The endpoint of what has been changed."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def endpoints(self) -> list[Endpoint]:
        """Return it."""
        return [
            Endpoint(
                "GET",
                "/v1/audit",
                "What has been changed, by whom and from where, the newest first",
                self._page,
                ADMINISTRATORS,
                tenancy=Tenancy.ROWS,
                query=models.AuditQuery,
                answers=models.AuditPage,
            )
        ]

    async def _page(self, call: Call) -> models.AuditPage:
        query = call.query(models.AuditQuery)
        async with self._database.reading() as connection:
            rows = await audit.page_of_entries(
                connection,
                before=number_after(query.cursor),
                limit=query.limit,
                since_ms=None if query.since is None else milliseconds(query.since),
                until_ms=None if query.until is None else milliseconds(query.until),
                actor=query.actor,
                target=query.target,
                tenant=call.known_caller.tenant,
            )
        last = next_page(rows, query.limit, lambda row: row.id)
        return models.AuditPage(entries=[_shown(row) for row in rows], next=last)


def _shown(row: Row[Any]) -> models.AuditEntry:
    return models.AuditEntry(
        id=row.id,
        time=moment_of(row.time_ms),
        actor_kind=row.actor_kind,
        actor_id=row.actor_id,
        actor=row.actor,
        address=row.address,
        tenant=row.tenant_id,
        action=row.action,
        target=row.target,
        before=row.before,
        after=row.after,
    )
