"""Server-sent events: everything that changes, as it changes."""

from __future__ import annotations

import asyncio
from typing import Annotated

from aiohttp import web
from pydantic import Field, field_validator

from underpass_control.access.caller import Caller
from underpass_control.events import Cut, Events, Filter, Follower
from underpass_control.http import models
from underpass_control.http.callers import Callers, TokenEndedError
from underpass_control.http.endpoint import EVERYBODY, Call, Endpoint
from underpass_control.http.sse import EventResponse
from underpass_control.http.tenancy import Tenancy
from underpass_control.metrics import Metrics
from underpass_control.roles import Role

KINDS = (
    "beam",
    "terminal",
    "intervention",
    "rollout",
    "positions",
    "links",
    "blockages",
    "announcements",
    "alerts",
    "obstructions",
    "tiles",
    "ledger",
    "plans",
    "acknowledgements",
    "lease",
    "opensand",
    "settings",
)
MOST_FOLLOWERS = 2_000
# The most that a follower's connection buffers here.
_MOST_BYTES = 16_384
# A comment keeps NATs and proxies from forgetting the connection, and detects lost clients.
_QUIET_S = 15.0
# Events within this time are sent together: a thousand followers wake at most ten times a second.
_GATHER_S = 0.1


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

    def __init__(self, events: Events, metrics: Metrics, callers: Callers) -> None:
        self._events = events
        self._metrics = metrics
        self._callers = callers
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
                tenancy=Tenancy.ROWS,
                query=EventQuery,
                headers=["Last-Event-ID"],
                media_type="text/event-stream",
            )
        ]

    async def _follow(self, call: Call) -> web.StreamResponse:
        wanted = _filter(call.query(EventQuery), call.known_caller)
        with self._callers.one_stream(call.known_caller, self._followers, MOST_FOLLOWERS):
            return await self._followed(call, wanted)

    async def _followed(self, call: Call, wanted: Filter) -> web.StreamResponse:
        out = EventResponse(call.request, _MOST_BYTES)
        # Begin to follow before the answer, so that no event after it is missed.
        follower = self._begin(wanted, call.request.headers.get("Last-Event-ID"))
        self._followers += 1
        self._metrics.followers.set(self._followers)
        try:
            await out.open()
            await self._send(out, follower, call.known_caller)
        except (ConnectionError, TimeoutError):
            out.abort()
        finally:
            self._followers -= 1
            self._metrics.followers.set(self._followers)
        return out.response

    def _begin(self, wanted: Filter, last: str | None) -> Follower | Cut:
        try:
            return self._events.follow(wanted, last or None)
        except Cut as cut:
            return cut

    async def _send(self, out: EventResponse, begun: Follower | Cut, caller: Caller) -> None:
        try:
            async with self._callers.while_in_force(caller):
                await _follow(out, _begun(begun))
        except Cut as cut:
            self._metrics.followers_cut.inc()
            await out.cut(str(cut), resumable=cut.resumable)
        except TokenEndedError as error:
            await out.cut(str(error))


async def _follow(out: EventResponse, follower: Follower) -> None:
    await out.send(b": follows\n" + _quiet(follower))
    while True:
        try:
            # `asyncio.wait_for` of Python 3.11 loses a cancellation that comes with the news: the
            # stream would continue although its token has ended.
            async with asyncio.timeout(_QUIET_S):
                await follower.news()
        except TimeoutError:
            await out.send(_quiet(follower))
            continue
        while pending := follower.pending(_MOST_BYTES):
            await out.send(pending)
        await asyncio.sleep(_GATHER_S)


def _begun(begun: Follower | Cut) -> Follower:
    if isinstance(begun, Cut):
        raise begun
    return begun


def _quiet(follower: Follower) -> bytes:
    """Return the message that keeps a quiet connection open: the id of the newest event."""
    reached = follower.reached
    return f"id: {reached}\n\n".encode() if reached else b":\n\n"


def _filter(query: EventQuery, caller: Caller) -> Filter:
    terminal = caller.node if caller.role is Role.TERMINAL else query.terminal
    kinds = None if query.kinds is None else frozenset(query.kinds.split(","))
    return Filter(kinds, terminal, caller.tenant)
