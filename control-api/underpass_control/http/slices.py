"""Slices of functions: instantiated, configured, scaled, healed, terminated.

The service stores the description of a slice; a site's agent runs it (`slice_agents.py`). The
service itself has no access to an engine's socket, which would give it root on that host.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access.audit import Changed
from underpass_control.access.users import DEFAULT_TENANT, lock_tenant
from underpass_control.functions.descriptors import Descriptor, installed, settings_model
from underpass_control.functions.slices import (
    MOST_OF_TENANT,
    MOST_SLICES,
    SliceBody,
    SliceError,
    SliceName,
    checked,
)
from underpass_control.http import slice_models as models
from underpass_control.http.administration import tenant_for
from underpass_control.http.conditions import etag, replaced
from underpass_control.http.cursor import next_page, text_after
from underpass_control.http.endpoint import MIDDLE, OPERATORS, READERS, Answer, Call, Endpoint
from underpass_control.http.models import Page
from underpass_control.http.problem import Problem, changed_since
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import moment_of
from underpass_control.storage import scope, slices
from underpass_control.storage.database import Database
from underpass_control.validation import first_fault

_NAME: TypeAdapter[str] = TypeAdapter(SliceName)
# Changes a function of a slice's body.
_Change = Callable[[dict[str, Any]], None]


class Slices:
    """The endpoints of slices."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        one = "/v1/slices/{slice}"
        function = one + "/functions/{function}"
        conflict = HTTPStatus.CONFLICT
        return [
            Endpoint(
                "GET",
                "/v1/functions",
                "The kinds of functions that slices are made of, and what may be set of each",
                self._functions,
                READERS,
                tenancy=Tenancy.SHARED,
                answers=models.FunctionList,
            ),
            Endpoint(
                "GET",
                "/v1/slices",
                "All slices, and what their sites say of them",
                self._page,
                READERS,
                tenancy=Tenancy.ROWS,
                query=Page,
                answers=models.SliceList,
            ),
            Endpoint(
                "GET",
                one,
                "A slice, and what its site says of it",
                self._get,
                READERS,
                tenancy=Tenancy.ROWS,
                answers=models.SliceShown,
            ),
            Endpoint(
                "PUT",
                one,
                "Instantiate a slice, or configure it anew",
                self._put,
                OPERATORS,
                tenancy=Tenancy.ROWS,
                headers=["If-Match", "If-None-Match"],
                body=models.SlicePut,
                most=MIDDLE,
                answers=models.SliceShown,
                others=[HTTPStatus.CREATED],
                problems=[conflict],
            ),
            Endpoint(
                "DELETE",
                one,
                "Terminate a slice, with all that its functions keep",
                self._delete,
                OPERATORS,
                tenancy=Tenancy.ROWS,
                headers=["If-Match"],
                answers=models.SliceShown,
                status=HTTPStatus.ACCEPTED,
                problems=[conflict],
            ),
            Endpoint(
                "PUT",
                function + "/replicas",
                "Scale a function of a slice",
                self._scale,
                OPERATORS,
                tenancy=Tenancy.ROWS,
                headers=["If-Match"],
                body=models.ReplicasBody,
                answers=models.SliceShown,
                problems=[conflict],
            ),
            Endpoint(
                "POST",
                function + "/heal",
                "Heal a function of a slice: its containers are made anew, and keep their volumes",
                self._heal,
                OPERATORS,
                tenancy=Tenancy.ROWS,
                headers=["If-Match"],
                answers=models.SliceShown,
                problems=[conflict],
            ),
        ]

    async def _functions(self, _call: Call) -> models.FunctionList:
        return models.FunctionList(functions=[_described(one) for one in installed().values()])

    async def _page(self, call: Call) -> models.SliceList:
        query = call.query(Page)
        async with self._database.reading() as connection:
            rows = await slices.page(connection, after=text_after(query.cursor), limit=query.limit)
        last = next_page(rows, query.limit, lambda row: row.name)
        return models.SliceList(slices=[_shown(row) for row in rows], next=last)

    async def _get(self, call: Call) -> Answer:
        async with self._database.reading() as connection:
            row = await _existing(connection, call.path["slice"])
        return _answer(row)

    async def _put(self, call: Call) -> Answer:
        given = call.body(models.SlicePut)
        try:
            name = _NAME.validate_python(call.path["slice"])
        except ValidationError as error:
            detail = "a slice's name has 1 to 31 of a-z, 0-9 and -, and begins with one of a-z"
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from error
        body = _checked(given.model_dump(mode="json", exclude={"tenant"}))
        async with self._database.reading() as connection:
            row = await slices.get(connection, name)
        if row is None:
            replaced(call, None)
            return await self._create(call, name, given.tenant, body)
        if given.tenant not in (None, row.tenant_id):
            raise Problem(HTTPStatus.CONFLICT, f"it is of the tenant {row.tenant_id}, and stays so")
        if body["site"] != row.site:
            raise Problem(HTTPStatus.CONFLICT, f"it is at the site {row.site}, and stays there")
        generations = {one["name"]: one["generation"] for one in row.body["functions"]}
        for one in body["functions"]:
            one["generation"] = generations.get(one["name"], 1)
        return await self._change(call, "set", f"/v1/slices/{name}", row, body=body)

    async def _create(
        self, call: Call, name: str, given: str | None, body: dict[str, Any]
    ) -> Answer:
        tenant = tenant_for(call.known_caller, given) or DEFAULT_TENANT
        while True:
            # A name or number is free only if no slice of any tenant has it.
            with scope.within(None):
                async with self._database.reading() as connection:
                    if (other := await slices.get(connection, name)) is not None:
                        raise _taken(call, other)
                    number = await slices.free_number(connection, MOST_SLICES)
            if number is None:
                raise Problem(HTTPStatus.CONFLICT, f"there are {MOST_SLICES} slices already")
            # Otherwise another request has just taken the name or the number.
            with suppress(IntegrityError):
                row = await self._insert(call, name, tenant, number, body)
                return _answer(row, HTTPStatus.CREATED)

    async def _insert(
        self, call: Call, name: str, tenant: str, number: int, body: dict[str, Any]
    ) -> Row[Any]:
        now_ms = self._database.clock.now_ms()
        async with self._database.transaction() as connection:
            if await lock_tenant(connection, tenant) is None:
                raise Problem(HTTPStatus.CONFLICT, f"there is no tenant {tenant}")
            row = await slices.create(
                connection, name=name, tenant=tenant, number=number, body=body, now_ms=now_ms
            )
            if await slices.count_of(connection, tenant) > MOST_OF_TENANT:
                detail = f"the tenant {tenant} has {MOST_OF_TENANT} slices already"
                raise Problem(HTTPStatus.CONFLICT, detail)
            changed = Changed("set", f"/v1/slices/{name}", tenant, None, body)
            await call.record(connection, changed)
        return row

    async def _delete(self, call: Call) -> Answer:
        name = call.path["slice"]
        async with self._database.reading() as connection:
            row = await _existing(connection, name)
        target = f"/v1/slices/{name}"
        return await self._change(
            call, "delete", target, row, ending=True, status=HTTPStatus.ACCEPTED
        )

    async def _scale(self, call: Call) -> Answer:
        replicas = call.body(models.ReplicasBody).replicas
        return await self._of_function(call, "scale", lambda one: one.update(replicas=replicas))

    async def _heal(self, call: Call) -> Answer:
        return await self._of_function(
            call, "heal", lambda one: one.update(generation=one["generation"] + 1)
        )

    async def _of_function(self, call: Call, action: str, change: _Change) -> Answer:
        name, function = call.path["slice"], call.path["function"]
        async with self._database.reading() as connection:
            row = await _existing(connection, name)
        body = {**row.body, "functions": [{**one} for one in row.body["functions"]]}
        found = next((one for one in body["functions"] if one["name"] == function), None)
        if found is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"the slice has no function {function}")
        change(found)
        target = f"/v1/slices/{name}/functions/{function}"
        return await self._change(call, action, target, row, body=_checked(body))

    async def _change(
        self,
        call: Call,
        action: str,
        target: str,
        before: Row[Any],
        *,
        body: dict[str, Any] | None = None,
        ending: bool = False,
        status: HTTPStatus = HTTPStatus.OK,
    ) -> Answer:
        expected = replaced(call, before.revision)
        if before.ending:
            raise Problem(HTTPStatus.CONFLICT, "it is being terminated")
        now_ms = self._database.clock.now_ms()
        async with self._database.transaction() as connection:
            row = await slices.change(connection, before, now_ms, body=body, ending=ending)
            if row is None:
                if expected is not None:
                    raise changed_since()
                raise Problem(HTTPStatus.CONFLICT, "somebody else has just changed it: try again")
            changed = Changed(action, target, before.tenant_id, before.body, body)
            await call.record(connection, changed)
        return _answer(row, status)


