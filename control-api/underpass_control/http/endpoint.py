"""Endpoints: declared once, for the router, the checks of input, and the description.

A handler gets a `Call` whose contents have been checked against its declaration. It returns a
model, which becomes the answer's JSON.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from http import HTTPStatus
from typing import Any, TypeVar

from aiohttp import web
from pydantic import BaseModel, ValidationError
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access import audit
from underpass_control.access.caller import Caller
from underpass_control.http.callers import COOKIE, SECURE_COOKIE, Callers
from underpass_control.http.conditions import CONDITIONS, check_written
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy, check_tenancy, check_vehicle
from underpass_control.roles import Role
from underpass_control.storage import scope
from underpass_control.storage.database import Database
from underpass_control.tracing import Request as TracedRequest
from underpass_control.tracing import Traces
from underpass_control.validation import faults

# An agent may use only its own endpoints.
AGENTS = frozenset({Role.AGENT})
EVERYBODY = frozenset(Role) - AGENTS
ADMINISTRATORS = frozenset({Role.ADMINISTRATOR})
OPERATORS = frozenset({Role.OPERATOR, Role.ADMINISTRATOR})
GATEWAYS = OPERATORS | {Role.GATEWAY}
READERS = GATEWAYS | {Role.VIEWER}
REPORTERS = GATEWAYS | {Role.TERMINAL}

# The most errors that one answer names, and that are checked.
_MOST_ERRORS = 20
_MOST_FOUND = 10_000
# A client that sends its body more slowly than this is refused.
_BODY_WITHIN_S = 30.0
_JSON = ("application/json", "application/geo+json")
# In JSON, every value except the first follows one of these.
_BEFORE_VALUES = (b",", b"[", b"{")

M = TypeVar("M", bound=BaseModel)


@dataclass(frozen=True)
class Most:
    """The bounds of a body: bytes, which it takes in memory, and values, if it is JSON.

    Reading JSON blocks the event loop, even from another thread: pydantic holds the interpreter's
    lock. A wrong value costs a microsecond or more for each member that it lacks, so a body with a
    wrong value every two bytes would take seconds.
    """

    size_bytes: int
    values: int


SMALL = Most(1 << 16, 1 << 14)
MIDDLE = Most(1 << 20, 1 << 17)
LARGE = Most(4 << 20, 1 << 19)
LARGEST = Most(8 << 20, 1 << 21)


@dataclass
class Call:
    """One request to an endpoint."""

    request: web.Request
    # None where the endpoint asks for no token.
    caller: Caller | None
    path: Mapping[str, str]
    # The address for which it is counted.
    address: str = ""
    # Whether the handler has recorded its change.
    is_recorded: bool = False
    # The body, for an endpoint that takes something other than JSON.
    content: bytes = b""
    trace: TracedRequest | None = None
    _query: BaseModel | None = None
    _body: BaseModel | None = None

    def query(self, model: type[M]) -> M:
        """Return the query, checked."""
        assert isinstance(self._query, model)
        return self._query

    def body(self, model: type[M]) -> M:
        """Return the body, checked."""
        assert isinstance(self._body, model)
        return self._body

    @property
    def known_caller(self) -> Caller:
        """Return the caller, for an endpoint that needs a token."""
        assert self.caller is not None
        return self.caller

    def own_gateway(self) -> int:
        """Return the gateway in the path; a gateway's token must be for the same one.

        Raises:
            Problem: 403, the token is another gateway's.
        """
        gateway, caller = self.path_number("gateway"), self.known_caller
        if caller.role is Role.GATEWAY and caller.node not in (None, gateway):
            raise Problem(HTTPStatus.FORBIDDEN, f"the token is for gateway {caller.node}")
        return gateway

    async def record(
        self,
        connection: AsyncConnection,
        *changes: audit.Changed,
        actor: audit.Actor | None = None,
    ) -> None:
        """Record changes, in the transaction that makes them, as the caller's or another's."""
        if actor is None:
            caller = self.known_caller
            kind, number = caller.credential.kind.value, caller.credential.id
            if caller.user_id is not None:
                number = caller.user_id
            actor = audit.Actor(kind, number, caller.name, self.address)
        await audit.record(connection, actor, changes, time.time_ns() // 1_000_000)
        self.is_recorded = True

    def path_number(self, name: str) -> int:
        """Return a node number of the path."""
        return _number(self.path, name)


@dataclass
class Answer:
    """A model with its answer's status and headers."""

    model: BaseModel | None
    status: HTTPStatus = HTTPStatus.OK
    headers: Mapping[str, str] = field(default_factory=dict)


