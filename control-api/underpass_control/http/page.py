"""A page to read and try the API, made by Swagger UI from the OpenAPI document.

All files come from here, so it works without Internet access.
"""

from __future__ import annotations

from pathlib import Path

from aiohttp import web
from swagger_ui_bundle import swagger_ui_path

from underpass_control.http.callers import Callers
from underpass_control.http.problem import Handler
from underpass_control.http.sending import File

_ASSETS = ("swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png")
_PAGE = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Underpass control service</title>
<link rel="stylesheet" href="docs/swagger-ui.css">
<link rel="icon" type="image/png" href="docs/favicon-32x32.png">
</head>
<body>
<div id="api"></div>
<script src="docs/swagger-ui-bundle.js"></script>
<script src="docs/start.js"></script>
</body>
</html>
"""
# No validator: it would send this service's address to an external server.
_START = """SwaggerUIBundle({
  url: "openapi.json",
  dom_id: "#api",
  deepLinking: true,
  docExpansion: "list",
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  filter: true,
  tryItOutEnabled: true,
  validatorUrl: null,
});
"""
_HEADERS = {
    # Swagger UI sets styles as it draws, and has its icons in data URLs.
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; connect-src 'self'; "
    "style-src 'self' 'unsafe-inline'; img-src 'self' data:; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
_KEPT = {"Cache-Control": "max-age=86400"}


def routes(callers: Callers) -> list[web.RouteDef]:
    """Return the page at `/docs`, and what it loads."""
    handlers = {
        "/docs": _page,
        "/docs/start.js": _start,
        "/docs/{name}": _asset,
    }
    return [web.get(path, _limited(handler, callers)) for path, handler in handlers.items()]


def _limited(handler: Handler, callers: Callers) -> Handler:
    async def limited(request: web.Request) -> web.StreamResponse:
        callers.admit(request)
        return await handler(request)

    return limited


async def _asset(request: web.Request) -> web.StreamResponse:
    name = request.match_info["name"]
    if name not in _ASSETS:
        raise web.HTTPNotFound
    return File(Path(str(swagger_ui_path)) / name, headers={**_HEADERS, **_KEPT})


async def _page(_request: web.Request) -> web.Response:
    return web.Response(text=_PAGE, content_type="text/html", headers=_HEADERS)


async def _start(_request: web.Request) -> web.Response:
    return web.Response(text=_START, content_type="text/javascript", headers=_HEADERS)
