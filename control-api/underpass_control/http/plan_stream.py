"""The stream of plans, settings and questions to a gateway (`docs/control-protocol.md`)."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Mapping

from aiohttp import web

from dama.planner import Link
from underpass_control.access.caller import Caller
from underpass_control.http.callers import Callers, TokenEndedError
from underpass_control.http.endpoint import GATEWAYS, Call, Endpoint
from underpass_control.http.sse import EventResponse
from underpass_control.metrics import Metrics
from underpass_control.planning.newest_plans import Key, NewestPlans
from underpass_control.questions import Inbox, Questions
from underpass_control.storage import settings
from underpass_control.storage.database import Database, DatabaseLostError
from underpass_control.tracing import Traces

MOST_STREAMS = 2_000
# A comment keeps NATs and proxies from forgetting the connection, and detects lost clients.
_QUIET_S = 15.0
# The most that a connection buffers here; a document may be some MB.
_MOST_BYTES = 65_536
_DATABASE_AGAIN_S = 0.5
# One link of `Last-Event-ID`: beam, link, version. Versions have 16 digits at most.
_PART = re.compile(r"([a-z0-9][a-z0-9_-]{0,63})\.(forward|return)\.([0-9]{1,16})")
_MOST_ID = 4_096


class PlanStreams:
    """The endpoint of plans, settings and questions for gateways."""

    def __init__(
        self,
        database: Database,
        newest_plans: NewestPlans,
        questions: Questions,
        metrics: Metrics,
        callers: Callers,
        traces: Traces,
    ) -> None:
        self._database = database
        self._newest_plans = newest_plans
        self._questions = questions
        self._metrics = metrics
        self._callers = callers
        self._traces = traces
        self._open = 0
        self._ending = asyncio.Event()

    def endpoints(self) -> list[Endpoint]:
        """Return it."""
        return [
            Endpoint(
                "GET",
                "/v1/gateways/{gateway}/plans",
                "Follow the plans and settings of a gateway's terminals, and its own settings, as "
                "server-sent events",
                self._follow,
                GATEWAYS,
                media_type="text/event-stream",
            )
        ]

    def close(self) -> None:
        """End all streams."""
        self._ending.set()

    async def _follow(self, call: Call) -> web.StreamResponse:
        gateway, caller = call.own_gateway(), call.known_caller
        with self._callers.one_stream(caller, self._open, MOST_STREAMS):
            return await self._followed(call, caller, gateway)

    async def _followed(self, call: Call, caller: Caller, gateway: int) -> web.StreamResponse:
        out = EventResponse(call.request, _MOST_BYTES)
        sent = read_id(call.request.headers.get("Last-Event-ID", ""))
        self._open += 1
        self._metrics.plan_streams.set(self._open)
        try:
            await out.open()
            with self._questions.inbox(gateway) as inbox:
                async with self._callers.while_in_force(caller):
                    await self._send(out, gateway, sent, inbox)
            await out.cut("the service ends")
        except TokenEndedError as error:
            await out.cut(str(error))
        except (ConnectionError, TimeoutError):
            # The gateway will connect again.
            out.abort()
        finally:
            self._open -= 1
            self._metrics.plan_streams.set(self._open)
        return out.response

    async def _send(
        self, out: EventResponse, gateway: int, sent: dict[Key, int], inbox: Inbox
    ) -> None:
        """Send each new plan, new settings and questions, until the service ends."""
        await out.send(b": plans\n\n")
        # The versions of settings sent, by node; and how often settings had changed by then.
        settings_sent: dict[settings.Whose, int] = {}
        looked = -1
        while not self._ending.is_set():
            news = self._newest_plans.news_event()
            # Questions first: their askers wait, and a plan may be some MB.
            await _send_questions(out, inbox)
            try:
                await self._send_new(out, gateway, sent)
                changed = self._newest_plans.settings_changed
                if changed != looked:
                    await self._send_settings(out, gateway, settings_sent)
                    looked = changed
            except DatabaseLostError:
                # The gateway keeps its present plan, and the stream stays open.
                await asyncio.sleep(_DATABASE_AGAIN_S)
                continue
            if not await self._wait(news, inbox.news):
                await out.send(b":\n\n")

    async def _send_new(self, out: EventResponse, gateway: int, sent: dict[Key, int]) -> None:
        links = await self._newest_plans.links_of(gateway)
        for key in sent.keys() - set(links):
            del sent[key]
        for key in links:
            outgoing = await self._newest_plans.newest(key, gateway, sent.get(key, 0))
            if outgoing is None:
                continue
            sent[key] = outgoing.version
            head = f"id: {write_id(sent)}\nevent: plan\ndata: ".encode()
            with self._traces.push(key[0], key[1].value, outgoing.version, gateway):
                await out.send(head + outgoing.document + b"\n\n")

    async def _send_settings(
        self, out: EventResponse, gateway: int, sent: dict[settings.Whose, int]
    ) -> None:
        """Send the settings of a gateway and its terminals that are newer than those sent.

        A stream begins with all of them; the gateway ignores those that it has already.
        """
        async with self._database.reading() as connection:
            whose, found = await settings.of_gateway(connection, gateway, sent)
        for gone in sent.keys() - whose:
            del sent[gone]
        for one in found:
            document = settings.wire(one.node, one.version, one.document)
            await out.send(b"event: settings\ndata: " + document + b"\n\n")
            sent[one.node, one.is_own] = one.version

    async def _wait(self, *news: asyncio.Event) -> bool:
        """Wait for news or the end of the service; return False if neither comes for a while."""
        waits = [asyncio.ensure_future(one.wait()) for one in (*news, self._ending)]
        try:
            done, _ = await asyncio.wait(
                waits, timeout=_QUIET_S, return_when=asyncio.FIRST_COMPLETED
            )
        finally:
            for one in waits:
                one.cancel()
        return bool(done)


async def _send_questions(out: EventResponse, inbox: Inbox) -> None:
    for one in inbox.take():
        asked = {"question": one.id, "terminal": one.terminal, "limit": one.limit}
        data = json.dumps(asked, separators=(",", ":")).encode()
        await out.send(b"event: streams\ndata: " + data + b"\n\n")


def write_id(sent: Mapping[Key, int]) -> str:
    """Return the `id` for these versions; for some of them, if it would otherwise be too long."""
    parts: list[str] = []
    size = 0
    for (beam, link), version in sent.items():
        part = f"{beam}.{link.value}.{version}"
        size += len(part) + 1
        if size > _MOST_ID:
            break
        parts.append(part)
    return "~".join(parts)


def read_id(text: str) -> dict[Key, int]:
    """Read the versions that a gateway has; an invalid id counts as none."""
    found: dict[Key, int] = {}
    if len(text) <= _MOST_ID:
        for part in text.split("~"):
            match = _PART.fullmatch(part)
            if match:
                found[match[1], Link(match[2])] = int(match[3])
    return found
