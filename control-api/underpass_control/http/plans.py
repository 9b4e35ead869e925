"""Plans, as operators read them; the nodes that have acknowledged them, and their planner."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus
from typing import Any

from aiohttp import web
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Link
from underpass_control.http import plan_models as models
from underpass_control.http.at_once import InTurn
from underpass_control.http.conditions import etag, is_known
from underpass_control.http.cursor import next_page, number_after
from underpass_control.http.endpoint import READERS, Call, Endpoint
from underpass_control.http.models import Page
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import milliseconds, moment_of
from underpass_control.planning import acknowledgements, lease, stored
from underpass_control.planning.shown import shown
from underpass_control.planning.stored import StoredPlan
from underpass_control.storage import registry
from underpass_control.storage.database import Database
from underpass_control.storage.models import Beam

# Plans read and rendered for readers at a time: one has up to some MB, and takes some ms of the
# processor or more. So many other requests may wait.
_AT_ONCE = 2
_MOST_WAITING = 1_024


class Plans:
    """The endpoints of a beam's plans."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns = InTurn(_AT_ONCE, _MOST_WAITING, "plans")

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        beam = "/v1/beams/{beam}"
        unchanged = [HTTPStatus.NOT_MODIFIED]
        return [
            Endpoint(
                "GET",
                beam + "/plans",
                "All plans of a link, without their lines",
                self._versions,
                READERS,
                query=models.PlansQuery,
                answers=models.Versions,
            ),
            Endpoint(
                "GET",
                beam + "/plans/{link}",
                "The newest plan of a link, or that which holds at a time",
                self._current,
                READERS,
                tenancy=Tenancy.VEHICLE,
                query=models.PlanQuery,
                answers=models.Plan,
                others=unchanged,
            ),
            Endpoint(
                "GET",
                beam + "/plans/{link}/{version}",
                "The plan of a version",
                self._of_version,
                READERS,
                tenancy=Tenancy.VEHICLE,
                query=models.VersionQuery,
                answers=models.Plan,
                others=unchanged,
            ),
            Endpoint(
                "GET",
                beam + "/plans/{link}/{version}/acknowledgements",
                "The nodes that have taken a plan over",
                self._acknowledgements,
                READERS,
                query=Page,
                answers=models.Acknowledgements,
            ),
            Endpoint(
                "GET",
                beam + "/lease",
                "Which process plans the beam",
                self._lease,
                READERS,
                answers=models.Lease,
            ),
        ]

    async def _versions(self, call: Call) -> models.Versions:
        query = call.query(models.PlansQuery)
        async with self._database.reading() as connection:
            rows = await stored.versions(
                connection,
                await known_beam(connection, call),
                Link(query.link),
                before=number_after(query.cursor),
                limit=query.limit,
            )
        last = next_page(rows, query.limit, lambda row: row.version)
        found = [
            models.Version(
                plan=row.version,
                issued=moment_of(row.issued_ms),
                start=moment_of(row.start_ms),
                end=moment_of(row.end_ms),
                reason=row.reason,
            )
            for row in rows
        ]
        return models.Versions(plans=found, next=last)

    async def _current(self, call: Call) -> web.Response:
        query = call.query(models.PlanQuery)
        link = _link(call)
        async with self._turns.one(call):
            async with self._database.reading() as connection:
                beam = await known_beam(connection, call)
                if query.at is None:
                    plan = await stored.current_plan(connection, beam, link)
                else:
                    plan = await stored.plan_at(connection, beam, link, milliseconds(query.at))
            if plan is None:
                when = "yet" if query.at is None else "at that time"
                raise Problem(HTTPStatus.NOT_FOUND, f"beam {beam} has no {link.value} plan {when}")
            return await self._answer(call, plan, query.terminal)

    async def _of_version(self, call: Call) -> web.Response:
        query = call.query(models.VersionQuery)
        async with self._turns.one(call):
            async with self._database.reading() as connection:
                plan = await _plan(connection, call)
            return await self._answer(call, plan, query.terminal)

    async def _acknowledgements(self, call: Call) -> models.Acknowledgements:
        query = call.query(Page)
        version, link = call.path_number("version"), _link(call)
        async with self._database.reading() as connection:
            beam = await known_beam(connection, call)
            if not await stored.has_version(connection, beam, link, version):
                raise _no_version(beam, link, version)
            found = await acknowledgements.of_plan(
                connection,
                beam,
                link,
                version,
                after=number_after(query.cursor),
                limit=query.limit,
            )
        last = next_page(found, query.limit, lambda one: one.node)
        shown_ones = [
            models.Acknowledgement(node=one.node, applied=moment_of(one.applied_ms))
            for one in found
        ]
        return models.Acknowledgements(acknowledgements=shown_ones, next=last)

    async def _lease(self, call: Call) -> models.Lease:
        async with self._database.reading() as connection:
            beam = await known_beam(connection, call)
            held = await lease.holder_of(connection, beam)
        if held is None:
            return models.Lease(beam=beam)
        return models.Lease(beam=beam, holder=held.holder, fence=held.fence, left_ms=held.left_ms)

    async def _answer(self, call: Call, plan: StoredPlan, terminal: int | None) -> web.Response:
        if call.known_caller.tenant is not None and terminal is not None:
            async with self._database.reading() as connection:
                since_ms = await registry.own_since_ms(connection, terminal)
            if since_ms is None or plan.end_ms <= since_ms:
                raise _not_in_plan(terminal)
        tag = etag(plan.version)
        if is_known(call, tag):
            return web.Response(status=HTTPStatus.NOT_MODIFIED.value, headers={"ETag": tag})
        try:
            text = await asyncio.to_thread(_text, plan, terminal)
        except KeyError as error:
            raise _not_in_plan(terminal) from error
        return web.Response(text=text, content_type="application/json", headers={"ETag": tag})


async def known_beam(connection: AsyncConnection, call: Call) -> str:
    """Return the beam in a path, after checking that it exists."""
    beam = call.path["beam"]
    if await registry.get(connection, Beam, beam) is None:
        raise Problem(HTTPStatus.NOT_FOUND, f"there is no beam {beam}")
    return beam


async def _plan(connection: AsyncConnection, call: Call) -> StoredPlan:
    version, link = call.path_number("version"), _link(call)
    beam = await known_beam(connection, call)
    plan = await stored.plan_of_version(connection, beam, link, version)
    if plan is None:
        raise _no_version(beam, link, version)
    return plan


def _no_version(beam: str, link: Link, version: int) -> Problem:
    detail = f"beam {beam} has no {link.value} plan {version}, or no longer"
    return Problem(HTTPStatus.NOT_FOUND, detail)


def _not_in_plan(terminal: int | None) -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, f"the plan has no terminal {terminal}")


def _link(call: Call) -> Link:
    try:
        return Link(call.path["link"])
    except ValueError as error:
        raise Problem(HTTPStatus.NOT_FOUND, "a link is forward or return") from error


def _text(plan: StoredPlan, terminal: int | None) -> str:
    document: dict[str, Any] = shown(plan.made, plan.version, terminal)
    return json.dumps({**document, "reason": plan.reason}, separators=(",", ":"))
