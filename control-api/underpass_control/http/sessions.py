"""Signing in and out, and the caller's own session."""

from __future__ import annotations

import math
import time
from collections.abc import Awaitable
from http import HTTPStatus
from typing import TypeVar

from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access import sessions
from underpass_control.access.audit import Actor, Changed
from underpass_control.access.caller import Caller, Credential, Kind
from underpass_control.access.passwords import BusyError, PasswordError, Passwords
from underpass_control.access.users import USER_NAME, change_user, lock_user, password_hash_of
from underpass_control.http import account_models as models
from underpass_control.http.callers import Callers
from underpass_control.http.endpoint import EVERYBODY, Answer, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.http.sign_in import SignInLimits
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import moment_of
from underpass_control.metrics import Metrics
from underpass_control.settings import Settings
from underpass_control.storage.database import Database, DatabaseLostError

_WRONG = "there is no user of that name with that password"
# A name that no user has.
_NOBODY = "-"

T = TypeVar("T")


class Sessions:
    """The endpoints of the caller's own session."""

    def __init__(
        self,
        database: Database,
        callers: Callers,
        passwords: Passwords,
        settings: Settings,
        metrics: Metrics,
    ) -> None:
        self._database = database
        self._callers = callers
        self._passwords = passwords
        self._lasts_ms = round(settings.session_lasts_s * 1000)
        self._idle_ms = round(settings.session_idle_s * 1000)
        self._metrics = metrics
        self._limits = SignInLimits()

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        one, conflict = "/v1/session", HTTPStatus.CONFLICT
        busy = HTTPStatus.SERVICE_UNAVAILABLE
        return [
            Endpoint(
                "POST",
                one,
                "Sign in: the answer sets the cookie of a new session",
                self._sign_in,
                None,
                recorded=True,
                body=models.SignInBody,
                answers=models.Session,
                status=HTTPStatus.CREATED,
                problems=[HTTPStatus.UNAUTHORIZED, busy],
            ),
            Endpoint(
                "GET",
                one,
                "Who asks: the user or token, its role and tenant",
                self._who,
                EVERYBODY,
                tenancy=Tenancy.SHARED,
                answers=models.Session,
            ),
            Endpoint(
                "DELETE",
                one,
                "Sign out: this session ends",
                self._sign_out,
                EVERYBODY,
                tenancy=Tenancy.SHARED,
                recorded=True,
                problems=[conflict],
            ),
            Endpoint(
                "DELETE",
                "/v1/sessions",
                "Sign out everywhere: all sessions of the user who asks end",
                self._sign_out_everywhere,
                EVERYBODY,
                tenancy=Tenancy.SHARED,
                recorded=True,
                answers=models.Ended,
                problems=[conflict],
            ),
            Endpoint(
                "PUT",
                # Beside `/v1/session`, so that the cookie of the new session is for the same paths.
                "/v1/password",
                "Change one's own password: all sessions end, and a new one begins",
                self._change_password,
                EVERYBODY,
                tenancy=Tenancy.SHARED,
                recorded=True,
                body=models.PasswordBody,
                answers=models.Session,
                problems=[conflict, busy],
            ),
        ]

    async def _sign_in(self, call: Call) -> Answer:
        body = call.body(models.SignInBody)
        name = body.name.strip().lower()
        name = name if USER_NAME.fullmatch(name) else _NOBODY
        hashed = await self._verified(call, name, body.password)
        before = self._callers.session_secret(call.request)
        left = None
        async with self._database.transaction() as connection:
            now_ms = time.time_ns() // 1_000_000
            await lock_user(connection, name)
            known = await password_hash_of(connection, name)
            if known is None or known != hashed:
                # Since the check, the user was removed or the password changed.
                raise _unauthorized()
            if before is not None:
                left = await sessions.find_session(connection, before, now_ms)
                if left is not None:
                    await sessions.end_session(connection, left.credential.id)
            secret = await self._begin(connection, known[0], now_ms)
            caller = await sessions.find_session(connection, secret, now_ms)
            assert caller is not None, "it has just begun"
            changed = Changed("sign in", "/v1/session", caller.tenant)
            actor = Actor(Kind.USER.value, known[0], name, call.address)
            await call.record(connection, changed, actor=actor)
        if left is not None:
            self._callers.forget(left.credential)
        self._metrics.sign_ins.labels("accepted").inc()
        return self._answer(call, caller, secret, HTTPStatus.CREATED)

    async def _who(self, call: Call) -> models.Session:
        return _shown(call.known_caller, self._callers.session_secret(call.request))

    async def _sign_out(self, call: Call) -> Answer:
        caller = _user(call)
        async with self._database.transaction() as connection:
            await sessions.end_session(connection, caller.credential.id)
            await call.record(connection, Changed("sign out", "/v1/session", caller.tenant))
        self._callers.forget(caller.credential)
        cookie = {"Set-Cookie": self._callers.cookie(call.request, "")}
        return Answer(None, HTTPStatus.NO_CONTENT, cookie)

    async def _sign_out_everywhere(self, call: Call) -> Answer:
        caller = _user(call)
        assert caller.user_id is not None
        async with self._database.transaction() as connection:
            ended = await sessions.end_sessions_of(connection, caller.user_id)
            await call.record(connection, Changed("sign out", "/v1/sessions", caller.tenant))
        self._forget(ended)
        cookie = {"Set-Cookie": self._callers.cookie(call.request, "")}
        return Answer(models.Ended(ended=len(ended)), HTTPStatus.OK, cookie)

    async def _change_password(self, call: Call) -> Answer:
        caller = _user(call)
        if caller.issuer is not None:
            raise Problem(HTTPStatus.CONFLICT, f"your password is kept by {caller.issuer}")
        body = call.body(models.PasswordBody)
        verified = await self._verified(call, caller.name, body.password, HTTPStatus.FORBIDDEN)
        try:
            hashed = await or_busy(self._passwords.hash(body.new_password))
        except PasswordError as error:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        async with self._database.transaction() as connection:
            await lock_user(connection, caller.name)
            if await password_hash_of(connection, caller.name) != verified:
                raise Problem(HTTPStatus.CONFLICT, "the user has been changed meanwhile")
            now_ms = time.time_ns() // 1_000_000
            ended = await change_user(connection, verified[0], {"password_hash": hashed})
            secret = await self._begin(connection, verified[0], now_ms)
            began = await sessions.find_session(connection, secret, now_ms)
            assert began is not None, "it has just begun"
            target = "/v1/password"
            await call.record(connection, Changed("set", target, caller.tenant))
        self._forget(ended)
        return self._answer(call, began, secret, HTTPStatus.OK)

    async def _verified(
        self,
        call: Call,
        name: str,
        password: str,
        refusal: HTTPStatus = HTTPStatus.UNAUTHORIZED,
    ) -> tuple[int, str]:
        """Verify a password; return the user's number and hash."""
        wait_s = self._limits.take(name, call.address, time.monotonic())
        if wait_s > 0:
            self._metrics.sign_ins.labels("refused").inc()
            later = {"Retry-After": str(math.ceil(wait_s))}
            detail = "too many tries to sign in have failed: try again later"
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers=later)
        try:
            async with self._database.reading() as connection:
                known = await password_hash_of(connection, name)
            hashed = None if known is None else known[1]
            right = await or_busy(self._passwords.is_right(password, hashed))
        except (DatabaseLostError, Problem):
            # The password may have been right; the client is asked to try again.
            self._limits.take_back(name, call.address, time.monotonic())
            raise
        if not right or known is None:
            self._metrics.sign_ins.labels("failed").inc()
            raise (
                _unauthorized()
                if refusal is HTTPStatus.UNAUTHORIZED
                else Problem(refusal, "the present password is another")
            )
        self._limits.take_back(name, call.address, time.monotonic())
        return known

    async def _begin(self, connection: AsyncConnection, user_id: int, now_ms: int) -> str:
        return await sessions.begin_session(
            connection, user_id, now_ms=now_ms, lasts_ms=self._lasts_ms, idle_ms=self._idle_ms
        )

    def _answer(self, call: Call, caller: Caller, secret: str, status: HTTPStatus) -> Answer:
        headers = {
            "Set-Cookie": self._callers.cookie(call.request, secret),
            "Cache-Control": "no-store",
        }
        return Answer(_shown(caller, secret), status, headers)

    def _forget(self, ended: list[int]) -> None:
        for one in ended:
            self._callers.forget(Credential(Kind.USER, one))


async def or_busy(work: Awaitable[T]) -> T:
    """Wait for a password to be hashed or verified.

    Raises:
        Problem: 503, too many wait already.
    """
    try:
        return await work
    except BusyError as error:
        later = {"Retry-After": "3"}
        raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, str(error), headers=later) from error


def _user(call: Call) -> Caller:
    caller = call.known_caller
    if caller.user_id is None:
        raise Problem(HTTPStatus.CONFLICT, "a token has no session: it is revoked instead")
    return caller


def _shown(caller: Caller, secret: str | None) -> models.Session:
    expires = caller.expires_ms
    return models.Session(
        kind=caller.credential.kind.value,
        name=caller.name,
        role=caller.role.value,
        tenant=caller.tenant,
        node=caller.node,
        expires=None if expires is None else moment_of(expires),
        issuer=caller.issuer,
        csrf_token=None if secret is None else sessions.csrf_token_of(secret),
    )


def _unauthorized() -> Problem:
    return Problem(HTTPStatus.UNAUTHORIZED, _WRONG)
