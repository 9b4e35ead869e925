"""Callers: their tokens are looked up, remembered for a while, and watched while a stream lasts."""

from __future__ import annotations

import asyncio
import math
import re
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from http import HTTPStatus

import structlog
from aiohttp import hdrs, web

from underpass_control.access import LONGEST_TOKEN, Caller, find_caller, in_force
from underpass_control.http.limits import Buckets, client_address
from underpass_control.http.problem import Problem
from underpass_control.settings import Settings
from underpass_control.storage.database import Database, DatabaseLostError

_LOG = structlog.get_logger()
# Tokens in use are looked up again so often: a revoked one ends within a second.
_CHECK_EVERY_S = 0.5
_CHECK_WITHIN_S = 5.0
# Tokens that have been used within this time are checked; one that was checked within it need not
# be looked up.
_TOKEN_KEPT_MS = 5_000
_MOST_TOKENS_KEPT = 10_000
_AT_ONCE = 1_000
# What a limit lets through at once, in seconds of its rate.
_BURST_S = 4
_TOKEN = re.compile(rf"[A-Za-z0-9_-]{{1,{LONGEST_TOKEN}}}")


class TokenEndedError(Exception):
    """The token that somebody follows with has expired, or is revoked."""


@dataclass(slots=True)
class _Known:
    caller: Caller
    # When it was last found to be in force, and when it was last shown.
    checked_ms: int
    used_ms: int

    def is_fresh(self, now_ms: int) -> bool:
        """Tell whether it need not be looked up again."""
        expires_ms = self.caller.expires_ms
        expired = expires_ms is not None and expires_ms <= now_ms
        return not expired and now_ms - self.checked_ms < _TOKEN_KEPT_MS


