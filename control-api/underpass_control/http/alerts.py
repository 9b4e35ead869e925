"""Alerts, their rules, and their targets: webhooks and mail addresses."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from functools import partial
from http import HTTPStatus
from typing import Any

from pydantic import BaseModel
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access.audit import Changed
from underpass_control.access.caller import Caller
from underpass_control.alerts.addresses import AddressError, check_url
from underpass_control.alerts.mail import mail_address
from underpass_control.http import alert_models as models
from underpass_control.http.conditions import etag, replaced
from underpass_control.http.cursor import next_page, number_after
from underpass_control.http.endpoint import OPERATORS, READERS, Answer, Call, Endpoint, Handle
from underpass_control.http.problem import Problem, changed_since
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import moment_of
from underpass_control.roles import Role
from underpass_control.settings import Settings
from underpass_control.storage import alerts, registry
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database
from underpass_control.storage.models import Alert, AlertPending, AlertRule, AlertTarget, Beam

# Every few seconds each rule is checked for all terminals; each alert is sent to each target.
MOST_RULES = 100
MOST_TARGETS = 20
_SECRET_BYTES = 32
# What a rule's condition is made of.
_CONDITION = ("limit_ms", "version", "beam_id")

Table = type[AlertRule] | type[AlertTarget]


class Alerts:
    """The endpoints of alerts."""

    def __init__(self, database: Database, changes: Changes, settings: Settings) -> None:
        self._database = database
        self._changes = changes
        self._settings = settings

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        return [
            Endpoint(
                "GET",
                "/v1/alerts",
                "What is wrong by the rules, or was, the newest first",
                self._page,
                READERS,
                tenancy=Tenancy.ROWS,
                query=models.AlertQuery,
                answers=models.AlertList,
            ),
            Endpoint(
                "POST",
                "/v1/alerts/{alert}/acknowledgement",
                "Say that one knows of an alert and sees to it",
                self._acknowledge,
                OPERATORS,
                answers=models.Alert,
                problems=[HTTPStatus.CONFLICT],
            ),
            *self._collection(
                AlertRule,
                "rule",
                ("The rules by which alerts fire", self._rules, READERS, models.AlertRuleList),
                ("Make a rule", self._add_rule, models.AlertRuleBody, models.AlertRule),
                "Delete a rule: what fires by it is resolved",
            ),
            Endpoint(
                "PUT",
                "/v1/alert-rules/{rule}",
                "Change a rule, but for its kind, if it is as `If-Match` says",
                self._change_rule,
                OPERATORS,
                headers=["If-Match"],
                body=models.AlertRuleBody,
                answers=models.AlertRule,
                problems=[HTTPStatus.CONFLICT],
            ),
            *self._collection(
                AlertTarget,
                "target",
                (
                    "The webhooks and mail addresses that are told of alerts",
                    self._targets,
                    OPERATORS,
                    models.AlertTargetList,
                ),
                (
                    "Have a webhook, or an address (`mailto:`), told of alerts; the answer has "
                    "the secret that a webhook's messages are signed with",
                    self._add_target,
                    models.AlertTargetBody,
                    models.NewAlertTarget,
                ),
                "Tell a target no more, of what waits to be sent either",
            ),
        ]

    def _collection(
        self,
        table: Table,
        name: str,
        reading: tuple[str, Handle, frozenset[Role], type[BaseModel]],
        adding: tuple[str, Handle, type[BaseModel], type[BaseModel]],
        deletes: str,
    ) -> Iterator[Endpoint]:
        """Yield the endpoints of a collection that is read as a whole: read, create and delete."""
        path, (reads, read, readers, listed) = f"/v1/alert-{name}s", reading
        is_revised = table is AlertRule
        adds, add, body, made = adding
        yield Endpoint("GET", path, reads, read, readers, answers=listed)
        yield Endpoint(
            "POST",
            path,
            adds,
            add,
            OPERATORS,
            body=body,
            answers=made,
            status=HTTPStatus.CREATED,
            problems=[HTTPStatus.CONFLICT],
        )
        yield Endpoint(
            "DELETE",
            f"{path}/{{{name}}}",
            deletes,
            partial(self._delete, table, name),
            OPERATORS,
            headers=["If-Match"] if is_revised else [],
        )

    async def _page(self, call: Call) -> models.AlertList:
        query = call.query(models.AlertQuery)
        async with self._database.reading() as connection:
            rows = await alerts.page(
                connection,
                is_firing=query.firing,
                before=number_after(query.cursor),
                limit=query.limit,
            )
        last = next_page(rows, query.limit, lambda row: row.id)
        return models.AlertList(alerts=[_alert(row, call.known_caller) for row in rows], next=last)

    async def _acknowledge(self, call: Call) -> models.Alert:
        number, by = call.path_number("alert"), call.known_caller.name
        now_ms = self._database.clock.now_ms()
        async with self._changes.transaction() as (connection, publish):
            row = await alerts.acknowledge(connection, number, by, now_ms)
            if row is None:
                raise await _not_acknowledged(connection, number)
            publish({"kind": "alerts", "alerts": [alerts.shown(row)]})
            target = f"/v1/alerts/{number}/acknowledgement"
            await call.record(connection, Changed("acknowledge", target, None, None, None))
        return _alert(row, call.known_caller)

    async def _rules(self, _call: Call) -> models.AlertRuleList:
        async with self._database.reading() as connection:
            rows = await connection.execute(select(AlertRule.__table__).order_by(AlertRule.id))
        return models.AlertRuleList(rules=[_rule(row) for row in rows])

    async def _add_rule(self, call: Call) -> Answer:
        body = call.body(models.AlertRuleBody)
        async with self._changes.transaction() as (connection, _):
            await _check_beam(connection, body)
            try:
                row = await _add(connection, AlertRule, _values_of(body), MOST_RULES)
            except IntegrityError as error:
                # It has been deleted since.
                raise _no_beam(body) from error
            made = _rule(row)
            await _record(call, connection, "create", "alert-rules", row.id, made)
        return Answer(made, HTTPStatus.CREATED, {"ETag": etag(row.revision)})

    async def _change_rule(self, call: Call) -> Answer:
        number, body = call.path_number("rule"), call.body(models.AlertRuleBody)
        values = _values_of(body)
        table = AlertRule.__table__
        async with self._changes.transaction() as (connection, _):
            query = select(table).where(AlertRule.id == number)
            before = (await connection.execute(query)).one_or_none()
            if before is None:
                raise _no_rule(number)
            expected = replaced(call, before.revision)
            if body.kind != before.kind:
                # Its firing alerts would have a kind that the rule no longer has.
                detail = f"it is of the kind {before.kind}, and stays so: make another rule"
                raise Problem(HTTPStatus.CONFLICT, detail)
            await _check_beam(connection, body)
            # Check the revision again: another caller may have changed it meanwhile.
            changed = (
                update(AlertRule)
                .where(AlertRule.id == number, AlertRule.revision == before.revision)
                .values(**values, revision=before.revision + 1)
                .returning(*table.columns)
            )
            try:
                row = (await connection.execute(changed)).one_or_none()
            except IntegrityError as error:
                # The beam has been deleted since.
                raise _no_beam(body) from error
            if row is None:
                raise await _not_changed(connection, number, expected)
            if any(getattr(row, name) != getattr(before, name) for name in _CONDITION):
                # The condition is now another one: it has to hold anew for its time.
                pending = delete(AlertPending).where(AlertPending.rule_id == number)
                await connection.execute(pending)
            was, now = _rule(before), _rule(row)
            await _record(call, connection, "set", "alert-rules", number, now, was)
        return Answer(now, HTTPStatus.OK, {"ETag": etag(row.revision)})

    async def _targets(self, _call: Call) -> models.AlertTargetList:
        async with self._database.reading() as connection:
            rows = await connection.execute(select(AlertTarget.__table__).order_by(AlertTarget.id))
        return models.AlertTargetList(targets=[_target(row) for row in rows])

    async def _add_target(self, call: Call) -> Answer:
        body = call.body(models.AlertTargetBody)
        try:
            if body.url.startswith("mailto:"):
                mail_address(body.url)
            else:
                check_url(body.url, self._settings.webhook_networks)
        except (AddressError, ValueError) as error:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        if body.url.startswith("mailto:") and self._settings.mail_server is None:
            detail = "the service has no mail server: start it with --mail-server"
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)
        secret = secrets.token_urlsafe(_SECRET_BYTES)
        values = {"name": body.name, "url": body.url, "secret": secret}
        async with self._changes.transaction() as (connection, _):
            row = await _add(connection, AlertTarget, values, MOST_TARGETS)
            made = _target(row)
            await _record(call, connection, "create", "alert-targets", row.id, made)
        new = models.NewAlertTarget(**made.model_dump(), secret=secret)
        return Answer(new, HTTPStatus.CREATED, {"Cache-Control": "no-store"})

    async def _delete(self, table: Table, what: str, call: Call) -> Answer:
        number = call.path_number(what)
        gone = delete(table).where(table.id == number)
        expected: int | None = None
        async with self._changes.transaction() as (connection, _):
            if table is AlertRule:
                query = select(AlertRule.revision).where(AlertRule.id == number)
                revision = await connection.scalar(query)
                expected = None if revision is None else replaced(call, revision)
            if expected is not None:
                gone = gone.where(AlertRule.revision == expected)
            if not (await connection.execute(gone)).rowcount:
                if expected is not None:
                    raise changed_since()
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no {what} {number}")
            await _record(call, connection, "delete", f"alert-{what}s", number, None)
        return Answer(None, HTTPStatus.NO_CONTENT)


async def _add(
    connection: AsyncConnection, table: Table, values: dict[str, Any], most: int
) -> Row[Any]:
    made = insert(table).values(values).returning(*table.__table__.columns)
    row = (await connection.execute(made)).one()
    # Counted after the insertion: on SQLite, that has locked the file.
    count = (await connection.execute(select(func.count(table.id)))).scalar_one()
    if count > most:
        raise Problem(HTTPStatus.CONFLICT, f"there are {most} already: delete one")
    return row


def _values_of(body: models.AlertRuleBody) -> dict[str, Any]:
    return {
        "name": body.name,
        "kind": body.kind,
        "limit_ms": 0 if body.limit_s is None else max(round(body.limit_s * 1000), 1),
        "for_ms": round(body.for_s * 1000),
        "keep_firing_for_ms": round(body.keep_firing_for_s * 1000),
        "version": body.version,
        "beam_id": body.beam,
    }


async def _check_beam(connection: AsyncConnection, body: models.AlertRuleBody) -> None:
    if body.beam is not None and await registry.get(connection, Beam, body.beam) is None:
        raise _no_beam(body)


def _no_beam(body: models.AlertRuleBody) -> Problem:
    return Problem(HTTPStatus.CONFLICT, f"there is no beam {body.beam}")


def _no_rule(number: int) -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, f"there is no rule {number}")


async def _not_changed(connection: AsyncConnection, number: int, expected: int | None) -> Problem:
    """Return why a rule that has just been read is not changed; `expected` as `replaced` has it."""
    query = select(AlertRule.id).where(AlertRule.id == number)
    if await connection.scalar(query) is None:
        # It has been deleted, or its beam has.
        return _no_rule(number)
    if expected is not None:
        return changed_since()
    return Problem(HTTPStatus.CONFLICT, "somebody else has just changed it: try again")


async def _record(
    call: Call,
    connection: AsyncConnection,
    action: str,
    collection: str,
    number: int,
    after: models.AlertRule | models.AlertTarget | None,
    before: models.AlertRule | None = None,
) -> None:
    target = f"/v1/{collection}/{number}"
    changed = Changed(action, target, None, _state_of(before), _state_of(after))
    await call.record(connection, changed)


def _state_of(one: models.AlertRule | models.AlertTarget | None) -> dict[str, Any] | None:
    if one is None:
        return None
    # A webhook's address is often a secret itself.
    return one.model_dump(mode="json", exclude_none=True, exclude={"url", "revision"})


async def _not_acknowledged(connection: AsyncConnection, number: int) -> Problem:
    query = select(Alert.acknowledged_by).where(Alert.id == number)
    row = (await connection.execute(query)).one_or_none()
    if row is None:
        return Problem(HTTPStatus.NOT_FOUND, f"there is no alert {number}")
    return Problem(HTTPStatus.CONFLICT, f"{row.acknowledged_by} has acknowledged it already")


def _rule(row: Row[Any]) -> models.AlertRule:
    return models.AlertRule(
        id=row.id,
        name=row.name,
        kind=row.kind,
        limit_s=row.limit_ms / 1000 if row.limit_ms else None,
        for_s=row.for_ms / 1000,
        keep_firing_for_s=row.keep_firing_for_ms / 1000,
        version=row.version,
        beam=row.beam_id,
        revision=row.revision,
    )


def _target(row: Row[Any]) -> models.AlertTarget:
    return models.AlertTarget(
        id=row.id,
        name=row.name,
        url=row.url,
        last=None if row.last_ms is None else moment_of(row.last_ms),
        last_failure=row.last_failure,
    )


def _alert(row: Row[Any], caller: Caller) -> models.Alert:
    shown = models.Alert.model_validate(alerts.shown(row))
    if caller.tenant is None:
        shown.acknowledged_by = row.acknowledged_by
    return shown