Handle = Callable[[Call], Awaitable["Answer | BaseModel | web.StreamResponse"]]


@dataclass(frozen=True)
class Endpoint:
    """An endpoint at a method and path: who may call it, its input and its answers."""

    method: str
    path: str
    summary: str
    handle: Handle
    # None: without a token.
    roles: frozenset[Role] | None
    # What it gives a tenant's caller.
    tenancy: Tenancy = Tenancy.WHOLE
    query: type[BaseModel] | None = None
    body: type[BaseModel] | None = None
    # The media type of a body that is not JSON. The handler reads `Call.content` itself, or the
    # request's stream if the body may be large.
    takes: str | None = None
    is_large: bool = False
    # The bounds of a body that is not read as a stream.
    most: Most = SMALL
    # Headers that it reads, in addition to those of every endpoint; those with ETags are checked
    # before it is called.
    headers: Iterable[str] = ()
    answers: type[BaseModel] | None = None
    # None: 204 for a deletion without an answer, otherwise 200.
    status: HTTPStatus | None = None
    # Further answers that are no problems: created, or not modified.
    others: Iterable[HTTPStatus] = ()
    media_type: str = "application/json"
    # In addition to those of every endpoint, and those that follow from its input.
    problems: Iterable[HTTPStatus] = ()
    # Whether too many requests are refused.
    limited: bool = True
    # Whether its changes go into the log of changes; nodes' reports, and requests without effect,
    # do not. None: only if it is for operators or administrators only.
    recorded: bool | None = None

    @property
    def success(self) -> HTTPStatus:
        """Return the status of an answer that comes without one."""
        is_empty = self.method == "DELETE" and self.answers is None
        return self.status or (HTTPStatus.NO_CONTENT if is_empty else HTTPStatus.OK)

    @property
    def is_recorded(self) -> bool:
        """Tell whether its changes go into the log of changes."""
        if self.recorded is not None:
            return self.recorded
        return self.method != "GET" and self.roles in (OPERATORS, ADMINISTRATORS)


def route(endpoint: Endpoint, callers: Callers, database: Database, traces: Traces) -> web.RouteDef:
    """Return the endpoint for aiohttp's router."""
    # A stream lasts for hours: the plans sent on it have spans of their own.
    is_stream = endpoint.media_type == "text/event-stream"

    async def answered(call: Call) -> web.StreamResponse:
        if not all(text.isprintable() for text in call.path.values()):
            # No name has such characters, and PostgreSQL cannot even compare a NUL.
            raise Problem(HTTPStatus.NOT_FOUND, "the path names nothing")
        call._query = _query(call.request, endpoint.query)
        if call.caller is not None:
            await check_vehicle(database, call.caller, endpoint.tenancy, _terminal_of(call))
        for name in CONDITIONS.intersection(endpoint.headers):
            check_written(call, name)
        if endpoint.body is not None:
            text = await _content(call.request, _JSON, endpoint.most)
            callers.admit_body(call.caller, len(text))
            call._body = _body(text, endpoint.body, endpoint.most)
        if endpoint.takes is not None and endpoint.is_large:
            _check_kind(call.request, [endpoint.takes])
        elif endpoint.takes is not None:
            call.content = await _content(call.request, [endpoint.takes], endpoint.most)
        response = _response(await endpoint.handle(call), endpoint)
        assert call.is_recorded or not endpoint.is_recorded, "a change is written down"
        return response

    async def handler(request: web.Request) -> web.StreamResponse:
        caller = None
        if endpoint.roles is not None:
            caller = await callers.authenticate(request)
            if caller.role not in endpoint.roles:
                # Do not mention an administrator's token where an operator's is enough.
                more = {Role.ADMINISTRATOR} if Role.OPERATOR in endpoint.roles else set()
                needed = " or ".join(sorted(endpoint.roles - more))
                raise Problem(HTTPStatus.FORBIDDEN, f"this needs the role {needed}")
            check_tenancy(caller, endpoint.tenancy)
        elif endpoint.limited:
            callers.admit(request)
        call = Call(request, caller, request.match_info, callers.address(request))
        with scope.within(None if caller is None else caller.tenant):
            if is_stream:
                return await answered(call)
            role = None if caller is None else caller.role
            traced = traces.request(endpoint.method, endpoint.path, role, request.headers)
            with traced as call.trace:
                response = await answered(call)
                if call.trace is not None:
                    call.trace.answered(response.status)
                return response

    return web.route(endpoint.method, endpoint.path, handler)


