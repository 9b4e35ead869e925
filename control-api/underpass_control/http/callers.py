"""Callers: their tokens and sessions are looked up, cached for a while, and watched while a stream
lasts."""

from __future__ import annotations

import asyncio
import hmac
import ipaddress
import re
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from aiohttp import hdrs, web

from underpass_control.access import sessions
from underpass_control.access.caller import Caller, Credential, Kind
from underpass_control.access.lookup import find_caller, in_force
from underpass_control.access.secrets import LONGEST_SECRET
from underpass_control.http.addresses import client_address
from underpass_control.http.limits import Buckets, admit
from underpass_control.http.problem import Problem
from underpass_control.roles import Role
from underpass_control.settings import Settings
from underpass_control.storage.database import Database, DatabaseLostError

_LOG = structlog.get_logger()
# How often tokens in use are looked up again: a revoked one ends within a second.
_CHECK_EVERY_S = 0.5
_CHECK_WITHIN_S = 5.0
# Tokens used within this time are checked again; one checked within it need not be looked up.
_TOKEN_KEPT_MS = 5_000
_MOST_TOKENS_KEPT = 10_000
_AT_ONCE = 1_000
# The burst of a limit, in seconds of its rate.
_BURST_S = 4
_SECRET = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_SECRET}}}")
# The bytes that a terminal may send with its own token, per second and at once: ten times the
# reports that it may make, and all of its burst of reports.
_BODY_BYTES_PER_S = 65_536.0
_BODY_BYTES = 8 << 20
# The use of a session is stored at most this often; more often if the session would end sooner.
_TOUCH_EVERY_MS = 60_000
COOKIE = "underpass-session"
# Browsers accept a cookie of this name over TLS only, so no page without TLS can set it.
SECURE_COOKIE = "__Secure-underpass-session"
CSRF_HEADER = "X-CSRF-Token"
_CHANGES_NOTHING = frozenset({hdrs.METH_GET, hdrs.METH_HEAD})


class TokenEndedError(Exception):
    """The token or session of a stream has expired, or is revoked."""


@dataclass(slots=True)
class _Known:
    caller: Caller
    # When it was last found to be in force, and when it was last used.
    checked_ms: int
    used_ms: int
    # When its use was last stored; of sessions only.
    touched_ms: int = 0

    def is_fresh(self, now_ms: int) -> bool:
        """Tell whether it need not be looked up again."""
        expires_ms = self.caller.expires_ms
        expired = expires_ms is not None and expires_ms <= now_ms
        return not expired and now_ms - self.checked_ms < _TOKEN_KEPT_MS


