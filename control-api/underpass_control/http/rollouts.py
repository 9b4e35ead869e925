"""Rollouts: one change of settings for many terminals, in stages.

A caller that may set terminals' settings may roll them out: a tenant's operators to their own
vehicles. The service does the rest (`underpass_control.rollouts`).
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from sqlalchemy import select
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access.audit import Changed
from underpass_control.http import rollout_models as models
from underpass_control.http.conditions import etag, replaced
from underpass_control.http.cursor import next_page, number_after
from underpass_control.http.endpoint import MIDDLE, OPERATORS, READERS, Answer, Call, Endpoint
from underpass_control.http.models import Page
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import moment_of
from underpass_control.rollouts.stages import ENDED, FAILED, Member, Progress, State, is_late
from underpass_control.storage import rollouts, settings
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database
from underpass_control.storage.models import Terminal
from underpass_control.storage.tags import tagged

# Of a tenant, or of the whole. Each of them is checked every few seconds, with all its terminals.
MOST_OPEN = 20
MOST_TERMINALS = 50_000
# Nodes of one statement.
_AT_ONCE = 500


class Rollouts:
    """The endpoints of rollouts."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        one, conflict = "/v1/rollouts/{rollout}", HTTPStatus.CONFLICT
        return [
            Endpoint(
                "GET",
                "/v1/rollouts",
                "Changes of settings in stages, the newest first, and how far they are",
                self._page,
                READERS,
                tenancy=Tenancy.ROWS,
                query=Page,
                answers=models.RolloutList,
            ),
            Endpoint(
                "POST",
                "/v1/rollouts",
                "Change the settings of many terminals in stages; it begins at once",
                self._add,
                OPERATORS,
                tenancy=Tenancy.ROWS,
                body=models.RolloutBody,
                most=MIDDLE,
                answers=models.Rollout,
                status=HTTPStatus.CREATED,
                problems=[conflict],
            ),
            Endpoint(
                "GET",
                one,
                "A rollout, and how far it is",
                self._get,
                READERS,
                tenancy=Tenancy.ROWS,
                answers=models.Rollout,
            ),
            Endpoint(
                "GET",
                one + "/terminals",
                "The terminals of a rollout, and how far each is",
                self._terminals,
                READERS,
                tenancy=Tenancy.ROWS,
                query=Page,
                answers=models.RolloutTerminalList,
            ),
            Endpoint(
                "PUT",
                one + "/state",
                "Pause a rollout, have it go on, or abort it, if it is as `If-Match` says",
                self._set_state,
                OPERATORS,
                tenancy=Tenancy.ROWS,
                headers=["If-Match"],
                body=models.RolloutStateBody,
                answers=models.Rollout,
                problems=[conflict],
            ),
        ]

    async def _page(self, call: Call) -> models.RolloutList:
        query = call.query(Page)
        async with self._database.reading() as connection:
            rows = await rollouts.page(
                connection, before=number_after(query.cursor), limit=query.limit
            )
            counts = await rollouts.counts(connection, [row.id for row in rows])
        last = next_page(rows, query.limit, lambda row: row.id)
        shown = [_shown(row, counts[row.id]) for row in rows]
        return models.RolloutList(rollouts=shown, next=last)

    async def _get(self, call: Call) -> Answer:
        number = call.path_number("rollout")
        async with self._database.reading() as connection:
            row = _known(await rollouts.get(connection, number), number)
            return await _answer(connection, row)

    async def _terminals(self, call: Call) -> models.RolloutTerminalList:
        number, query = call.path_number("rollout"), call.query(Page)
        now_ms = self._database.clock.now_ms()
        async with self._database.reading() as connection:
            row = _known(await rollouts.get(connection, number), number)
            found = await rollouts.page_of_terminals(
                connection, number, after=number_after(query.cursor), limit=query.limit
            )
        last = next_page(found, query.limit, lambda one: one.place)
        shown = [_shown_terminal(one, row, now_ms) for one in found]
        return models.RolloutTerminalList(terminals=shown, next=last)

    async def _add(self, call: Call) -> Answer:
        body, caller = call.body(models.RolloutBody), call.known_caller
        document = body.settings.document()
        if not settings.fits(0, document):
            detail = f"settings may have {settings.MOST_BYTES} bytes"
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        now_ms = self._database.clock.now_ms()
        values = {
            "name": body.name,
            "tenant_id": caller.tenant,
            "document": document,
            "whole": body.whole,
            "sizes": body.stages,
            "hold_ms": round(body.hold_s * 1000),
            "wait_ms": round(body.wait_s * 1000),
            "most_failures": body.most_failures,
            "created_by": caller.name,
            "created_ms": now_ms,
            "changed_ms": now_ms,
        }
        terminals: Sequence[int] = []
        try:
            async with self._changes.transaction() as (connection, publish):
                terminals = await _chosen(connection, body)
                number = await rollouts.add(connection, values, terminals)
                # Counted after the insertion: on SQLite, that has locked the file.
                if await rollouts.count_open(connection, caller.tenant) > MOST_OPEN:
                    detail = f"there are {MOST_OPEN} that have not ended: abort some"
                    raise Problem(HTTPStatus.CONFLICT, detail)
                row = _known(await rollouts.get(connection, number), number)
                publish(rollouts.change_of(row, "created"))
                after = {**body.model_dump(mode="json", exclude_none=True), "of": len(terminals)}
                await call.record(
                    connection,
                    Changed("create", f"/v1/rollouts/{number}", caller.tenant, None, after),
                )
                answer = await _answer(connection, row, HTTPStatus.CREATED)
        except IntegrityError as error:
            raise await self._taken(terminals) from error
        return answer

    async def _taken(self, terminals: Sequence[int]) -> Problem:
        async with self._database.reading() as connection:
            other = await rollouts.taken(connection, terminals)
        detail = "a terminal is in another rollout that has not ended"
        if other is not None:
            terminal, number = other
            detail = f"terminal {terminal} is in rollout {number}, not ended yet"
        return Problem(HTTPStatus.CONFLICT, detail)

    async def _set_state(self, call: Call) -> Answer:
        number, body = call.path_number("rollout"), call.body(models.RolloutStateBody)
        now_ms = self._database.clock.now_ms()
        async with self._changes.transaction() as (connection, publish):
            before = _known(await rollouts.lock(connection, number), number)
            replaced(call, before.revision)
            state = _next_state(State(before.state), body)
            values: dict[str, Any] = {}
            if state is State.RUNNING:
                counts = (await rollouts.counts(connection, [number]))[number]
                failed = sum(counts.get(one.value, 0) for one in FAILED)
                most = max(before.most_failures, failed)
                values = {"reason": None, "most_failures": most}
            row = await rollouts.change(connection, number, now_ms, state=state, **values)
            publish(rollouts.change_of(row, state.value))
            target = f"/v1/rollouts/{number}/state"
            was, now = {"state": before.state}, body.model_dump(mode="json")
            await call.record(connection, Changed("set", target, row.tenant_id, was, now))
            return await _answer(connection, row)


