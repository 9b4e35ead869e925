"""The routes that terminals will drive, where they are known."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction.places import is_on_earth, without_repeats
from underpass_control.access.audit import Changed
from underpass_control.http import models
from underpass_control.http.conditions import etag, is_known, replaced
from underpass_control.http.endpoint import EVERYBODY, REPORTERS, Answer, Call, Endpoint, Most
from underpass_control.http.limits import Buckets
from underpass_control.http.problem import Problem
from underpass_control.http.reporting import admit, check_may_report
from underpass_control.http.tenancy import Tenancy
from underpass_control.storage import models as tables
from underpass_control.storage import registry, routes
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database

# Routes that a terminal may set with its own token, at once and per second; each is logged as a
# change.
_BURST = 30
_PER_S = 1 / 30
# Room for ten thousand places with altitudes, each number with all digits and on its own line.
_MOST = Most(2 << 20, 1 << 17)


class Routes:
    """The endpoint of a terminal's route."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._of_terminal = Buckets(_PER_S, _BURST)

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
                headers=["If-Match", "If-None-Match"],
                body=models.Route,
                most=_MOST,
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
                headers=["If-Match"],
            ),
        ]

    async def _get(self, call: Call) -> Answer:
        terminal = call.path_number("terminal")
        async with self._database.reading() as connection:
            row = await routes.get(connection, terminal)
        if row is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"no route of terminal {terminal} is known")
        tag = etag(row.revision)
        if is_known(call, tag):
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
                known = await routes.get(connection, terminal)
                expected = replaced(call, None if known is None else known.revision)
                revision = await routes.put(connection, terminal, line, replaced=expected)
                before, after = _state(known), _state(await routes.get(connection, terminal))
                await _record(call, connection, "set", terminal, before, after)
                publish({"kind": "terminal", "terminal": terminal, "action": "route"})
        except IntegrityError as error:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}") from error
        model = models.Route(type="LineString", coordinates=[list(place) for place in line])
        return Answer(model, HTTPStatus.OK, {"ETag": etag(revision)})

    async def _delete(self, call: Call) -> Answer:
        terminal = await self._spoken_for(call)
        async with self._changes.transaction() as (connection, publish):
            known = await routes.get(connection, terminal)
            if known is None:
                raise Problem(HTTPStatus.NOT_FOUND, f"no route of terminal {terminal} is known")
            expected = replaced(call, known.revision)
            await routes.remove(connection, terminal, replaced=expected)
            await _record(call, connection, "delete", terminal, _state(known), None)
            publish({"kind": "terminal", "terminal": terminal, "action": "route"})
        return Answer(None, HTTPStatus.NO_CONTENT)

    async def _spoken_for(self, call: Call) -> int:
        terminal = call.path_number("terminal")
        admit(self._of_terminal, call.known_caller)
        now_ms = self._database.clock.now_ms()
        await check_may_report(self._database, call.known_caller, {terminal: now_ms})
        return terminal


def _state(row: Row[Any] | None) -> dict[str, Any] | None:
    return None if row is None else dict(row.geometry)


async def _record(
    call: Call,
    connection: AsyncConnection,
    action: str,
    terminal: int,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> None:
    owner = await registry.get(connection, tables.Terminal, terminal)
    tenant = None if owner is None else owner.tenant_id
    target = f"/v1/terminals/{terminal}/route"
    await call.record(connection, Changed(action, target, tenant, before, after))
