"""Counts every request, and logs failed ones."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import structlog
from aiohttp import web
from aiohttp.typedefs import Middleware

from underpass_control.http.limits import Buckets
from underpass_control.metrics import Metrics

_LOG = structlog.get_logger()
_FAILED = 400
# The refusals of one address that are logged, at once and per second. A client that repeats wrong
# requests must neither fill the disk nor hide the refusals of others.
_LOGGED_AT_ONCE = 100
_LOGGED_PER_S = 10.0
_LONGEST_PATH = 200


def observed(metrics: Metrics, address: Callable[[web.Request], str]) -> Middleware:
    """Return the middleware that counts; `address` gives the address that a request counts for."""
    logged = Buckets(_LOGGED_PER_S, _LOGGED_AT_ONCE)

    @web.middleware
    async def middleware(
        request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        began = time.perf_counter()
        response = await handler(request)
        taken_s = time.perf_counter() - began
        # Use the endpoint's path, not the request's: callers must not create time series.
        resource = request.match_info.route.resource
        endpoint = "none" if resource is None else resource.canonical
        method = request.method if resource is not None else "any"
        metrics.requests.labels(method, endpoint, str(response.status)).inc()
        if response.content_type != "text/event-stream":
            metrics.request_seconds.labels(method, endpoint).observe(taken_s)
        # Refusals for too many requests are not logged at all.
        failed = response.status >= _FAILED and response.status != HTTPStatus.TOO_MANY_REQUESTS
        if failed and not logged.take(whom := address(request), time.monotonic()):
            _LOG.info(
                "request refused",
                method=request.method,
                path=request.path[:_LONGEST_PATH],
                status=response.status,
                ms=round(1000 * taken_s, 1),
                remote=request.remote,
                address=whom,
            )
        return response

    return middleware
