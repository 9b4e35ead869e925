"""Users: set, listed, removed, signed out."""

from __future__ import annotations

import time
from collections.abc import Iterable
from http import HTTPStatus
from typing import Any

from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access import users
from underpass_control.access.audit import Changed
from underpass_control.access.caller import Credential, Kind
from underpass_control.access.passwords import PasswordError, Passwords
from underpass_control.access.sessions import end_sessions_of
from underpass_control.http import account_models as models
from underpass_control.http.administration import check_tenant_exists, tenant_for
from underpass_control.http.callers import Callers
from underpass_control.http.conditions import etag, replaced
from underpass_control.http.cursor import next_page, text_after
from underpass_control.http.endpoint import ADMINISTRATORS, Answer, Call, Endpoint
from underpass_control.http.models import Page
from underpass_control.http.problem import Problem
from underpass_control.http.sessions import or_busy
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import moment_of
from underpass_control.roles import Role
from underpass_control.storage.database import Database


class Users:
    """The endpoints of users."""

    def __init__(self, database: Database, callers: Callers, passwords: Passwords) -> None:
        self._database = database
        self._callers = callers
        self._passwords = passwords

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        one = "/v1/users/{user}"
        return [
            Endpoint(
                "GET",
                "/v1/users",
                "All users",
                self._page,
                ADMINISTRATORS,
                tenancy=Tenancy.ROWS,
                query=Page,
                answers=models.UserList,
            ),
            Endpoint(
                "PUT",
                one,
                "Set a user; one whose role, tenant or password changes has to sign in again",
                self._put,
                ADMINISTRATORS,
                tenancy=Tenancy.ROWS,
                headers=["If-Match", "If-None-Match"],
                body=models.UserBody,
                answers=models.User,
                others=[HTTPStatus.CREATED],
                problems=[HTTPStatus.CONFLICT],
            ),
            Endpoint(
                "DELETE",
                one,
                "Remove a user: all its sessions end at once",
                self._remove,
                ADMINISTRATORS,
                tenancy=Tenancy.ROWS,
                headers=["If-Match"],
            ),
            Endpoint(
                "DELETE",
                one + "/sessions",
                "Sign a user out everywhere",
                self._sign_out,
                ADMINISTRATORS,
                tenancy=Tenancy.ROWS,
                answers=models.Ended,
            ),
        ]

    async def _page(self, call: Call) -> models.UserList:
        query = call.query(Page)
        async with self._database.reading() as connection:
            rows = await users.page_of_users(
                connection, after=text_after(query.cursor), limit=query.limit
            )
        last = next_page(rows, query.limit, lambda row: row.name)
        return models.UserList(users=[_shown(row) for row in rows], next=last)

    async def _put(self, call: Call) -> Answer:
        body = call.body(models.UserBody)
        name = _name(call)
        tenant = tenant_for(call.known_caller, body.tenant)
        hashed = None
        if body.password is not None:
            try:
                hashed = await or_busy(self._passwords.hash(body.password))
            except PasswordError as error:
                raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        ended: list[int] = []
        try:
            async with self._database.transaction() as connection:
                await check_tenant_exists(connection, tenant)
                before = await users.get_user(connection, name)
                expected = replaced(call, None if before is None else before.revision)
                if before is None:
                    await self._create(connection, name, body, tenant, hashed)
                else:
                    values = _values(before, Role(body.role), tenant, hashed)
                    if values:
                        ended = await users.change_user(
                            connection, before.id, values, revision=expected
                        )
                after = await users.get_user(connection, name)
                if after is None:
                    raise Problem(HTTPStatus.CONFLICT, f"{name} has just been removed")
                was = None if before is None else users.user_state(before)
                state = users.user_state(after) | {"password_set": hashed is not None}
                await call.record(connection, _changed("set", name, tenant, was, state))
        except IntegrityError as error:
            # Another request may have made the user after this one looked.
            async with self._database.reading() as connection:
                made = await users.get_user(connection, name)
            replaced(call, None if made is None else made.revision)
            raise Problem(HTTPStatus.CONFLICT, f"the name {name} is taken") from error
        self._forget(ended)
        status = HTTPStatus.CREATED if before is None else HTTPStatus.OK
        return Answer(_shown(after), status, {"ETag": etag(after.revision)})

    async def _create(
        self,
        connection: AsyncConnection,
        name: str,
        body: models.UserBody,
        tenant: str | None,
        hashed: str | None,
    ) -> None:
        if hashed is None:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "a new user needs a password")
        await users.create_user(
            connection,
            name=name,
            role=Role(body.role),
            tenant=tenant,
            password_hash=hashed,
            now_ms=time.time_ns() // 1_000_000,
        )

    async def _remove(self, call: Call) -> Answer:
        async with self._database.transaction() as connection:
            row = await _known(connection, call)
            expected = replaced(call, row.revision)
            ended = await users.remove_user(connection, row.id, revision=expected)
            was = users.user_state(row)
            await call.record(connection, _changed("delete", row.name, row.tenant_id, was, None))
        self._forget(ended)
        return Answer(None, HTTPStatus.NO_CONTENT)

    async def _sign_out(self, call: Call) -> models.Ended:
        async with self._database.transaction() as connection:
            row = await _known(connection, call)
            ended = await end_sessions_of(connection, row.id)
            target = f"/v1/users/{row.name}/sessions"
            await call.record(connection, Changed("sign out", target, row.tenant_id))
        self._forget(ended)
        return models.Ended(ended=len(ended))

    def _forget(self, sessions: Iterable[int]) -> None:
        for one in sessions:
            self._callers.forget(Credential(Kind.USER, one))


def _values(before: Row[Any], role: Role, tenant: str | None, hashed: str | None) -> dict[str, Any]:
    """Return the columns to be set, if any differs.

    Raises:
        Problem: 409, the user's rights come from a provider.
    """
    if before.issuer is not None:
        detail = f"{before.name} signs in by {before.issuer}, which says what the user may do"
        raise Problem(HTTPStatus.CONFLICT, detail)
    # Set all requested columns, not only those that differ: of two concurrent changes, one applies
    # as a whole.
    values: dict[str, Any] = {"role": role.value, "tenant_id": tenant}
    if hashed is not None:
        return {**values, "password_hash": hashed}
    return values if (before.role, before.tenant_id) != (role.value, tenant) else {}


async def _known(connection: AsyncConnection, call: Call) -> Row[Any]:
    name = call.path["user"]
    row = await users.get_user(connection, name)
    if row is None:
        raise Problem(HTTPStatus.NOT_FOUND, f"there is no user {name}")
    return row


def _name(call: Call) -> str:
    name = call.path["user"]
    if not users.USER_NAME.fullmatch(name):
        detail = "a user's name has 1 to 64 of a-z, 0-9 and . _ @ + -, and begins with a-z or 0-9"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    return name


def _changed(
    action: str,
    name: str,
    tenant: str | None,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> Changed:
    return Changed(action, f"/v1/users/{name}", tenant, before, after)


def _shown(row: Row[Any]) -> models.User:
    return models.User(
        name=row.name,
        role=row.role,
        tenant=row.tenant_id,
        created=moment_of(row.created_ms),
        revision=row.revision,
        issuer=row.issuer,
    )
