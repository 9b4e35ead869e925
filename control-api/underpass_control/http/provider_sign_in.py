"""Signing in by a provider: the browser is sent there, and comes back with a code.

These are pages for browsers, not operations of the API, so errors are shown as pages.
"""

from __future__ import annotations

import hmac
import html
import re
import time
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import structlog
from aiohttp import web
from sqlalchemy.exc import IntegrityError

from underpass_control.access import provided, sessions
from underpass_control.access.audit import Actor, Changed, record
from underpass_control.access.caller import Credential, Kind
from underpass_control.access.users import USER_NAME
from underpass_control.http.callers import Callers
from underpass_control.http.limits import Buckets
from underpass_control.metrics import Metrics
from underpass_control.oidc.attempt import Attempt, attempt_of, new_attempt
from underpass_control.oidc.configuration import Configuration, claim_of
from underpass_control.oidc.documents import ProviderError
from underpass_control.oidc.id_token import IdTokenError
from underpass_control.oidc.provider import Provider
from underpass_control.settings import Settings
from underpass_control.storage.database import Database

_LOG = structlog.get_logger()
_LONGEST_CODE = 4096
_ERROR = re.compile(r"[a-z_]{1,64}")
# The time within which an attempt has to be finished.
_WITHIN_S = 900
# Failures that one address may make at once, and how fast they are forgotten: each costs the
# provider two requests.
_FAILURES = (1 / 5, 30)
_HEADERS = {
    "Cache-Control": "no-store",
    # The URL of a page here may contain a code.
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "Content-Security-Policy": "default-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
}
_PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Underpass: not signed in</title>
<main>
<h1>You are not signed in</h1>
<p>{text}</p>
<p><a href="{console}">To the console</a></p>
</main>
"""


class _NotSignedInError(Exception):
    """Why a user is not signed in, for people."""

    def __init__(self, status: HTTPStatus, text: str) -> None:
        super().__init__(text)
        self.status = status


class ProviderSignIn:
    """The pages of signing in by a provider; `close` ends its connections."""

    def __init__(
        self,
        database: Database,
        callers: Callers,
        configuration: Configuration,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._database = database
        self._callers = callers
        self._configuration = configuration
        self._provider = Provider(configuration)
        self._metrics = metrics
        lasts_s = min(settings.session_lasts_s, configuration.file.session_hours * 3600)
        self._lasts_ms = round(lasts_s * 1000)
        self._idle_ms = round(settings.session_idle_s * 1000)
        self._failures = Buckets(*_FAILURES)
        self._over_tls = configuration.public_url.startswith("https:")
        # With this prefix, browsers accept the cookie only over TLS and from this host: no
        # neighbouring host can make a victim finish another person's attempt.
        self._cookie = "__Host-underpass-sign-in" if self._over_tls else "underpass-sign-in"

    def routes(self) -> list[web.RouteDef]:
        """Return them."""
        # Beside `/v1/session`, so that the session's cookie is for the same paths.
        return [
            web.get("/v1/sign-in", self._paged(self._begin)),
            web.get("/v1/signed-in", self._paged(self._finish)),
            web.get("/v1/sign-out", self._paged(self._sign_out)),
        ]

    async def close(self) -> None:
        """Close all connections."""
        await self._provider.close()

    def _paged(
        self, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def paged(request: web.Request) -> web.StreamResponse:
            self._callers.admit(request)
            try:
                return await handler(request)
            except _NotSignedInError as error:
                status, text = error.status, str(error)
            except ProviderError as error:
                _LOG.warning("signing in by the provider fails", error=str(error))
                status, text = HTTPStatus.BAD_GATEWAY, str(error)
            page = _PAGE.format(text=html.escape(text), console=self._console())
            return web.Response(
                status=status.value, text=page, content_type="text/html", headers=_HEADERS
            )

        return paged

    def _console(self) -> str:
        return html.escape(self._configuration.public_url)

    async def _begin(self, request: web.Request) -> web.StreamResponse:
        if self._over_tls != self._callers.is_secure(request):
            # Detect it here; otherwise no browser would keep the session's cookie.
            text = "this is not the service's public URL, or its reverse proxy does not say by "
            text += "X-Forwarded-Proto that it has TLS, or is none of --trusted-proxies"
            raise _NotSignedInError(HTTPStatus.BAD_REQUEST, text)
        attempt = new_attempt(request.query.get("page", ""))
        url = await self._provider.sign_in_url(attempt)
        return _redirect(url, self._attempt_cookie(attempt.cookie, _WITHIN_S))

    async def _finish(self, request: web.Request) -> web.StreamResponse:
        address = self._callers.address(request)
        wait_s = self._failures.take(address, time.monotonic())
        if wait_s > 0 or self._provider.is_busy:
            self._metrics.sign_ins.labels("refused").inc()
            text = "too many sign in at the moment: try again in a minute"
            raise _NotSignedInError(HTTPStatus.TOO_MANY_REQUESTS, text)
        try:
            attempt = attempt_of(request.cookies.get(self._cookie, ""))
            code = await self._code(request.query, attempt)
            assert attempt is not None
            secret = await self._sign_in(await self._claims(attempt, code), address)
        except (ProviderError, _NotSignedInError):
            self._metrics.sign_ins.labels("failed").inc()
            raise
        self._failures.give_back(address, time.monotonic())
        self._metrics.sign_ins.labels("accepted").inc()
        answer = _redirect(
            f"{self._configuration.public_url}#/{attempt.page}", self._attempt_cookie("", 0)
        )
        answer.headers.add("Set-Cookie", self._callers.cookie(request, secret))
        return answer

    async def _sign_out(self, _request: web.Request) -> web.StreamResponse:
        """Let the provider end its session; this service's own has ended already."""
        return _redirect(await self._provider.sign_out_url() or self._configuration.public_url)

    async def _code(self, query: Mapping[str, str], attempt: Attempt | None) -> str:
        """Return the code of the provider's answer, if it belongs to the browser's attempt."""
        state = query.get("state", "")
        if attempt is None or not hmac.compare_digest(state.encode(), attempt.state.encode()):
            text = "this does not belong to an attempt of this browser to sign in: begin again"
            raise _NotSignedInError(HTTPStatus.BAD_REQUEST, text)
        issuer = self._configuration.file.issuer
        named = query.get("iss")
        unnamed = named is None and (await self._provider.metadata()).answers_name_it
        if unnamed or named not in (None, issuer):
            text = f"the answer does not come from {issuer}"
            raise _NotSignedInError(HTTPStatus.BAD_REQUEST, text)
        error = query.get("error")
        if error is not None:
            said = error if _ERROR.fullmatch(error) else "an error"
            raise _NotSignedInError(HTTPStatus.FORBIDDEN, f"the provider says: {said}")
        code = query.get("code", "")
        if not 0 < len(code) <= _LONGEST_CODE:
            raise _NotSignedInError(HTTPStatus.BAD_REQUEST, "the provider's answer has no code")
        return code

    async def _claims(self, attempt: Attempt, code: str) -> dict[str, Any]:
        try:
            return await self._provider.claims(attempt, code)
        except IdTokenError as error:
            _LOG.warning("an ID token is refused", error=str(error))
            raise _NotSignedInError(HTTPStatus.FORBIDDEN, str(error)) from error

    async def _sign_in(self, claims: dict[str, Any], address: str) -> str:
        """Begin a session of the user with these claims; return its secret."""
        who = self._known_as(claims, address)
        grant = self._configuration.grant_of(claims)
        now_ms = time.time_ns() // 1_000_000
        ended: list[int]
        try:
            async with self._database.transaction() as connection:
                if grant is None:
                    secret, ended = None, await provided.turn_away(connection, who, now_ms)
                else:
                    taken = await provided.take_in(connection, who, *grant, now_ms)
                    ended = list(taken.ended)
                    secret = await sessions.begin_session(
                        connection,
                        taken.user_id,
                        now_ms=now_ms,
                        lasts_ms=self._lasts_ms,
                        idle_ms=self._idle_ms,
                    )
                    actor = Actor(Kind.USER.value, taken.user_id, who.name, address)
                    changed = Changed("sign in", "/v1/session", grant[1])
                    await record(connection, actor, [changed], now_ms)
        except provided.ProvidedError as error:
            raise _NotSignedInError(HTTPStatus.FORBIDDEN, str(error)) from error
        except IntegrityError as error:
            text = "somebody of your name has just signed in: try again"
            raise _NotSignedInError(HTTPStatus.CONFLICT, text) from error
        for one in ended:
            self._callers.forget(Credential(Kind.USER, one))
        if secret is None:
            text = f"{who.name} is granted nothing here: none of the provider's claims gives a role"
            raise _NotSignedInError(HTTPStatus.FORBIDDEN, text)
        return secret

    def _known_as(self, claims: dict[str, Any], address: str) -> provided.Provided:
        file = self._configuration.file
        name = claim_of(claims, file.name_claim)
        text = name.strip().lower() if isinstance(name, str) else ""
        if not USER_NAME.fullmatch(text):
            detail = f"the provider's claim {file.name_claim} is no name: 1 to 64 of a-z, 0-9 and "
            raise _NotSignedInError(HTTPStatus.FORBIDDEN, detail + ". _ @ + -")
        return provided.Provided(file.issuer, claims["sub"], text, address)

    def _attempt_cookie(self, value: str, lasts_s: int) -> str:
        # Lax, since the provider's answer is a request that another site starts.
        secure = "; Secure" if self._over_tls else ""
        cookie = f"{self._cookie}={value}; Path=/; Max-Age={lasts_s}; HttpOnly; SameSite=Lax"
        return cookie + secure


def _redirect(url: str, cookie: str | None = None) -> web.Response:
    answer = web.Response(status=HTTPStatus.FOUND.value, headers={**_HEADERS, "Location": url})
    if cookie is not None:
        answer.headers.add("Set-Cookie", cookie)
    return answer