def _taken(call: Call, other: Row[Any]) -> Problem:
    """Return the problem of a request to make a slice whose name another slice has.

    Raises:
        Problem: 412, the caller only makes what is not there; a slice of another tenant does not
            count, since the caller must not see it.
    """
    if call.known_caller.tenant in (None, other.tenant_id):
        replaced(call, other.revision)
    return Problem(HTTPStatus.CONFLICT, f"the name {other.name} is taken")


async def _existing(connection: AsyncConnection, name: str) -> Row[Any]:
    row = await slices.get(connection, name)
    if row is None:
        raise Problem(HTTPStatus.NOT_FOUND, f"there is no slice {name}")
    return row


def _checked(body: dict[str, Any]) -> dict[str, Any]:
    """Return a slice's body with all defaults."""
    try:
        return checked(SliceBody.model_validate(body), installed()).model_dump(mode="json")
    except ValidationError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, first_fault(error)) from error
    except SliceError as error:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error


def _described(one: Descriptor) -> models.Function:
    return models.Function(
        name=one.name,
        summary=one.summary,
        image=one.image,
        needs=one.needs,
        forwards=one.forwards,
        capabilities=list(one.capabilities),
        cpus=one.resources.cpus,
        memory_mb=one.resources.memory_mb,
        ports=[port.model_dump() for port in one.port],
        most_replicas=one.scaling.most,
        settings=settings_model(one).model_json_schema(),
    )


def _shown(row: Row[Any]) -> models.SliceShown:
    containers = row.containers or []
    if row.ending:
        state = "ending"
    elif row.reported_revision != row.revision:
        state = "waiting"
    elif row.reported == "running" and any(one["health"] != "healthy" for one in containers):
        state = "degraded"
    else:
        state = row.reported
    body = {name: row.body[name] for name in ("networks", "functions")}
    return models.SliceShown.model_validate(
        {
            "name": row.name,
            "tenant": row.tenant_id,
            "site": row.site,
            "number": row.number,
            "revision": row.revision,
            "set": moment_of(row.set_ms),
            **body,
            "state": state,
            "reported": None if row.reported_ms is None else moment_of(row.reported_ms),
            "detail": row.detail,
            "containers": containers,
        }
    )


def _answer(row: Row[Any], status: HTTPStatus = HTTPStatus.OK) -> Answer:
    return Answer(_shown(row), status, {"ETag": etag(row.revision)})
