"""The console: the page for operators at `/`, and the files that it loads.

It is built from `console/` into the folder `console` of this package. All of its files come from
here, so it works without Internet access. It reads its data from the API, with its user's session
or token.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import re
from pathlib import Path

import structlog
from aiohttp import web

from underpass_control.http.callers import Callers
from underpass_control.http.problem import Handler
from underpass_control.http.sending import File

_LOG = structlog.get_logger()
_FOLDER = Path(__file__).parents[1] / "console"
_STYLE = re.compile(r"<style>(.*?)</style>", re.DOTALL)
# The inline code that makes the form usable before the script has come; only this text is allowed.
_SCRIPT = re.compile(r"<script>(.*?)</script>", re.DOTALL)
# The files with these endings are compressed copies, chosen by the encodings a browser accepts.
_COMPRESSED = frozenset({".br", ".gz"})
_HEADERS = {
    # Shorter than the library's, and without versions.
    "Server": "underpass",
    "X-Content-Type-Options": "nosniff",
    "Cross-Origin-Resource-Policy": "same-origin",
}
# Headers for the page only, not its assets: the first script and its head fit one flight of TCP.
_PAGE_HEADERS = {
    **_HEADERS,
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
}
# The name of an asset has the hash of its content.
_FOR_EVER = {"Cache-Control": "public, max-age=31536000, immutable"}
_ASK_AGAIN = {"Cache-Control": "no-cache"}
_NOT_BUILT = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Underpass control service</title>
<h1>The console has not been built</h1>
<p>The service runs, and its API with it: <a href="docs">the page to read and try it</a>.
<p>To have the console here, run <code>make console</code> in the work tree and start the service
again. A wheel has it inside if it was made after that.
"""


class ConsolePages:
    """The page at `/`, and its assets. Neither needs a token."""

    def __init__(
        self, callers: Callers, folder: Path = _FOLDER, *, provider: str | None = None
    ) -> None:
        """Take the folder of the built console; the files that it holds now are served.

        `provider` is the name on the button for signing in by a provider, if there is one.
        """
        self._callers = callers
        self._page = folder / "index.html"
        self._built = self._page.is_file()
        # The page with the provider's name in it, compressed: a request of its own would cost the
        # first visit a round trip.
        self._named: bytes | None = None
        # Requests are looked up by name in this table, so they can reach no other file.
        self._assets: dict[str, Path] = {}
        styles: list[str] = []
        scripts: list[str] = []
        if self._built:
            text = self._page.read_text(encoding="utf-8")
            styles, scripts = _STYLE.findall(text), _SCRIPT.findall(text)
            if provider is not None:
                named = f'<meta name="provider" content="{html.escape(provider)}">'
                self._named = gzip.compress(text.replace("</head>", named + "</head>").encode())
            self._assets = {
                path.name: path
                for path in (folder / "assets").iterdir()
                if path.suffix not in _COMPRESSED
            }
        else:
            _LOG.warning("the console has not been built: `make console` does it")
        self._policy = {"Content-Security-Policy": _policy(styles, scripts)}

    def routes(self) -> list[web.RouteDef]:
        """Return them."""
        return [
            web.get("/", self._limited(self._show)),
            web.get("/assets/{name}", self._limited(self._asset)),
        ]

    def _limited(self, handler: Handler) -> Handler:
        async def limited(request: web.Request) -> web.StreamResponse:
            self._callers.admit(request)
            return await handler(request)

        return limited

    async def _show(self, request: web.Request) -> web.StreamResponse:
        headers = {**_PAGE_HEADERS, **self._policy, **_ASK_AGAIN}
        if not self._built:
            return web.Response(text=_NOT_BUILT, content_type="text/html", headers=headers)
        if self._named is None:
            return File(self._page, headers=headers)
        vary = {"Vary": "Accept-Encoding"}
        page = self._named
        if "gzip" in request.headers.get("Accept-Encoding", ""):
            vary["Content-Encoding"] = "gzip"
        else:
            page = gzip.decompress(page)
        return web.Response(
            body=page, content_type="text/html", charset="utf-8", headers={**headers, **vary}
        )

    async def _asset(self, request: web.Request) -> web.StreamResponse:
        path = self._assets.get(request.match_info["name"])
        if path is None:
            raise web.HTTPNotFound
        # The policy of a worker (.mjs) comes with its own script. A page's scripts have the page's
        # policy, and the first one has no room for another header.
        policy = {} if path.suffix == ".js" else self._policy
        response = File(path, headers={**_HEADERS, **policy, **_FOR_EVER})
        if path.suffix in (".js", ".mjs"):
            # Not every system's table of types has `.mjs`, and a module needs the right type.
            response.content_type = "text/javascript"
        return response


def _policy(styles: list[str], scripts: list[str]) -> str:
    """Return the policy: nothing from elsewhere, nothing inline but what the page itself has."""
    return "; ".join(
        [
            "default-src 'none'",
            " ".join(["script-src 'self'", *map(_hash, scripts)]),
            "worker-src 'self'",
            "connect-src 'self'",
            " ".join(["style-src 'self'", *map(_hash, styles)]),
            # Icons of the style sheets are data URLs.
            "img-src 'self' data: blob:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        ]
    )


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
