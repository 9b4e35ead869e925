"""The routes that terminals will drive, where they are known."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction.places import is_on_earth, without_repeats
from underpass_control.access.audit import Changed
from underpass_control.http import models
from underpass_control.http.endpoint import EVERYBODY, REPORTERS, Answer, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.http.reporting import check_may_report
from underpass_control.http.tenancy import Tenancy
from underpass_control.storage import routes
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database


class Routes:
    """The endpoint of a terminal's route."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        path, media_type = "/v1/terminals/{terminal}/route", "application/geo+json"
        return [
            Endpoint(
                "GET",
                path,
                "The line that a terminal will drive, as GeoJSON",
                self._get,
                EVERYBODY,
                tenancy=Tenancy.VEHICLE,
                answers=models.Route,
                others=[HTTPStatus.NOT_MODIFIED],
                media_type=media_type,
            ),
            Endpoint(
                "PUT",
                path,
                "Set the line that a terminal will drive",
                self._put,
                REPORTERS,
                recorded=True,
                tenancy=Tenancy.VEHICLE,
                body=models.Route,
                answers=models.Route,
                media_type=media_type,
            ),
            Endpoint(
                "DELETE",
                path,
                "Forget the line: by the roads, all are possible again",
                self._delete,
                REPORTERS,
                recorded=True,
                tenancy=Tenancy.VEHICLE,
                status=HTTPStatus.NO_CONTENT,
            ),
        ]

    async def _get(self, call: Call) -> Answer:
        terminal = call.path_number("terminal")
        if not call.known_caller.may_read(terminal):
            raise Problem(HTTPStatus.FORBIDDEN, "a terminal sees its own data only")
        async with self._database.reading() as connection:
            row = await routes.get(connection, terminal)
        if row is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"no route of terminal {terminal} is known")
        tag = f'"{row.revision}"'
        if tag in call.request.headers.get("If-None-Match", "").split(", "):
            return Answer(None, HTTPStatus.NOT_MODIFIED, {"ETag": tag})
        return Answer(models.Route(**row.geometry), HTTPStatus.OK, {"ETag": tag})

    async def _put(self, call: Call) -> Answer:
        terminal = await self._spoken_for(call)
        places = [(place[0], place[1]) for place in call.body(models.Route).coordinates]
        line = without_repeats(places)
        if len(line) < 2 or not all(is_on_earth(*place) for place in line):
            detail = "a route has two or more different places, in degrees"
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        try:
            async with self._changes.transaction() as (connection, publish):
                before = await _state(connection, terminal)
                revision = await routes.put(connection, terminal, line)
                after = await _state(connection, terminal)
                await call.record(connection, _changed("set", call, terminal, before, after))
                publish({"kind": "terminal", "terminal": terminal, "action": "route"})
        except IntegrityError as error:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}") from error
        model = models.Route(type="LineString", coordinates=[list(place) for place in line])
        return Answer(model, HTTPStatus.OK, {"ETag": f'"{revision}"'})

    async def _delete(self, call: Call) -> Answer:
        terminal = await self._spoken_for(call)
        async with self._changes.transaction() as (connection, publish):
            before = await _state(connection, terminal)
            found = await routes.remove(connection, terminal)
            if found:
                await call.record(connection, _changed("delete", call, terminal, before, None))
                publish({"kind": "terminal", "terminal": terminal, "action": "route"})
        if not found:
            raise Problem(HTTPStatus.NOT_FOUND, f"no route of terminal {terminal} is known")
        return Answer(None, HTTPStatus.NO_CONTENT)

    async def _spoken_for(self, call: Call) -> int:
        terminal = call.path_number("terminal")
        now_ms = self._database.clock.now_ms()
        await check_may_report(self._database, call.known_caller, {terminal: now_ms})
        return terminal


async def _state(connection: AsyncConnection, terminal: int) -> dict[str, Any] | None:
    row = await routes.get(connection, terminal)
    return None if row is None else dict(row.geometry)


def _changed(
    action: str,
    call: Call,
    terminal: int,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> Changed:
    target = f"/v1/terminals/{terminal}/route"
    return Changed(action, target, call.known_caller.tenant, before, after)
