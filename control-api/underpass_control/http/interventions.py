"""Interventions: operators override the planner for a time, and release that again.

A change or release has to show the present revision (`If-Match`). Two of the same kind and target
never overlap: of two operators at once, the second gets an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import CapacityStep, Link
from dama.prediction import Span
from underpass_control.access.audit import Changed
from underpass_control.access.caller import Caller
from underpass_control.http import intervention_models as models
from underpass_control.http.conditions import etag, is_shown, shows_none
from underpass_control.http.cursor import next_page, number_after
from underpass_control.http.endpoint import OPERATORS, READERS, Answer, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import milliseconds, moment_of, rfc3339
from underpass_control.planning.interventions import Kind
from underpass_control.planning.terms import terms_of
from underpass_control.storage import interventions, registry
from underpass_control.storage.changes import Changes, Publish
from underpass_control.storage.database import Database
from underpass_control.storage.models import Terminal

# Each of them costs time in every plan of the beam.
MOST_AHEAD = 50
_FURTHEST_MS = 366 * 86_400_000


class Interventions:
    """The endpoints of interventions."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        one = "/v1/interventions/{intervention}"
        conflict, conditional = HTTPStatus.CONFLICT, HTTPStatus.PRECONDITION_REQUIRED
        return [
            Endpoint(
                "GET",
                "/v1/interventions",
                "Freezes, rates, maintenance windows and withdrawn blockages",
                self._page,
                READERS,
                tenancy=Tenancy.ROWS,
                query=models.InterventionQuery,
                answers=models.InterventionList,
            ),
            Endpoint(
                "POST",
                "/v1/interventions",
                "Freeze a beam's lending, set a terminal's rate for a time, plan maintenance, or "
                "withdraw a blockage",
                self._add,
                OPERATORS,
                body=models.InterventionBody,
                answers=models.Intervention,
                status=HTTPStatus.CREATED,
                problems=[conflict],
            ),
            Endpoint(
                "GET",
                one,
                "An intervention",
                self._get,
                READERS,
                tenancy=Tenancy.ROWS,
                answers=models.Intervention,
            ),
            Endpoint(
                "PUT",
                one,
                "Change an intervention, if it is as `If-Match` says",
                self._change,
                OPERATORS,
                headers=["If-Match"],
                body=models.InterventionChange,
                answers=models.Intervention,
                problems=[conflict, conditional],
            ),
            Endpoint(
                "DELETE",
                one,
                "Release an intervention, if it is as `If-Match` says: it ends now, or if it has "
                "not begun is deleted",
                self._release,
                OPERATORS,
                headers=["If-Match"],
                problems=[conflict, conditional],
            ),
        ]

    async def _page(self, call: Call) -> models.InterventionList:
        query = call.query(models.InterventionQuery)
        now_ms = self._database.clock.now_ms()
        wanted = interventions.Wanted(
            query.beam, query.terminal, query.kind, None if query.ended else now_ms
        )
        async with self._database.reading() as connection:
            rows = await interventions.page(
                connection, wanted, after=number_after(query.cursor), limit=query.limit
            )
        last = next_page(rows, query.limit, lambda row: row.id)
        found = [_shown(row, now_ms, call.known_caller) for row in rows]
        return models.InterventionList(interventions=found, next=last)

    async def _get(self, call: Call) -> Answer:
        number = call.path_number("intervention")
        async with self._database.reading() as connection:
            row = await _known(connection, number)
        return self._answer(row, call)

    async def _add(self, call: Call) -> Answer:
        body = call.body(models.InterventionBody)
        now_ms = self._database.clock.now_ms()
        async with self._changes.transaction() as (connection, publish):
            values = await _values(connection, body, now_ms)
            beam = await _lock(connection, values)
            await _check(connection, beam, values, now_ms)
            if await interventions.count_ahead(connection, values, now_ms) >= MOST_AHEAD:
                detail = f"there are {MOST_AHEAD} of it that have not ended: release some"
                raise Problem(HTTPStatus.CONFLICT, detail)
            number = await interventions.add(connection, _set(values, call, now_ms))
            row = await _known(connection, number)
            await self._tell(connection, publish, call, "create", None, row)
        return self._answer(row, call, HTTPStatus.CREATED)

    async def _change(self, call: Call) -> Answer:
        number, body = call.path_number("intervention"), call.body(models.InterventionChange)
        now_ms = self._database.clock.now_ms()
        given = body.model_dump(exclude_unset=True)
        if "until" in given:
            until = body.until
            given["until_ms"] = None if until is None else milliseconds(until)
            del given["until"]
        async with self._changes.transaction() as (connection, publish):
            before = await _known(connection, number)
            _check_shown(call, before)
            _check_changeable(before, given, now_ms)
            beam = await _lock(connection, before._asdict())
            values = {**before._asdict(), **given}
            await _check(connection, beam, values, now_ms, but=number)
            if not await interventions.change(
                connection, number, before.revision, _set(given, call, now_ms)
            ):
                raise _changed_meanwhile(await _known(connection, number))
            row = await _known(connection, number)
            await self._tell(connection, publish, call, "set", before, row)
        return self._answer(row, call)

    async def _release(self, call: Call) -> Answer:
        number = call.path_number("intervention")
        now_ms = self._database.clock.now_ms()
        async with self._changes.transaction() as (connection, publish):
            before = await _known(connection, number)
            _check_shown(call, before)
            if before.until_ms <= now_ms:
                until = rfc3339(moment_of(before.until_ms))
                raise Problem(HTTPStatus.CONFLICT, f"it has ended already, at {until}")
            if before.from_ms > now_ms:
                done = await interventions.remove(connection, number, before.revision)
            else:
                # Never before it begins: it may have begun in this very millisecond.
                ended = {"until_ms": max(now_ms, before.from_ms + 1)}
                done = await interventions.change(
                    connection, number, before.revision, _set(ended, call, now_ms)
                )
            if not done:
                raise _changed_meanwhile(await _known(connection, number))
            after = await interventions.get(connection, number)
            await self._tell(connection, publish, call, "delete", before, after)
        return Answer(None, HTTPStatus.NO_CONTENT)

    async def _tell(
        self,
        connection: AsyncConnection,
        publish: Publish,
        call: Call,
        action: str,
        before: Row[Any] | None,
        after: Row[Any] | None,
    ) -> None:
        row = after or before
        assert row is not None
        event = {"kind": "intervention", "intervention": row.id, "beam": row.beam, "action": action}
        if row.terminal is not None:
            event["terminal"] = row.terminal
        publish({**event, "what": row.kind})
        was, now = (None if one is None else _state(one) for one in (before, after))
        target = f"/v1/interventions/{row.id}"
        await call.record(connection, Changed(action, target, row.tenant_id, was, now))

    def _answer(self, row: Row[Any], call: Call, status: HTTPStatus = HTTPStatus.OK) -> Answer:
        shown = _shown(row, self._database.clock.now_ms(), call.known_caller)
        return Answer(shown, status, {"ETag": etag(row.revision)})


