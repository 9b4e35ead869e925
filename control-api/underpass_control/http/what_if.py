"""Planning without effect."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Hashable
from fractions import Fraction
from http import HTTPStatus

from aiohttp import web

from dama.planner import Blockage, CapacityStep, Link, PlanError, Request, plan
from underpass_control.http import plan_models as models
from underpass_control.http.at_once import AtOnce, Rotation
from underpass_control.http.callers import party_of
from underpass_control.http.endpoint import LARGE, READERS, Call, Endpoint
from underpass_control.http.plans import known_beam
from underpass_control.http.problem import Problem
from underpass_control.instants import milliseconds
from underpass_control.planning.published import published
from underpass_control.planning.shown import shown
from underpass_control.planning.terms import terms_of
from underpass_control.planning.what_if import Instead, basis_of, request_of
from underpass_control.storage.database import Database

# Questions that may be read, wait or be planned at a time; one is planned at a time, and each waits
# at most this long.
_MOST_AT_ONCE = 8
_WITHIN_S = 20.0
# The longest horizon of a plan.
_LONGEST_MS = 6 * 3_600_000
_DENOMINATOR = 1_000


class WhatIf:
    """The endpoint of questions."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._rotation = Rotation(1)
        self._asked = AtOnce(_MOST_AT_ONCE, "questions")

    def endpoints(self) -> list[Endpoint]:
        """Return it."""
        return [
            Endpoint(
                "POST",
                "/v1/beams/{beam}/what-if",
                "The plan that would be made if something were different, without effect",
                self._ask,
                READERS,
                body=models.WhatIfBody,
                most=LARGE,
                answers=models.WhatIf,
                problems=[HTTPStatus.UNPROCESSABLE_ENTITY],
            )
        ]

    async def _ask(self, call: Call) -> web.Response:
        body = call.body(models.WhatIfBody)
        instead, now_ms = _instead(body), self._database.clock.now_ms()
        # Take a place before reading anything: a plan of a large beam takes tenths of a second.
        if instead.end_ms is not None:
            _bound_end(instead.end_ms, now_ms)
        party = party_of(call.known_caller)
        with self._asked.one(party):
            request = await self._request(call, Link(body.link), instead, now_ms)
            text = await self._answer(party, request)
        return web.Response(text=text, content_type="application/json")

    async def _request(self, call: Call, link: Link, instead: Instead, now_ms: int) -> Request:
        async with self._database.reading() as connection:
            beam = await known_beam(connection, call)
            terms = await terms_of(connection, beam, now_ms)
            assert terms is not None, "the beam has just been read"
            basis = await basis_of(connection, beam, link, terms, now_ms)
        request = request_of(beam, link, basis, instead, now_ms)
        _bound_end(request.end_ms, now_ms)
        if len(request.blockages) > models.MOST_WHAT_IF_BLOCKAGES:
            detail = f"more than {models.MOST_WHAT_IF_BLOCKAGES} blockages are expected: give some"
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        return request

    async def _answer(self, party: Hashable, request: Request) -> str:
        try:
            async with asyncio.timeout(_WITHIN_S):
                await self._rotation.begin(party)
                # Even if its caller is gone, the next question waits until this one is done.
                return await asyncio.shield(asyncio.create_task(self._worked(request)))
        except TimeoutError as error:
            raise _busy(f"this takes longer than {_WITHIN_S:.0f} s now") from error
        except PlanError as error:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error

    async def _worked(self, request: Request) -> str:
        try:
            return await asyncio.to_thread(_work, request)
        finally:
            self._rotation.end()


def _instead(body: models.WhatIfBody) -> Instead:
    return Instead(
        end_ms=None if body.end is None else milliseconds(body.end),
        capacity=None
        if body.capacity is None
        else tuple(CapacityStep(milliseconds(one.from_), one.rate_bps) for one in body.capacity),
        terminals={one.terminal: _different(one) for one in body.terminals},
        blockages=None
        if body.blockages is None
        else tuple(
            Blockage(
                str(one.terminal), milliseconds(one.entry), milliseconds(one.exit), one.confidence
            )
            for one in body.blockages
        ),
        signalling_delay_ms=body.signalling_delay_ms,
        one_way_delay_ms=body.one_way_delay_ms,
        least_confidence=body.least_confidence,
    )


def _different(one: models.WhatIfTerminal) -> dict[str, object]:
    given = one.model_dump(exclude={"terminal", "greedy", "efficiency"}, exclude_none=True)
    if one.efficiency is not None:
        given["efficiency"] = Fraction(one.efficiency).limit_denominator(_DENOMINATOR)
    if one.greedy:
        given["demand_bps"] = None
    return given


def _bound_end(end_ms: int, now_ms: int) -> None:
    if end_ms - now_ms > _LONGEST_MS:
        detail = f"the plan would reach further than {_LONGEST_MS // 3_600_000} h"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


def _busy(detail: str) -> Problem:
    return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers={"Retry-After": "5"})


def _work(request: Request) -> str:
    made, _ = published(plan(request))
    document = shown(made, 0)
    del document["plan"]
    document["totals"] = [
        {"terminal": int(name), "bits": bits, "fair_bits": fair}
        for name, (bits, fair) in made.amounts(made.start_ms, made.end_ms).items()
    ]
    return json.dumps(document, separators=(",", ":"))