def _terminal_of(call: Call) -> int | None:
    """Return the terminal that a request names in its path or query."""
    if "terminal" in call.path:
        return _number(call.path, "terminal")
    named: int | None = getattr(call._query, "terminal", None)
    return named


def _number(path: Mapping[str, str], name: str) -> int:
    text = path[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise Problem(HTTPStatus.NOT_FOUND, f"there is no {name} {text!r}")
    return int(text)


def _query(request: web.Request, model: type[BaseModel] | None) -> BaseModel | None:
    if model is None:
        return None
    repeated = {name for name in request.query if len(request.query.getall(name)) > 1}
    if repeated:
        names = ", ".join(sorted(repeated))
        raise Problem(HTTPStatus.BAD_REQUEST, f"given more than once: {names}")
    try:
        return model.model_validate(dict(request.query))
    except ValidationError as error:
        raise _invalid("the query", HTTPStatus.BAD_REQUEST, error, model) from error


def _body(text: bytes, model: type[BaseModel], most: Most) -> BaseModel:
    if sum(map(text.count, _BEFORE_VALUES)) > most.values:
        kind = HTTPStatus.REQUEST_ENTITY_TOO_LARGE
        raise Problem(kind, f"the body has more than {most.values} values")
    try:
        return model.model_validate_json(text, strict=True)
    except ValidationError as error:
        raise _invalid("the body", HTTPStatus.UNPROCESSABLE_ENTITY, error, model) from error


async def _content(request: web.Request, kinds: Sequence[str], most: Most) -> bytes:
    """Return the body, which has to be of one of some media types."""
    _check_kind(request, kinds)
    try:
        async with asyncio.timeout(_BODY_WITHIN_S):
            return await request.clone(client_max_size=most.size_bytes).read()
    except TimeoutError as error:
        detail = f"the body did not come within {_BODY_WITHIN_S:.0f} s"
        raise Problem(HTTPStatus.REQUEST_TIMEOUT, detail) from error


def _check_kind(request: web.Request, kinds: Sequence[str]) -> None:
    if request.content_type not in kinds:
        kind = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
        raise Problem(kind, f"the body is {request.content_type}, not {kinds[0]}")


def _invalid(
    what: str, status: HTTPStatus, error: ValidationError, model: type[BaseModel]
) -> Problem:
    if error.error_count() > _MOST_FOUND:
        # To describe them takes longer than to find them.
        return Problem(status, f"{what} is not as it should be, in {error.error_count()} places")
    found = faults(error, _MOST_ERRORS, model)
    errors: list[dict[str, object]] = [
        {"pointer": "/" + "/".join(map(str, one.place)), "detail": one.reason} for one in found
    ]
    if found[0].kind == "json_invalid":
        status = HTTPStatus.BAD_REQUEST
    return Problem(status, f"{what} is not as it should be", errors=errors)


def _response(
    answer: Answer | BaseModel | web.StreamResponse, endpoint: Endpoint
) -> web.StreamResponse:
    if isinstance(answer, web.StreamResponse):
        return answer
    if isinstance(answer, BaseModel):
        answer = Answer(answer, endpoint.success)
    if answer.model is None:
        return web.Response(status=answer.status.value, headers=answer.headers)
    return web.Response(
        status=answer.status.value,
        headers=answer.headers,
        text=answer.model.model_dump_json(by_alias=True, exclude_none=True),
        content_type=endpoint.media_type,
    )


def describe(endpoints: Iterable[Endpoint], *, title: str, version: str) -> dict[str, Any]:
    """Return the OpenAPI 3.1 document of the endpoints."""
    schemas: dict[str, Any] = {}
    paths: dict[str, Any] = {}
    for endpoint in endpoints:
        operation = _operation(endpoint, schemas)
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = operation
    schemas["Problem"] = {
        "type": "object",
        "required": ["type", "title", "status", "detail"],
        "properties": {
            "type": {"type": "string"},
            "title": {"type": "string"},
            "status": {"type": "integer"},
            "detail": {"type": "string"},
            "errors": {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"pointer": {"type": "string"}, "detail": {"type": "string"}},
                },
            },
        },
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": title, "version": version},
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": COOKIE},
                "sessionOverTls": {"type": "apiKey", "in": "cookie", "name": SECURE_COOKIE},
            },
        },
    }


