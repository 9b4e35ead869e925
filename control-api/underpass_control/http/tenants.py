"""Tenants: the owners of vehicles, users and tokens."""

from __future__ import annotations

import time
from http import HTTPStatus

from pydantic import TypeAdapter, ValidationError
from sqlalchemy.exc import IntegrityError

from underpass_control.access import users
from underpass_control.access.audit import Changed
from underpass_control.http import account_models as models
from underpass_control.http.cursor import next_page, text_after
from underpass_control.http.endpoint import ADMINISTRATORS, READERS, Answer, Call, Endpoint
from underpass_control.http.models import Page, TenantId
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.storage.database import Database

_TENANT_ID: TypeAdapter[str] = TypeAdapter(TenantId)


class Tenants:
    """The endpoints of tenants."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        one, conflict = "/v1/tenants/{tenant}", HTTPStatus.CONFLICT
        return [
            Endpoint(
                "GET",
                "/v1/tenants",
                "All tenants",
                self._page,
                READERS,
                tenancy=Tenancy.ROWS,
                query=Page,
                answers=models.TenantList,
            ),
            Endpoint(
                "PUT",
                one,
                "Set a tenant",
                self._put,
                ADMINISTRATORS,
                body=models.TenantBody,
                answers=models.Tenant,
                others=[HTTPStatus.CREATED],
                problems=[conflict],
            ),
            Endpoint(
                "DELETE",
                one,
                "Delete a tenant to which nothing belongs",
                self._delete,
                ADMINISTRATORS,
                problems=[conflict],
            ),
        ]

    async def _page(self, call: Call) -> models.TenantList:
        query = call.query(Page)
        async with self._database.reading() as connection:
            rows = await users.page_of_tenants(
                connection, after=text_after(query.cursor), limit=query.limit
            )
        last = next_page(rows, query.limit, lambda row: row.id)
        found = [models.Tenant(id=row.id, name=row.name) for row in rows]
        return models.TenantList(tenants=found, next=last)

    async def _put(self, call: Call) -> Answer:
        name = call.body(models.TenantBody).name
        try:
            tenant = _TENANT_ID.validate_python(call.path["tenant"])
        except ValidationError as error:
            detail = (
                "a tenant's id has 1 to 64 of a-z, 0-9, - and _, and begins with one of a-z, 0-9"
            )
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from error
        try:
            async with self._database.transaction() as connection:
                before = await users.get_tenant(connection, tenant)
                new = await users.put_tenant(connection, tenant, name)
                was = None if before is None else {"name": before.name}
                target = f"/v1/tenants/{tenant}"
                changed = Changed("set", target, tenant, was, {"name": name})
                await call.record(connection, changed)
        except IntegrityError as error:
            raise Problem(HTTPStatus.CONFLICT, f"{tenant} has just been made") from error
        status = HTTPStatus.CREATED if new else HTTPStatus.OK
        return Answer(models.Tenant(id=tenant, name=name), status)

    async def _delete(self, call: Call) -> Answer:
        tenant = call.path["tenant"]
        if tenant == users.DEFAULT_TENANT:
            detail = "vehicles belong to it that are made without a tenant"
            raise Problem(HTTPStatus.CONFLICT, detail)
        now_ms = time.time_ns() // 1_000_000
        try:
            async with self._database.transaction() as connection:
                # Locked first, so that nothing is given to it meanwhile.
                before = await users.lock_tenant(connection, tenant)
                if before is None:
                    raise Problem(HTTPStatus.NOT_FOUND, f"there is no tenant {tenant}")
                has = await users.belongings_of(connection, tenant, now_ms)
                if has is not None:
                    raise Problem(HTTPStatus.CONFLICT, f"{tenant} still has {has}")
                await users.remove_tenant(connection, tenant, now_ms)
                was = {"name": before.name}
                target = f"/v1/tenants/{tenant}"
                await call.record(connection, Changed("delete", target, tenant, was, None))
        except IntegrityError as error:
            raise Problem(HTTPStatus.CONFLICT, f"{tenant} still has users or tokens") from error
        return Answer(None, HTTPStatus.NO_CONTENT)