async def _chosen(connection: AsyncConnection, body: models.RolloutBody) -> Sequence[int]:
    """Return the terminals of a rollout, in the order in which they are tried."""
    if body.terminals is not None:
        await _check_known(connection, body.terminals)
        return body.terminals
    condition = Terminal.beam_id == body.beam if body.tag is None else tagged(body.tag)
    query = select(Terminal.node).where(condition).order_by(Terminal.node)
    found = (await connection.scalars(query.limit(MOST_TERMINALS + 1))).all()
    if not found:
        detail = "there is no such terminal"
        raise Problem(HTTPStatus.CONFLICT, detail)
    if len(found) > MOST_TERMINALS:
        detail = f"a rollout may have {MOST_TERMINALS} terminals"
        raise Problem(HTTPStatus.CONFLICT, detail)
    return found


async def _check_known(connection: AsyncConnection, nodes: Sequence[int]) -> None:
    for start in range(0, len(nodes), _AT_ONCE):
        some = nodes[start : start + _AT_ONCE]
        query = select(Terminal.node).where(Terminal.node.in_(some))
        known = set((await connection.scalars(query)).all())
        for node in some:
            if node not in known:
                raise Problem(HTTPStatus.CONFLICT, f"there is no terminal {node}")


def _next_state(before: State, body: models.RolloutStateBody) -> State:
    """Return the state that an operator's change leads to.

    Raises:
        Problem: 409, the change is impossible now.
    """
    if before in ENDED or before is State.ABORTING:
        raise Problem(HTTPStatus.CONFLICT, f"it is {before.value}: make a new one")
    if body.state == "aborted":
        return State.ABORTING if body.restore else State.ABORTED
    if body.state == "paused":
        if before is State.STOPPED:
            raise Problem(HTTPStatus.CONFLICT, "it has stopped already")
        return State.PAUSED
    return State.RUNNING


def _known(row: Row[Any] | None, number: int) -> Row[Any]:
    if row is None:
        raise Problem(HTTPStatus.NOT_FOUND, f"there is no rollout {number}")
    return row


def _shown(row: Row[Any], counts: dict[str, int]) -> models.Rollout:
    document = row.document
    by_name = {name.replace("-", "_"): count for name, count in counts.items()}
    return models.Rollout.model_validate(
        {
            "id": row.id,
            "name": row.name,
            "settings": {"classes": document["class"], "paths": document["path"]},
            "whole": row.whole,
            "stages": row.sizes,
            "hold_s": row.hold_ms / 1000,
            "wait_s": row.wait_ms / 1000,
            "most_failures": row.most_failures,
            "state": row.state,
            "stage": row.stage + 1,
            "reason": row.reason,
            "counts": by_name,
            "created": moment_of(row.created_ms),
            "created_by": row.created_by,
            "changed": moment_of(row.changed_ms),
            "revision": row.revision,
        }
    )


def _shown_terminal(row: Row[Any], rollout: Row[Any], now_ms: int) -> models.RolloutTerminal:
    member = Member(row.terminal, Progress(row.progress), row.sent_ms)
    return models.RolloutTerminal(
        terminal=row.terminal,
        progress=row.progress,
        late=is_late(member, rollouts.terms_of(rollout), now_ms),
        stage=None if row.stage is None else row.stage + 1,
        version=row.version,
        sent=None if row.sent_ms is None else moment_of(row.sent_ms),
        confirmed=None if row.confirmed_ms is None else moment_of(row.confirmed_ms),
        reason=row.reason,
    )


async def _answer(
    connection: AsyncConnection, row: Row[Any], status: HTTPStatus = HTTPStatus.OK
) -> Answer:
    counts = await rollouts.counts(connection, [row.id])
    return Answer(_shown(row, counts[row.id]), status, {"ETag": etag(row.revision)})