def _operation(endpoint: Endpoint, schemas: dict[str, Any]) -> dict[str, Any]:
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
        for name in _path_names(endpoint.path)
    ]
    if endpoint.query:
        schema = _schema(endpoint.query, schemas, by_name=False)
        required = schema.get("required", [])
        parameters += [
            {"name": name, "in": "query", "required": name in required, "schema": of}
            for name, of in schema["properties"].items()
        ]
    parameters += map(_header, endpoint.headers)
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "tags": [_tag(endpoint.path)],
        "responses": {},
    }
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body:
        content = {"application/json": {"schema": _schema(endpoint.body, schemas)}}
        operation["requestBody"] = {"required": True, "content": content}
    if endpoint.takes:
        content = {endpoint.takes: {"schema": {"type": "string"}}}
        operation["requestBody"] = {"required": True, "content": content}
    success: dict[str, Any] = {"description": endpoint.success.phrase}
    if endpoint.answers:
        success["content"] = {endpoint.media_type: {"schema": _schema(endpoint.answers, schemas)}}
    elif endpoint.media_type != "application/json":
        success["content"] = {endpoint.media_type: {"schema": {"type": "string"}}}
    operation["responses"][str(endpoint.success.value)] = success
    for status in endpoint.others:
        has_body = status not in (HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED)
        other = {**success} if has_body else {}
        operation["responses"][str(status.value)] = {**other, "description": status.phrase}
    for status in _problems_of(endpoint):
        problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
        if status is HTTPStatus.BAD_REQUEST:
            # Invalid HTTP, such as an endless URL, is answered before any endpoint is called.
            problem["text/plain"] = {"schema": {"type": "string"}}
        operation["responses"][str(status.value)] = {
            "description": status.phrase,
            "content": problem,
        }
    if endpoint.roles is not None:
        operation["security"] = [{"token": []}, {"session": []}, {"sessionOverTls": []}]
        operation["x-roles"] = sorted(endpoint.roles)
        operation["x-tenancy"] = endpoint.tenancy.value
        roles = ", ".join(sorted(endpoint.roles))
        operation["description"] = f"Roles: {roles}. {_TENANCY_SAID[endpoint.tenancy]}"
    return operation


_TENANCY_SAID = {
    Tenancy.WHOLE: "Not for callers of a tenant.",
    Tenancy.VEHICLE: "Callers of a tenant name a vehicle of theirs.",
    Tenancy.ROWS: "Callers of a tenant see what is the tenant's.",
    Tenancy.SHARED: "The same for callers of a tenant.",
}


def _header(name: str) -> dict[str, Any]:
    parameter = {"name": name, "in": "header", "required": False, "schema": {"type": "string"}}
    if name in CONDITIONS:
        parameter["description"] = 'A list of ETags within quotes (`"1"`), or `*`.'
    return parameter


def _problems_of(endpoint: Endpoint) -> list[HTTPStatus]:
    problems = {HTTPStatus.BAD_REQUEST, *endpoint.problems}
    if endpoint.limited:
        problems.add(HTTPStatus.TOO_MANY_REQUESTS)
    if endpoint.roles is not None:
        # The token, at the least, is looked up in the database.
        problems.add(HTTPStatus.SERVICE_UNAVAILABLE)
        problems |= {HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
    if "If-Match" in endpoint.headers:
        problems.add(HTTPStatus.PRECONDITION_FAILED)
    if endpoint.body or endpoint.takes:
        problems |= {
            HTTPStatus.REQUEST_TIMEOUT,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            HTTPStatus.UNPROCESSABLE_ENTITY,
        }
    if _path_names(endpoint.path) or endpoint.tenancy is Tenancy.VEHICLE:
        problems.add(HTTPStatus.NOT_FOUND)
    return sorted(problems)


def _tag(path: str) -> str:
    """Return the tag under which a reader finds the endpoint: its collection."""
    parts = path.split("/")
    return parts[2] if parts[1] == "v1" else "service"


def _path_names(path: str) -> list[str]:
    return [part.split("}")[0] for part in path.split("{")[1:]]


def _schema(
    model: type[BaseModel], schemas: dict[str, Any], *, by_name: bool = True
) -> dict[str, Any]:
    """Return a model's schema: a reference to it among `schemas`, or the schema itself."""
    schema, parts = _schema_of(model)
    schemas.update(parts)
    if not by_name:
        return schema
    schemas[model.__name__] = schema
    return {"$ref": f"#/components/schemas/{model.__name__}"}


@cache
def _schema_of(model: type[BaseModel]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a model's own schema, and those it refers to; made once, as many operations share it.

    Documents use both, so they must never be changed.
    """
    schema = model.model_json_schema(ref_template="#/components/schemas/{model}")
    parts = schema.pop("$defs", {})
    return schema, parts
