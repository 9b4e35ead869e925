"""Tokens: made, listed without their secrets, revoked."""

from __future__ import annotations

import time
from http import HTTPStatus
from typing import Any

from underpass_control.access import tokens
from underpass_control.access.audit import Changed
from underpass_control.access.caller import Credential, Kind
from underpass_control.http import account_models as models
from underpass_control.http.administration import (
    check_tenant_exists,
    check_token,
    tenant_for,
    token_state,
)
from underpass_control.http.callers import Callers
from underpass_control.http.cursor import next_page, number_after
from underpass_control.http.endpoint import ADMINISTRATORS, Answer, Call, Endpoint
from underpass_control.http.models import Page
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import milliseconds
from underpass_control.roles import Role
from underpass_control.storage.database import Database


class Tokens:
    """The endpoints of tokens."""

    def __init__(self, database: Database, callers: Callers) -> None:
        self._database = database
        self._callers = callers

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        return [
            Endpoint(
                "GET",
                "/v1/tokens",
                "All tokens, without what has to be shown",
                self._page,
                ADMINISTRATORS,
                tenancy=Tenancy.ROWS,
                query=Page,
                answers=models.TokenList,
            ),
            Endpoint(
                "POST",
                "/v1/tokens",
                "Make a token: it is shown once",
                self._create,
                ADMINISTRATORS,
                tenancy=Tenancy.ROWS,
                body=models.TokenBody,
                answers=models.NewToken,
                status=HTTPStatus.CREATED,
                problems=[HTTPStatus.CONFLICT],
            ),
            Endpoint(
                "DELETE",
                "/v1/tokens/{token}",
                "Revoke a token",
                self._revoke,
                ADMINISTRATORS,
                tenancy=Tenancy.ROWS,
            ),
        ]

    async def _page(self, call: Call) -> models.TokenList:
        query = call.query(Page)
        async with self._database.reading() as connection:
            rows = await tokens.page_of_tokens(
                connection, after=number_after(query.cursor), limit=query.limit
            )
        last = next_page(rows, query.limit, lambda row: row.id)
        found = [models.Token.model_validate(token_state(row)) for row in rows]
        return models.TokenList(tokens=found, next=last)

    async def _create(self, call: Call) -> Answer:
        body = call.body(models.TokenBody)
        role, tenant = Role(body.role), tenant_for(call.known_caller, body.tenant)
        now_ms = time.time_ns() // 1_000_000
        expires_ms = None if body.expires is None else milliseconds(body.expires)
        if expires_ms is not None and expires_ms <= now_ms:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, "it would have expired already")
        async with self._database.transaction() as connection:
            await check_tenant_exists(connection, tenant)
            await check_token(connection, role, body.node, tenant)
            number, text = await tokens.create_token(
                connection,
                name=body.name,
                role=role,
                node=body.node,
                tenant=tenant,
                now_ms=now_ms,
                expires_ms=expires_ms,
            )
            row = await tokens.get_token(connection, number)
            assert row is not None, "it has just been made"
            made = models.Token.model_validate(token_state(row))
            state: dict[str, Any] = made.model_dump(mode="json", exclude_none=True)
            changed = Changed("create", f"/v1/tokens/{number}", tenant, None, state)
            await call.record(connection, changed)
        shown = models.NewToken(**made.model_dump(), token=text)
        return Answer(shown, HTTPStatus.CREATED, {"Cache-Control": "no-store"})

    async def _revoke(self, call: Call) -> Answer:
        number = call.path_number("token")
        now_ms = time.time_ns() // 1_000_000
        async with self._database.transaction() as connection:
            if not await tokens.revoke_token(connection, number, now_ms):
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no token {number} in force")
            row = await tokens.get_token(connection, number)
            assert row is not None, "it has just been revoked"
            shown = models.Token.model_validate(token_state(row))
            state = shown.model_dump(mode="json", exclude_none=True)
            changed = Changed("revoke", f"/v1/tokens/{number}", row.tenant_id, None, state)
            await call.record(connection, changed)
        self._callers.forget(Credential(Kind.TOKEN, number))
        return Answer(None, HTTPStatus.NO_CONTENT)