class Callers:
    """Says who calls, and refuses who calls too often.

    Requests with a known token count against that token. All others count against the address that
    they come from: those without a token, and those whose token has to be looked up and is unknown.
    So whoever guesses costs nobody else anything, and the database little.
    """

    def __init__(self, database: Database, settings: Settings) -> None:
        # A connection of its own: whatever waits for the others, a revoked token is noticed.
        self._database = Database(database.url, pool_size=1)
        self._trusted = settings.trusted_proxies
        self._of_token = Buckets(
            settings.token_requests_per_s, _BURST_S * settings.token_requests_per_s
        )
        self._of_address = Buckets(
            settings.address_requests_per_s, _BURST_S * settings.address_requests_per_s
        )
        self._known: OrderedDict[str, _Known] = OrderedDict()
        # Tokens that are being looked up.
        self._looked_up: dict[str, asyncio.Task[Caller | None]] = {}
        # The streams that each token holds open.
        self._streams: dict[int, set[asyncio.Timeout]] = {}
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Watch the tokens in use; `close` ends it."""
        self._task = asyncio.create_task(self._watch(), name="tokens")

    async def close(self) -> None:
        """Watch no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._database.close()

    def admit(self, request: web.Request) -> None:
        """Let a request in that needs no token.

        Raises:
            Problem: 429, there have been too many from its address.
        """
        _refuse(self._of_address.take(self._address(request), time.monotonic()))

    async def authenticate(self, request: web.Request) -> Caller:
        """Return who makes a request, by its bearer token.

        Raises:
            Problem: 401, it has no token in force; 429, there have been too many.
        """
        scheme, _, text = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
        if scheme.lower() != "bearer" or not text:
            self.admit(request)
            raise _unauthorized("this needs a bearer token")
        if not _TOKEN.fullmatch(text):
            self.admit(request)
            raise _unauthorized(_UNKNOWN)
        known = self._known.get(text)
        if known is None:
            return await self._guessed(request, text)
        _refuse(self._of_token.take(known.caller.token_id, time.monotonic()))
        self._known.move_to_end(text)
        now_ms = time.time_ns() // 1_000_000
        known.used_ms = now_ms
        if known.is_fresh(now_ms):
            return known.caller
        # It has not been used for a while: whether it still is in force is not known.
        return await self._look_up(text)

    def may_stream(self, caller: Caller, open_streams: int, most: int) -> None:
        """Make sure that there is room for another stream of a kind.

        One token has half of them at most: whoever has it locks nobody else out.

        Raises:
            Problem: 503, there are too many; 429, this token has too many.
        """
        later = {"Retry-After": "10"}
        if open_streams >= most:
            detail = f"{most} streams are open already"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=later)
        if len(self._streams.get(caller.token_id, ())) >= most // 2:
            detail = f"{most // 2} streams are open with this token already"
            raise Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers=later)

    @asynccontextmanager
    async def while_in_force(self, caller: Caller) -> AsyncIterator[None]:
        """Do something for as long as a caller's token is in force, whatever it waits for.

        Raises:
            TokenEndedError: It no longer is.
        """
        limit = asyncio.timeout(None)
        try:
            async with limit:
                streams = self._streams.setdefault(caller.token_id, set())
                streams.add(limit)
                try:
                    yield
                finally:
                    streams.discard(limit)
                    if not streams:
                        self._streams.pop(caller.token_id, None)
        except TimeoutError as error:
            if not limit.expired():
                raise
            raise TokenEndedError(_UNKNOWN) from error

    async def _guessed(self, request: web.Request, text: str) -> Caller:
        """Return the caller of a token that is not known here, and perhaps nobody's."""
        # Counted before it is looked up, so that many guesses at once are refused, too.
        address = self._address(request)
        counted = text not in self._looked_up
        if counted:
            _refuse(self._of_address.take(address, time.monotonic()))
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
        """Look a token up; all who show it at once wait for one query."""
        task = self._looked_up.get(text)
        if task is None:
            task = asyncio.create_task(self._find(text))
            self._looked_up[text] = task
            task.add_done_callback(lambda _: self._looked_up.pop(text, None))
        caller = await asyncio.shield(task)
        if caller is None:
            raise _unauthorized(_UNKNOWN)
        return caller

    async def _find(self, text: str) -> Caller | None:
        now_ms = time.time_ns() // 1_000_000
        async with self._database.reading() as connection:
            caller = await find_caller(connection, text, now_ms)
        if caller is None:
            self._known.pop(text, None)
        else:
            self._known[text] = _Known(caller, now_ms, now_ms)
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
                # Whatever it is, the next check must come: streams end by it.
                _LOG.exception("tokens are not checked")

    async def _check_used(self, now_ms: int) -> None:
        # Before anything waits for the database.
        self._end(self._expired(now_ms))
        used = {
            known.caller.token_id
            for known in self._known.values()
            if now_ms - known.used_ms < _TOKEN_KEPT_MS
        }
        ids = list(used | self._streams.keys())
        for start in range(0, len(ids), _AT_ONCE):
            await self._check(ids[start : start + _AT_ONCE], now_ms)

    async def _check(self, tokens: Sequence[int], now_ms: int) -> None:
        async with asyncio.timeout(_CHECK_WITHIN_S), self._database.reading() as connection:
            good = await in_force(connection, tokens, now_ms)
        for known in self._known.values():
            if known.caller.token_id in good:
                known.checked_ms = now_ms
        self._end(set(tokens) - good)

    def _expired(self, now_ms: int) -> set[int]:
        return {
            one.caller.token_id
            for one in self._known.values()
            if one.caller.expires_ms is not None and one.caller.expires_ms <= now_ms
        }

    def _end(self, tokens: Collection[int]) -> None:
        if not tokens:
            return
        for text in [t for t, one in self._known.items() if one.caller.token_id in tokens]:
            del self._known[text]
        now_s = asyncio.get_running_loop().time()
        for token in tokens:
            for limit in self._streams.pop(token, ()):
                limit.reschedule(now_s)

    def _address(self, request: web.Request) -> str:
        forwarded = ",".join(request.headers.getall("X-Forwarded-For", ()))
        return client_address(request.remote, forwarded, self._trusted)


_UNKNOWN = "the token is unknown, expired or revoked"


def _refuse(wait_s: float) -> None:
    if wait_s > 0:
        later = {"Retry-After": str(math.ceil(wait_s))}
        detail = "too many requests: try again later"
        raise Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers=later)


def _unauthorized(detail: str) -> Problem:
    return Problem(
        HTTPStatus.UNAUTHORIZED, detail, headers={"WWW-Authenticate": 'Bearer realm="underpass"'}
    )