async def _values(
    connection: AsyncConnection, body: models.InterventionBody, now_ms: int
) -> dict[str, Any]:
    """Return the columns of a new intervention; a withdrawal's come from its blockage."""
    from_ms = now_ms if body.from_ is None else milliseconds(body.from_)
    values: dict[str, Any] = {
        "kind": body.kind,
        "beam_id": body.beam,
        "terminal": body.terminal,
        "from_ms": max(from_ms, now_ms),
        "forward_bps": body.forward_bps,
        "return_bps": body.return_bps,
        "note": body.note,
    }
    if body.blockage is None:
        assert body.until is not None, "the model has made sure of it"
        return {**values, "until_ms": milliseconds(body.until)}
    row = await interventions.predicted(connection, body.blockage)
    if row is None:
        detail = f"no blockage {body.blockage} is expected now: it has come, or will not come"
        raise Problem(HTTPStatus.CONFLICT, detail)
    return {
        **values,
        "terminal": row.terminal,
        "until_ms": max(interventions.withdrawn_until_ms(row.exit_ms), now_ms + 1),
        "obstruction": row.obstruction,
        "entry_ms": row.entry_ms,
        "exit_ms": row.exit_ms,
    }


def _set(values: dict[str, Any], call: Call, now_ms: int) -> dict[str, Any]:
    return {**values, "set_by": call.known_caller.name, "set_ms": now_ms}


async def _lock(connection: AsyncConnection, values: dict[str, Any]) -> str:
    """Make other interventions on the same beam wait; return the beam."""
    beam = values["beam_id"]
    if beam is None:
        terminal = await registry.get(connection, Terminal, values["terminal"])
        if terminal is None:
            raise Problem(HTTPStatus.CONFLICT, f"there is no terminal {values['terminal']}")
        beam = terminal.beam_id
    if not await interventions.lock(connection, beam):
        raise Problem(HTTPStatus.CONFLICT, f"there is no beam {beam}")
    return str(beam)


async def _check(
    connection: AsyncConnection,
    beam: str,
    values: dict[str, Any],
    now_ms: int,
    *,
    but: int | None = None,
) -> None:
    """Check that an intervention may be set.

    Raises:
        Problem: 422, its times or rates are impossible; 409, it overlaps another one.
    """
    if values["until_ms"] <= max(values["from_ms"], now_ms):
        detail = "`until` is not after `from`, or is past"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    if values["until_ms"] > now_ms + _FURTHEST_MS:
        detail = f"`until` is further ahead than {_FURTHEST_MS // 86_400_000} days"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
    if values["kind"] == Kind.WITHDRAWAL:
        span = Span(values["obstruction"], values["entry_ms"], values["exit_ms"])
        node = values["terminal"]
        other = await interventions.withdrawal_of(connection, node, span, now_ms, but=but)
    else:
        other = await interventions.overlapping(connection, values, but=but)
    if other is not None:
        until = rfc3339(moment_of(other.until_ms))
        detail = (
            f"{other.set_by} has set a {other.kind} of it until {until}: change or release that "
            f"one, {other.id}"
        )
        raise Problem(HTTPStatus.CONFLICT, detail)
    if values["kind"] == Kind.RATE:
        await _check_rates(connection, beam, values, now_ms)


