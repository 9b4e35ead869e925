"""The service itself: health, readiness, the description of the API, metrics."""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from collections.abc import Iterable
from http import HTTPStatus

from aiohttp import web
from prometheus_client import generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_1_0_0

from underpass_control.http import models
from underpass_control.http.conditions import etag, is_known
from underpass_control.http.endpoint import READERS, Call, Endpoint, describe
from underpass_control.http.problem import Problem
from underpass_control.metrics import Metrics
from underpass_control.storage.database import Database, DatabaseLostError
from underpass_control.storage.schema import SchemaError, check_schema

_TITLE = "Underpass control service"
_VERSION = "1"
# The database is checked at most this often, however many requests come.
_READY_FOR_S = 1.0
_READY_WITHIN_S = 5.0


class ServiceStatus:
    """The endpoints of the service itself. All but the metrics need no token and cost little."""

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._database = database
        self._metrics = metrics
        self._checking = asyncio.Lock()
        # The last result, and when it was found: None if it can serve, otherwise why not.
        self._unready: str | None = None
        self._checked: float | None = None
        self._etag = ""
        self._document = b""

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        unready = HTTPStatus.SERVICE_UNAVAILABLE
        return [
            Endpoint(
                "GET",
                "/health",
                "Whether the service runs",
                self._health,
                None,
                answers=models.Health,
                limited=False,
            ),
            Endpoint(
                "GET",
                "/ready",
                "Whether it can serve: its database answers and has the right schema",
                self._ready,
                None,
                answers=models.Health,
                problems=[unready],
                limited=False,
            ),
            Endpoint(
                "GET",
                "/openapi.json",
                "This document",
                self._describe,
                None,
                others=[HTTPStatus.NOT_MODIFIED],
            ),
            Endpoint(
                "GET",
                "/metrics",
                "Prometheus metrics",
                self._measure,
                READERS,
                media_type="text/plain",
            ),
        ]

    def describe(self, endpoints: Iterable[Endpoint]) -> None:
        """Write the OpenAPI document, once for all who ask for it."""
        document = describe(endpoints, title=_TITLE, version=_VERSION)
        self._document = json.dumps(document, separators=(",", ":")).encode()
        self._etag = etag(hashlib.sha256(self._document).hexdigest()[:16])

    async def _health(self, _call: Call) -> models.Health:
        return models.Health(status="ok")

    async def _ready(self, _call: Call) -> models.Health:
        # Requests that come during a check wait for its result.
        async with self._checking:
            now = time.monotonic()
            if self._checked is None or now - self._checked >= _READY_FOR_S:
                self._unready = await self._check()
                self._checked = time.monotonic()
            unready = self._unready
        if unready is not None:
            detail = f"the database cannot be used: {unready}"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail)
        return models.Health(status="ok")

    async def _check(self) -> str | None:
        try:
            async with asyncio.timeout(_READY_WITHIN_S):
                await check_schema(self._database)
        except (SchemaError, DatabaseLostError) as error:
            return str(error)
        except TimeoutError:
            return f"no answer within {_READY_WITHIN_S:.0f} s"
        return None

    async def _describe(self, call: Call) -> web.Response:
        headers = {"ETag": self._etag, "Cache-Control": "no-cache"}
        if is_known(call, self._etag):
            return web.Response(status=HTTPStatus.NOT_MODIFIED, headers=headers)
        return web.Response(body=self._document, content_type="application/json", headers=headers)

    async def _measure(self, _call: Call) -> web.Response:
        text = generate_latest(self._metrics.registry)
        return web.Response(body=text, headers={"Content-Type": CONTENT_TYPE_PLAIN_1_0_0})