class Callers:
    """Authenticates callers, and refuses those that call too often.

    Requests with a known token count against that token. All others count against the address that
    they come from: those without a token, and those whose token has to be looked up and is unknown.
    So guessing tokens costs other callers nothing, and the database little.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        # It has its own connection, so that a revoked token is noticed even if all others are busy.
        self._database = Database(database.url, pool_size=1)
        self._trusted = settings.trusted_proxies
        self._of_token = Buckets(
            settings.token_requests_per_s, _BURST_S * settings.token_requests_per_s
        )
        self._of_address = Buckets(
            settings.address_requests_per_s, _BURST_S * settings.address_requests_per_s
        )
        self._bytes_of_terminal = Buckets(_BODY_BYTES_PER_S, _BODY_BYTES)
        self._idle_ms = round(settings.session_idle_s * 1000)
        self._known: OrderedDict[str, _Known] = OrderedDict()
        # Tokens that are being looked up.
        self._looked_up: dict[str, asyncio.Task[Caller | None]] = {}
        # The open streams of each token.
        self._streams: dict[Credential, set[asyncio.Timeout]] = {}
        # How many streams of all kinds each party has.
        self._streams_of: Counter[tuple[str, str | int]] = Counter()
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch the tokens in use; `close` ends it."""
        self._task = asyncio.create_task(self._watch(), name="tokens")

    async def close(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._database.close()

    def admit(self, request: web.Request) -> None:
        """Admit a request that needs no token.

        Raises:
            Problem: 429, there have been too many from its address.
        """
        admit(self._of_address, self.address(request))

    def admit_body(self, caller: Caller | None, size: int) -> None:
        """Count the bytes that a terminal itself sends, before they are read as JSON.

        Reading any bytes takes longer than sending them: a stolen terminal must not delay all
        others.

        Raises:
            Problem: 429, that is more than any vehicle has to report.
        """
        if caller is not None and caller.role is Role.TERMINAL:
            admit(self._bytes_of_terminal, caller.node, size)

    async def authenticate(self, request: web.Request) -> Caller:
        """Return the caller of a request, by its bearer token or the cookie of a session.

        Raises:
            Problem: 401, it has no token or session in force; 403, it makes a change by a cookie
                without the session's CSRF token; 429, there have been too many.
        """
        text, is_session = self._secret(request)
        if text is None:
            self.admit(request)
            raise _unauthorized("this needs a bearer token, or signing in")
        if not _SECRET.fullmatch(text) or is_session != text.startswith(sessions.PREFIX):
            self.admit(request)
            raise _unauthorized(_ended(is_session=is_session))
        caller = await self._caller(request, text)
        if is_session and request.method not in _CHANGES_NOTHING:
            shown = request.headers.get(CSRF_HEADER, "")
            # A header may have bytes that are not UTF-8.
            given = shown.encode(errors="surrogateescape")
            if not hmac.compare_digest(given, sessions.csrf_token_of(text).encode()):
                detail = f"with a cookie, this needs the header {CSRF_HEADER} of the session"
                raise Problem(HTTPStatus.FORBIDDEN, detail)
        return caller

    def session_secret(self, request: web.Request) -> str | None:
        """Return the content of a request's session cookie, unchecked."""
        text, is_session = self._secret(request)
        return text if is_session else None

    def cookie(self, request: web.Request, secret: str) -> str:
        """Return the `Set-Cookie` that gives a browser a session's secret, or removes it ("").

        Without a path of its own, the cookie is for the paths beside the requested one (RFC 6265,
        § 5.1.4), so it goes to this API only, even below a path of a reverse proxy.
        """
        secure = self.is_secure(request)
        name = SECURE_COOKIE if secure else COOKIE
        parts = [f"{name}={secret}", "HttpOnly", "SameSite=Strict"]
        if not secret:
            parts.append("Max-Age=0")
        if secure:
            parts.append("Secure")
        return "; ".join(parts)

    def is_secure(self, request: web.Request) -> bool:
        """Tell whether the browser's connection has TLS; a trusted proxy's header counts."""
        if request.secure:
            return True
        try:
            peer = ipaddress.ip_address(request.remote or "")
        except ValueError:
            return False
        said = request.headers.get("X-Forwarded-Proto", "")
        return said.lower() == "https" and any(peer in one for one in self._trusted)

    def forget(self, credential: Credential) -> None:
        """Note that a token or session has just ended: its streams end now."""
        self._end({credential})

    def _secret(self, request: web.Request) -> tuple[str | None, bool]:
        """Return the secret of a request, and whether it comes from a cookie."""
        header = request.headers.get(hdrs.AUTHORIZATION)
        if header is not None:
            scheme, _, text = header.partition(" ")
            return (text if scheme.lower() == "bearer" and text else None), False
        name = SECURE_COOKIE if self.is_secure(request) else COOKIE
        text = request.cookies.get(name, "")
        return text or None, bool(text)

    async def _caller(self, request: web.Request, text: str) -> Caller:
        known = self._known.get(text)
        if known is None:
            return await self._guessed(request, text)
        admit(self._of_token, known.caller.credential)
        self._known.move_to_end(text)
        now_ms = time.time_ns() // 1_000_000
        known.used_ms = now_ms
        if known.is_fresh(now_ms):
            return known.caller
        # It has not been used for a while, so it is unknown whether it is still in force.
        return await self._look_up(text)

    @contextmanager
    def one_stream(self, caller: Caller, open_streams: int, most: int) -> Iterator[None]:
        """Count another stream of a kind while it lasts.

        A token, a user with all sessions, and a tenant with all users and tokens each have at most
        as many as there are free places, so they cannot lock the others out.

        Raises:
            Problem: 503, there are too many; 429, the caller's party has too many.
        """
        later = {"Retry-After": "10"}
        if open_streams >= most:
            detail = f"{most} streams are open already"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=later)
        party = party_of(caller)
        of_party = self._streams_of[party]
        if of_party >= most - open_streams:
            detail = f"you, or your tenant, have {of_party} streams open already"
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers=later)
        self._streams_of[party] += 1
        try:
            yield
        finally:
            self._streams_of[party] -= 1
            if not self._streams_of[party]:
                del self._streams_of[party]

    @asynccontextmanager
    async def while_in_force(self, caller: Caller) -> AsyncIterator[None]:
        """Run the body while a caller's token is in force; interrupt it when the token ends.

        Raises:
            TokenEndedError: The token has ended.
        """
        limit = asyncio.timeout(None)
        try:
            async with limit:
                streams = self._streams.setdefault(caller.credential, set())
                streams.add(limit)
                try:
                    yield
                finally:
                    streams.discard(limit)
                    # If they have been told to end meanwhile, later streams have another set.
                    if not streams and self._streams.get(caller.credential) is streams:
                        del self._streams[caller.credential]
        except TimeoutError as error:
            if not limit.expired():
                raise
            is_session = caller.credential.kind is Kind.USER
            raise TokenEndedError(_ended(is_session=is_session)) from error

    async def _guessed(self, request: web.Request, text: str) -> Caller:
        """Return the caller of a token that is not cached here and may be a guess."""
        # It is counted before the look-up, so that many guesses at once are refused, too.
        address = self.address(request)
        counted = text not in self._looked_up
        if counted:
            admit(self._of_address, address)
        unknown = False
        try:
            return await self._look_up(text)
        except Problem:
            unknown = True
            raise
        finally:
            if counted and not unknown:
                self._of_address.give_back(address, time.monotonic())
            elif unknown and not counted:
                self._of_address.take(address, time.monotonic())

    async def _look_up(self, text: str) -> Caller:
        """Look a token up; concurrent requests with it share one query."""
        task = self._looked_up.get(text)
        if task is None:
            task = asyncio.create_task(self._find(text))
            self._looked_up[text] = task
            task.add_done_callback(lambda _: self._looked_up.pop(text, None))
        caller = await asyncio.shield(task)
        if caller is None:
            raise _unauthorized(_ended(is_session=text.startswith(sessions.PREFIX)))
        return caller

    async def _find(self, text: str) -> Caller | None:
        now_ms = time.time_ns() // 1_000_000
        async with self._database.reading() as connection:
            caller = await find_caller(connection, text, now_ms)
        if caller is None:
            self._known.pop(text, None)
        else:
            before = self._known.get(text)
            touched_ms = 0 if before is None else before.touched_ms
            self._known[text] = _Known(caller, now_ms, now_ms, touched_ms)
            if len(self._known) > _MOST_TOKENS_KEPT:
                self._known.popitem(last=False)
        return caller

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(_CHECK_EVERY_S)
            try:
                await self._check_used(time.time_ns() // 1_000_000)
            except (DatabaseLostError, TimeoutError) as error:
                _LOG.warning("tokens are not checked", error=str(error))
            except Exception:
                # After any error the next check must come: it ends streams.
                _LOG.exception("tokens are not checked")

    async def _check_used(self, now_ms: int) -> None:
        # Before anything waits for the database.
        self._end(self._expired(now_ms))
        used = {
            known.caller.credential
            for known in self._known.values()
            if now_ms - known.used_ms < _TOKEN_KEPT_MS
        }
        watched = list(used | self._streams.keys())
        for start in range(0, len(watched), _AT_ONCE):
            await self._check(watched[start : start + _AT_ONCE], now_ms)
        await self._touch(now_ms)

    async def _check(self, watched: Sequence[Credential], now_ms: int) -> None:
        async with asyncio.timeout(_CHECK_WITHIN_S), self._database.reading() as connection:
            good = await in_force(connection, watched, now_ms)
        for known in self._known.values():
            if known.caller.credential in good:
                known.checked_ms = now_ms
        self._end(set(watched) - good)

    async def _touch(self, now_ms: int) -> None:
        """Store the use of sessions by requests; open streams do not count as use."""
        every_ms = min(_TOUCH_EVERY_MS, self._idle_ms // 4)
        used = [
            one
            for one in self._known.values()
            if one.caller.credential.kind is Kind.USER and one.used_ms - one.touched_ms > every_ms
        ][:_AT_ONCE]
        if not used:
            return
        ids = [one.caller.credential.id for one in used]
        async with asyncio.timeout(_CHECK_WITHIN_S), self._database.transaction() as connection:
            await sessions.touch_sessions(connection, ids, now_ms, self._idle_ms)
        for one in used:
            one.touched_ms = max(one.touched_ms, now_ms)

    def _expired(self, now_ms: int) -> set[Credential]:
        return {
            one.caller.credential
            for one in self._known.values()
            if one.caller.expires_ms is not None and one.caller.expires_ms <= now_ms
        }

    def _end(self, ended: Collection[Credential]) -> None:
        if not ended:
            return
        for text in [t for t, one in self._known.items() if one.caller.credential in ended]:
            del self._known[text]
        now_s = asyncio.get_running_loop().time()
        for one in ended:
            for limit in self._streams.pop(one, ()):
                limit.reschedule(now_s)

    def address(self, request: web.Request) -> str:
        """Return the address that a request is counted for, or its /64 of IPv6."""
        forwarded = ",".join(request.headers.getall("X-Forwarded-For", ()))
        return client_address(request.remote, forwarded, self._trusted)


def party_of(caller: Caller) -> tuple[str, str | int]:
    """Return the party that shares one part: a tenant, or a user with all sessions, or a token."""
    if caller.tenant is not None:
        return "tenant", caller.tenant
    if caller.user_id is not None:
        return "user", caller.user_id
    return "token", caller.credential.id


def _ended(*, is_session: bool) -> str:
    if is_session:
        return "the session has ended: sign in again"
    return "the token is unknown, expired or revoked"


def _unauthorized(detail: str) -> Problem:
    return Problem(
        HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": 'Bearer realm="underpass"'}
    )