async def _check_rates(
    connection: AsyncConnection, beam: str, values: dict[str, Any], now_ms: int
) -> None:
    """Check that a rate leaves the other terminals their guaranteed and set rates all the time."""
    terms = await terms_of(connection, beam, now_ms)
    assert terms is not None, "the beam is locked"
    for link in Link:
        rate_bps = values[f"{link.value}_bps"]
        if rate_bps is None:
            continue
        span_ms = values["from_ms"], values["until_ms"]
        promised_bps = await interventions.promised_bps(
            connection, beam, link, values["terminal"], span_ms
        )
        least_bps = _least_bps(terms.set_capacity[link], max(span_ms[0], now_ms), span_ms[1])
        left_bps = max(least_bps - promised_bps, 0)
        if rate_bps > left_bps:
            detail = (
                f"the beam's {link.value} link has at most {left_bps} bit/s for it: in that time "
                f"it carries {least_bps} bit/s at the least, and others have {promised_bps} bit/s "
                "guaranteed or set"
            )
            raise Problem(HTTPStatus.CONFLICT, detail)


def _least_bps(steps: Sequence[CapacityStep], from_ms: int, until_ms: int) -> int:
    begun = [one.rate_bps for one in steps if one.from_ms <= from_ms]
    later = (one.rate_bps for one in steps if from_ms < one.from_ms < until_ms)
    return min((begun[-1], *later))


def _check_changeable(row: Row[Any], given: dict[str, Any], now_ms: int) -> None:
    kind, of_terminal = row.kind, row.terminal is not None
    detail = None
    has_rates = any(given.get(name) is not None for name in ("forward_bps", "return_bps"))
    after = {**row._asdict(), **given}
    has_none = after["forward_bps"] is None and after["return_bps"] is None
    if row.until_ms <= now_ms:
        detail = "it has ended: make a new one"
    elif given.get("until_ms", 0) is None:
        detail = "`until` may be changed, and not be taken away"
    elif kind == Kind.WITHDRAWAL and given.keys() - {"note"}:
        detail = "of a withdrawal, only the note may be changed"
    elif has_rates and (kind == Kind.FREEZE or (kind == Kind.MAINTENANCE and of_terminal)):
        detail = f"a {kind} of this has no rates"
    elif has_none and (kind == Kind.RATE or (kind == Kind.MAINTENANCE and not of_terminal)):
        detail = f"a {kind} of this needs forward_bps, return_bps, or both"
    if detail is not None:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


async def _known(connection: AsyncConnection, number: int) -> Row[Any]:
    row = await interventions.get(connection, number)
    if row is None:
        detail = f"there is no intervention {number}: it may have been released before it began"
        raise Problem(HTTPStatus.NOT_FOUND, detail)
    return row


def _check_shown(call: Call, row: Row[Any]) -> None:
    """Check that the caller shows the present revision.

    Raises:
        Problem: 428, it shows none (RFC 6585, § 3); 412, it shows another one.
    """
    if shows_none(call):
        detail = "show its ETag in If-Match: others may have changed it"
        raise Problem(HTTPStatus.PRECONDITION_REQUIRED, detail)
    if not is_shown(call, row.revision):
        raise _changed_meanwhile(row)


def _changed_meanwhile(row: Row[Any]) -> Problem:
    when = rfc3339(moment_of(row.set_ms))
    detail = f"{row.set_by} has changed it at {when}: read it again"
    return Problem(HTTPStatus.PRECONDITION_FAILED, detail)


def _state(row: Row[Any]) -> dict[str, Any]:
    """Return one as the log of changes shows it."""
    names = ("kind", "beam", "terminal", "forward_bps", "return_bps", "obstruction", "note")
    state: dict[str, Any] = {name: getattr(row, name) for name in names}
    for name in ("from", "until", "entry", "exit"):
        ms = getattr(row, f"{name}_ms")
        state[name] = None if ms is None else rfc3339(moment_of(ms))
    return {name: value for name, value in state.items() if value is not None}


def _shown(row: Row[Any], now_ms: int, caller: Caller) -> models.Intervention:
    state = "ended" if row.until_ms <= now_ms else "ahead" if row.from_ms > now_ms else "in force"
    return models.Intervention.model_validate(
        {
            "id": row.id,
            "kind": row.kind,
            "state": state,
            "beam": row.beam,
            "terminal": row.terminal,
            "from": moment_of(row.from_ms),
            "until": moment_of(row.until_ms),
            "forward_bps": row.forward_bps,
            "return_bps": row.return_bps,
            "obstruction": row.obstruction,
            "entry": None if row.entry_ms is None else moment_of(row.entry_ms),
            "exit": None if row.exit_ms is None else moment_of(row.exit_ms),
            "note": row.note,
            "set_by": row.set_by if caller.tenant is None else None,
            "set_at": moment_of(row.set_ms),
            "revision": row.revision,
        }
    )
