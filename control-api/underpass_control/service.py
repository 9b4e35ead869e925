"""The service: the API over a database."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from http import HTTPStatus

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0

from underpass_control.access import Caller, find_caller
from underpass_control.events import Events
from underpass_control.http import models, page
from underpass_control.http.blockages import Blockages
from underpass_control.http.capacity import CapacityOfBeam
from underpass_control.http.endpoint import READERS, Call, Endpoint, describe, route
from underpass_control.http.events import EventStreams
from underpass_control.http.ledger import LedgerOfBeam
from underpass_control.http.links import Links
from underpass_control.http.observed import observed
from underpass_control.http.obstructions import Obstructions
from underpass_control.http.plan_stream import PlanStreams
from underpass_control.http.plans import Plans
from underpass_control.http.positions import Positions
from underpass_control.http.problem import Problem, problems
from underpass_control.http.registry import Registry, terminal_state
from underpass_control.http.reports import Reports
from underpass_control.http.routes import Routes
from underpass_control.http.what_if import WhatIf
from underpass_control.metrics import Metrics
from underpass_control.opensand.station import Station
from underpass_control.planning.keeper import Keeper
from underpass_control.planning.outlet import Outlet
from underpass_control.pruning import prune_for_ever
from underpass_control.reports.intake import Intake
from underpass_control.settings import Settings
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database, DatabaseLostError
from underpass_control.storage.positions import PositionWriter
from underpass_control.storage.schema import SchemaError, check_schema

_TITLE = "Underpass control service"
_VERSION = "1"
_LARGEST_BODY_BYTES = 8 << 20
# Tokens are looked up again after this: a revoked one is of use for so long.
_TOKEN_KEPT_MS = 5_000
_MOST_TOKENS_KEPT = 10_000


class Service:
    """The HTTP application, and what it needs while it runs."""

    def __init__(self, database: Database, settings: Settings) -> None:
        self._database = database
        self._settings = settings
        self._metrics = Metrics()
        self._events = Events()
        self._changes = Changes(database, self._events.tell, self._events.interrupt)
        self._writer = PositionWriter(self._changes)
        self._metrics.positions_waiting.set_function(lambda: self._writer.waiting)
        intake = Intake(database, self._changes, self._writer, self._metrics, terminal_state)
        self._outlet = Outlet(database)
        self._keeper = Keeper(database, self._changes, self._metrics, settings, self._outlet)
        self._station = Station(
            database, self._changes, self._metrics, held=lambda: self._keeper.held
        )
        for listener in (self._outlet, self._keeper, self._station):
            self._events.listen(listener)
        self._plan_streams = PlanStreams(self._outlet, self._metrics, self._authenticate)
        self._callers: dict[str, tuple[int, Caller]] = {}
        self.endpoints = [
            *Registry(database, self._changes).endpoints(),
            *Positions(database, self._writer, self._metrics).endpoints(),
            *Obstructions(database, self._changes).endpoints(),
            *Reports(intake).endpoints(),
            *LedgerOfBeam(database, self._changes).endpoints(),
            *Links(database).endpoints(),
            *Blockages(database, self._changes).endpoints(),
            *Routes(database, self._changes).endpoints(),
            *EventStreams(self._events, self._metrics, self._authenticate).endpoints(),
            *Plans(database).endpoints(),
            *CapacityOfBeam(database, self._changes).endpoints(),
            *WhatIf(database).endpoints(),
            *self._plan_streams.endpoints(),
            *self._own_endpoints(),
        ]

    def application(self) -> web.Application:
        """Return the application, which closes the database at its end."""
        application = web.Application(
            middlewares=[observed(self._metrics), problems], client_max_size=_LARGEST_BODY_BYTES
        )
        application.add_routes(route(one, self._authenticate) for one in self.endpoints)
        application.add_routes(page.routes())
        application.cleanup_ctx.append(self._run)
        application.on_shutdown.append(self._end_streams)
        return application

    def openapi(self) -> dict[str, object]:
        """Return the OpenAPI document."""
        return describe(self.endpoints, title=_TITLE, version=_VERSION)

    async def _run(self, _application: web.Application) -> AsyncIterator[None]:
        await self._changes.start()
        self._writer.start()
        self._keeper.start()
        self._station.start()
        pruning = asyncio.create_task(prune_for_ever(self._database, self._settings, self._metrics))
        yield
        pruning.cancel()
        await asyncio.gather(pruning, return_exceptions=True)
        await self._writer.close()
        await self._station.close()
        await self._keeper.close()
        await self._changes.close()
        await self._database.close()

    async def _end_streams(self, _application: web.Application) -> None:
        self._events.close()
        self._plan_streams.close()

    def _own_endpoints(self) -> list[Endpoint]:
        unready = HTTPStatus.SERVICE_UNAVAILABLE
        return [
            Endpoint(
                "GET", "/health", "Whether the service runs", _health, None, answers=models.Health
            ),
            Endpoint(
                "GET",
                "/ready",
                "Whether it can serve: its database answers and has the right schema",
                self._ready,
                None,
                answers=models.Health,
                problems=[unready],
            ),
            Endpoint("GET", "/openapi.json", "This document", self._describe, None),
            Endpoint(
                "GET",
                "/metrics",
                "Prometheus metrics",
                self._measure,
                READERS,
                media_type="text/plain",
            ),
        ]

    async def _ready(self, _call: Call) -> models.Health:
        try:
            await check_schema(self._database)
        except (SchemaError, DatabaseLostError) as error:
            detail = f"the database cannot be used: {error}"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail) from error
        return models.Health(status="ok")

    async def _describe(self, _call: Call) -> web.Response:
        return web.json_response(self.openapi())

    async def _measure(self, _call: Call) -> web.Response:
        text = generate_latest(self._metrics.registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_1_0_0})

    async def _authenticate(self, request: web.Request) -> Caller:
        scheme, _, text = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not text:
            raise _unauthorized("this needs a bearer token")
        now_ms = time.time_ns() // 1_000_000
        until_ms, caller = self._callers.get(text, (0, None))
        if caller is None or until_ms <= now_ms:
            async with self._database.reading() as connection:
                caller = await find_caller(connection, text, now_ms)
            if caller is None:
                raise _unauthorized("the token is unknown, expired or revoked")
            if len(self._callers) >= _MOST_TOKENS_KEPT:
                self._callers.clear()
            until_ms = now_ms + _TOKEN_KEPT_MS
            if caller.expires_ms is not None:
                until_ms = min(until_ms, caller.expires_ms)
            self._callers[text] = (until_ms, caller)
        return caller


async def _health(_call: Call) -> models.Health:
    return models.Health(status="ok")


def _unauthorized(detail: str) -> Problem:
    return Problem(
        HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": 'Bearer realm="underpass"'}
    )
