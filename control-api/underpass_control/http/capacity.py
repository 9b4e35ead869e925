"""A beam's capacity over time, as weather at the feeder changes it."""

from __future__ import annotations

import hashlib
import itertools
import json
from http import HTTPStatus

from sqlalchemy import delete, insert, select
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import CapacityStep, Link
from underpass_control.access.audit import Changed
from underpass_control.http import plan_models as models
from underpass_control.http.conditions import check_shown, etag
from underpass_control.http.endpoint import MIDDLE, OPERATORS, READERS, Answer, Call, Endpoint
from underpass_control.http.plans import known_beam
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import milliseconds, moment_of
from underpass_control.planning.terms import terms_of
from underpass_control.storage import interventions, scope
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database
from underpass_control.storage.models import CapacityStep as Table

# By link, a beam's steps as they are set: the time (ms) and the rate (bit/s) of each.
Steps = dict[str, list[list[int]]]


class CapacityOfBeam:
    """The endpoints of a beam's capacity."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        path = "/v1/beams/{beam}/capacity"
        return [
            Endpoint(
                "GET",
                path,
                "A beam's capacity over time",
                self._get,
                READERS,
                tenancy=Tenancy.SHARED,
                answers=models.Capacity,
            ),
            Endpoint(
                "PUT",
                path,
                "Set a beam's capacity over time, instead of what was set before",
                self._put,
                OPERATORS,
                headers=["If-Match"],
                body=models.CapacityBody,
                most=MIDDLE,
                answers=models.Capacity,
            ),
        ]

    async def _get(self, call: Call) -> Answer:
        # All callers see the capacity that a beam's maintenance leaves, though tenants do not see
        # the intervention itself.
        with scope.within(None):
            async with self._database.reading() as connection:
                beam = await known_beam(connection, call)
                return await self._answer(connection, beam, await _steps(connection, beam))

    async def _put(self, call: Call) -> Answer:
        body = call.body(models.CapacityBody)
        steps = {Link.FORWARD: body.forward, Link.RETURN: body.return_}
        rows: list[dict[str, object]] = []
        for link, of in steps.items():
            times = [milliseconds(step.from_) for step in of]
            if any(after <= before for before, after in itertools.pairwise(times)):
                detail = f"the steps of the {link.value} link are not in ascending order"
                raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
            rows += [
                {"link": link.value, "from_ms": from_ms, "rate_bps": step.rate_bps}
                for from_ms, step in zip(times, of, strict=True)
            ]
        async with self._changes.transaction() as (connection, publish):
            # A concurrent request must replace these steps, not add to them.
            await interventions.lock(connection, call.path["beam"])
            beam = await known_beam(connection, call)
            before = await _steps(connection, beam)
            check_shown(call, _revision(before))
            await connection.execute(delete(Table).where(Table.beam_id == beam))
            if rows:
                await connection.execute(insert(Table), [{**row, "beam_id": beam} for row in rows])
            publish({"kind": "beam", "beam": beam, "action": "capacity"})
            after = await _steps(connection, beam)
            target = f"/v1/beams/{beam}/capacity"
            await call.record(connection, Changed("set", target, None, before, after))
            return await self._answer(connection, beam, after)

    async def _answer(self, connection: AsyncConnection, beam: str, steps: Steps) -> Answer:
        model = await _shown(connection, beam, self._database.clock.now_ms())
        return Answer(model, HTTPStatus.OK, {"ETag": etag(_revision(steps))})


def _revision(steps: Steps) -> str:
    """Return what names a beam's steps as they are set, whatever it carries now."""
    return hashlib.sha256(json.dumps(steps).encode()).hexdigest()[:16]


async def _steps(connection: AsyncConnection, beam: str) -> Steps:
    query = select(Table.link, Table.from_ms, Table.rate_bps).where(Table.beam_id == beam)
    steps: Steps = {link.value: [] for link in Link}
    for link, from_ms, rate_bps in await connection.execute(query.order_by(Table.from_ms)):
        steps[link].append([from_ms, rate_bps])
    return steps


async def _shown(connection: AsyncConnection, beam: str, now_ms: int) -> models.Capacity:
    terms = await terms_of(connection, beam, now_ms)
    assert terms is not None, "the beam has just been read"
    steps = {
        link.value: [
            models.Step.model_validate({"from": moment_of(one.from_ms), "rate_bps": one.rate_bps})
            for one in terms.set_capacity[link][1:]
        ]
        for link in Link
    }
    now = {f"{link.value}_now_bps": _at(terms.capacity[link], now_ms) for link in Link}
    return models.Capacity.model_validate({"beam": beam, **steps, **now})


def _at(steps: tuple[CapacityStep, ...], now_ms: int) -> int:
    return [step.rate_bps for step in steps if step.from_ms <= now_ms][-1]
