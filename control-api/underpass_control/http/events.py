"""Server-sent events: everything that changes, as it changes."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http import HTTPStatus
from typing import Annotated

from aiohttp import web
from pydantic import Field, field_validator

from underpass_control.access import Caller, Role
from underpass_control.events import Cut, Events, Filter, Follower, frame
from underpass_control.http import models
from underpass_control.http.endpoint import EVERYBODY, Authenticate, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.metrics import Metrics

KINDS = (
    "beam",
    "terminal",
    "positions",
    "links",
    "blockages",
    "announcements",
    "obstructions",
    "ledger",
    "plans",
    "acknowledgements",
    "lease",
    "opensand",
)
MOST_FOLLOWERS = 2_000
# What a follower's connection buffers here at most.
_MOST_BYTES = 16_384
# A comment keeps NATs and proxies from forgetting the connection, and finds those who have gone.
_QUIET_S = 15.0
# Events of so long go out together: a thousand followers are woken ten times a second at most.
_GATHER_S = 0.1
_WRITE_WITHIN_S = 30.0


class EventQuery(models.Model):
    """Which events: of some kinds (with commas between), of one terminal."""

    kinds: Annotated[str, Field(max_length=200)] | None = None
    terminal: models.NodeNumber | None = None

    @field_validator("kinds")
    @classmethod
    def _known(cls, value: str | None) -> str | None:
        if value is not None and not set(value.split(",")) <= set(KINDS):
            raise ValueError(f"kinds are {', '.join(KINDS)}")
        return value


class EventStreams:
    """The endpoint of events."""

    def __init__(self, events: Events, metrics: Metrics, authenticate: Authenticate) -> None:
        self._events = events
        self._metrics = metrics
        self._authenticate = authenticate
        self._followers = 0

    def endpoints(self) -> list[Endpoint]:
        """Return it."""
        return [
            Endpoint(
                "GET",
                "/v1/events",
                "Follow what changes, as server-sent events; the last one, `cut`, says why it ends",
                self._follow,
                EVERYBODY,
                query=EventQuery,
                headers=["Last-Event-ID"],
                media_type="text/event-stream",
            )
        ]

    async def _follow(self, call: Call) -> web.StreamResponse:
        wanted = _filter(call.query(EventQuery), call.known_caller)
        if self._followers >= MOST_FOLLOWERS:
            detail = f"{MOST_FOLLOWERS} follow already"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "10"})
        headers = {"Content-Type": "text/event-stream", "Cache-Control": "no-store"}
        response = web.StreamResponse(headers=headers)
        # Before anything is answered: what happens from then on is followed.
        follower = self._begin(wanted, call.request.headers.get("Last-Event-ID"))
        self._followers += 1
        self._metrics.followers.set(self._followers)
        try:
            await response.prepare(call.request)
            if call.request.transport is not None:
                call.request.transport.set_write_buffer_limits(_MOST_BYTES)
            await self._send(response, follower, call.request)
        except (ConnectionError, TimeoutError):
            # Gone, or not reading: there is nobody to tell.
            if call.request.transport is not None:
                call.request.transport.abort()
        finally:
            self._followers -= 1
            self._metrics.followers.set(self._followers)
        return response

    def _begin(self, wanted: Filter, last: str | None) -> Follower | Cut:
        try:
            return self._events.follow(wanted, last or None)
        except Cut as cut:
            return cut

    async def _send(
        self, response: web.StreamResponse, begun: Follower | Cut, request: web.Request
    ) -> None:
        try:
            follower = _begun(begun)
            await _write(response, b": follows\n" + _quiet(follower))
            while True:
                try:
                    await asyncio.wait_for(follower.news(), _QUIET_S)
                except TimeoutError:
                    await self._authenticate(request)
                    await _write(response, _quiet(follower))
                    continue
                while pending := follower.pending(_MOST_BYTES):
                    await _write(response, pending)
                await asyncio.sleep(_GATHER_S)
        except Cut as cut:
            self._metrics.followers_cut.inc()
            reason, resumable = str(cut), cut.resumable
        except Problem as problem:
            # The token has expired, or is revoked.
            reason, resumable = problem.detail, True
        # An empty id: the client forgets the last one, and begins anew.
        await _write(response, frame("cut", {"reason": reason}, None if resumable else ""))
        with suppress(ConnectionError):
            await response.write_eof()


def _begun(begun: Follower | Cut) -> Follower:
    if isinstance(begun, Cut):
        raise begun
    return begun


def _quiet(follower: Follower) -> bytes:
    """Return what keeps a quiet connection: how far the events are that it does not follow."""
    reached = follower.reached
    return f"id: {reached}\n\n".encode() if reached else b":\n\n"


async def _write(response: web.StreamResponse, data: bytes) -> None:
    async with asyncio.timeout(_WRITE_WITHIN_S):
        await response.write(data)


def _filter(query: EventQuery, caller: Caller) -> Filter:
    if caller.role is Role.TERMINAL and query.terminal not in (None, caller.node):
        raise Problem(HTTPStatus.FORBIDDEN, "a terminal sees its own data only")
    terminal = caller.node if caller.role is Role.TERMINAL else query.terminal
    kinds = None if query.kinds is None else frozenset(query.kinds.split(","))
    return Filter(kinds, terminal)
