"""Beams and terminals."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import ColumnElement, select
from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access.audit import Changed
from underpass_control.access.tokens import revoke_tokens_of
from underpass_control.access.users import get_tenant
from underpass_control.alerts.watch import tell
from underpass_control.http import models
from underpass_control.http.conditions import etag, is_known, replaced
from underpass_control.http.cursor import next_page, number_after, text_after
from underpass_control.http.endpoint import (
    EVERYBODY,
    MIDDLE,
    OPERATORS,
    READERS,
    Answer,
    Call,
    Endpoint,
)
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.metrics import Metrics
from underpass_control.storage import alerts, attachments, registry, tags
from underpass_control.storage import models as tables
from underpass_control.storage.changes import Changes, Publish
from underpass_control.storage.database import Database
from underpass_control.storage.portions import Portion, delete_all

_BEAM_ID: TypeAdapter[str] = TypeAdapter(models.BeamId)

Table = type[tables.Beam] | type[tables.Terminal]


class Registry:
    """The endpoints of beams and terminals."""

    def __init__(self, database: Database, changes: Changes, metrics: Metrics) -> None:
        self._database = database
        self._changes = changes
        self._metrics = metrics

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        beam, terminal = "/v1/beams/{beam}", "/v1/terminals/{terminal}"
        conflict = HTTPStatus.CONFLICT
        return [
            Endpoint(
                "GET",
                "/v1/beams",
                "All beams",
                self._beams,
                READERS,
                tenancy=Tenancy.SHARED,
                query=models.Page,
                answers=models.BeamList,
            ),
            Endpoint(
                "GET",
                beam,
                "A beam",
                self._beam,
                READERS,
                tenancy=Tenancy.SHARED,
                answers=models.Beam,
                others=[HTTPStatus.NOT_MODIFIED],
            ),
            Endpoint(
                "PUT",
                beam,
                "Set a beam",
                self._put_beam,
                OPERATORS,
                headers=["If-Match", "If-None-Match"],
                body=models.BeamBody,
                most=MIDDLE,
                answers=models.Beam,
                others=[HTTPStatus.CREATED],
            ),
            Endpoint(
                "DELETE",
                beam,
                "Delete a beam that has no terminals",
                self._delete_beam,
                OPERATORS,
                headers=["If-Match"],
                problems=[conflict],
            ),
            Endpoint(
                "GET",
                "/v1/terminals",
                "All terminals, or those of a beam or with a tag",
                self._terminals,
                READERS,
                tenancy=Tenancy.ROWS,
                query=models.TerminalQuery,
                answers=models.TerminalList,
            ),
            Endpoint(
                "GET",
                terminal,
                "A terminal",
                self._terminal,
                EVERYBODY,
                tenancy=Tenancy.VEHICLE,
                answers=models.Terminal,
                others=[HTTPStatus.NOT_MODIFIED],
            ),
            Endpoint(
                "PUT",
                terminal,
                "Set a terminal",
                self._put_terminal,
                OPERATORS,
                headers=["If-Match", "If-None-Match"],
                body=models.TerminalBody,
                answers=models.Terminal,
                others=[HTTPStatus.CREATED],
                problems=[conflict],
            ),
            Endpoint(
                "PUT",
                terminal + "/tags",
                "Set what a terminal is grouped by",
                self._put_tags,
                OPERATORS,
                tenancy=Tenancy.VEHICLE,
                headers=["If-Match"],
                body=models.TagsBody,
                answers=models.Terminal,
            ),
            Endpoint(
                "GET",
                "/v1/tags",
                "All tags, with how many terminals have each",
                self._tags,
                READERS,
                tenancy=Tenancy.ROWS,
                query=models.Page,
                answers=models.TagList,
            ),
            Endpoint(
                "DELETE",
                terminal,
                "Delete a terminal with all that it has reported",
                self._delete_terminal,
                OPERATORS,
                headers=["If-Match"],
            ),
        ]

    async def _beams(self, call: Call) -> models.BeamList:
        query = call.query(models.Page)
        async with self._database.reading() as connection:
            rows = await registry.page(
                connection, tables.Beam, after=text_after(query.cursor), limit=query.limit
            )
        last = next_page(rows, query.limit, lambda row: row.id)
        shown = _shown_beam(call)
        return models.BeamList(beams=[shown(row) for row in rows], next=last)

    async def _beam(self, call: Call) -> Answer:
        return _tagged(_shown_beam(call), await self._row(tables.Beam, call.path["beam"]), call)

    async def _put_beam(self, call: Call) -> Answer:
        body = call.body(models.BeamBody)
        return await self._put(tables.Beam, _beam_id(call), body.model_dump(), _beam, call)

    async def _delete_beam(self, call: Call) -> Answer:
        beam = call.path["beam"]
        async with self._database.reading() as connection:
            if await registry.has_terminals(connection, beam):
                raise _has_terminals(beam)
        await self._delete(tables.Beam, beam, registry.planned(beam), _beam, call)
        return Answer(None, HTTPStatus.NO_CONTENT)

    async def _terminals(self, call: Call) -> models.TerminalList:
        query = call.query(models.TerminalQuery)
        where: list[ColumnElement[bool]] = []
        if query.beam is not None:
            where.append(tables.Terminal.beam_id == query.beam)
        if query.tag is not None:
            where.append(tags.tagged(query.tag))
        async with self._database.reading() as connection:
            rows = await registry.page(
                connection,
                tables.Terminal,
                after=number_after(query.cursor),
                limit=query.limit,
                where=where,
            )
        last = next_page(rows, query.limit, lambda row: row.node)
        return models.TerminalList(terminals=[_terminal(row) for row in rows], next=last)

    async def _terminal(self, call: Call) -> Answer:
        node = call.path_number("terminal")
        return _tagged(_terminal, await self._row(tables.Terminal, node), call)

    async def _put_terminal(self, call: Call) -> Answer:
        body = call.body(models.TerminalBody)
        node = _node(call)
        for direction in ("forward", "return"):
            least = getattr(body, f"{direction}_minimum_bps")
            most = getattr(body, f"{direction}_maximum_bps")
            if most is not None and most < least:
                raise Problem(
                    HTTPStatus.UNPROCESSABLE_ENTITY,
                    f"{direction}_maximum_bps is below {direction}_minimum_bps",
                )
        values = body.model_dump()
        values["beam_id"] = values.pop("beam")
        values["tenant_id"] = values.pop("tenant")
        return await self._put(tables.Terminal, node, values, _terminal, call)

    async def _put_tags(self, call: Call) -> Answer:
        node = call.path_number("terminal")
        wanted = call.body(models.TagsBody).tags
        async with self._changes.transaction() as (connection, publish):
            known = await _known(connection, tables.Terminal, node)
            expected = replaced(call, known.revision)
            await registry.touch(connection, tables.Terminal, node, revision=expected)
            # From here on, other changes of its tags wait.
            before = await _known(connection, tables.Terminal, node)
            await tags.put_tags(connection, {node: wanted})
            row = await registry.get(connection, tables.Terminal, node)
            assert row is not None
            model = _terminal(row)
            publish(_change(tables.Terminal, node, "set") | {"state": _state(model)})
            was, now = {"tags": tags.tags_of(before)}, {"tags": model.tags}
            target = f"/v1/terminals/{node}/tags"
            await call.record(connection, Changed("set", target, row.tenant_id, was, now))
        return Answer(model, HTTPStatus.OK, {"ETag": etag(row.revision)})

    async def _tags(self, call: Call) -> models.TagList:
        query = call.query(models.Page)
        async with self._database.reading() as connection:
            rows = await tags.page_of_tags(
                connection, after=text_after(query.cursor), limit=query.limit
            )
        found = [models.TagCount(tag=row.tag, terminals=row.terminals) for row in rows]
        last = next_page(rows, query.limit, lambda row: row.tag)
        return models.TagList(tags=found, next=last)

    async def _delete_terminal(self, call: Call) -> Answer:
        node = call.path_number("terminal")
        await self._delete(tables.Terminal, node, registry.reported(node), _terminal, call)
        return Answer(None, HTTPStatus.NO_CONTENT)

    async def _row(self, table: Table, key: str | int) -> Row[Any]:
        async with self._database.reading() as connection:
            return await _known(connection, table, key)

    async def _put(
        self,
        table: Table,
        key: str | int,
        values: dict[str, Any],
        model_of: Callable[[Row[Any]], models.Model],
        call: Call,
    ) -> Answer:
        beside: dict[str, Any] = {}
        try:
            async with self._changes.transaction() as (connection, publish):
                if table is tables.Terminal:
                    now_ms = self._database.clock.now_ms()
                    # On SQLite, only a write keeps others from deleting the tenant.
                    await attachments.assign(connection, [int(key)], values["gateway"], now_ms)
                    if await get_tenant(connection, values["tenant_id"]) is None:
                        detail = f"there is no tenant {values['tenant_id']}"
                        raise Problem(HTTPStatus.CONFLICT, detail)
                    since = registry.tenant_since(values["tenant_id"], now_ms)
                    beside["tenant_since_ms"] = since
                before = await registry.get(connection, table, key)
                expected = replaced(call, None if before is None else before.revision)
                revision, new = await registry.put(
                    connection, table, key, values, replaced=beside, revision=expected
                )
                row = await registry.get(connection, table, key)
                assert row is not None
                model = model_of(row)
                state = _state(model)
                publish(_change(table, key, "set") | {"state": _announced(state)})
                was = None if before is None else _state(model_of(before))
                await call.record(connection, _changed("set", table, key, was, state))
        except IntegrityError as error:
            detail = f"there is no beam {values.get('beam_id')}"
            if values.get("opensand_id") is not None:
                detail += f", or another of its terminals has opensand_id {values['opensand_id']}"
            raise Problem(HTTPStatus.CONFLICT, detail) from error
        status = HTTPStatus.CREATED if new else HTTPStatus.OK
        return Answer(model, status, {"ETag": etag(revision)})

    async def _delete(
        self,
        table: Table,
        key: str | int,
        of_it: Sequence[Portion],
        model_of: Callable[[Row[Any]], models.Model],
        call: Call,
    ) -> None:
        async with self._database.transaction() as connection:
            known = await _known(connection, table, key)
            expected = replaced(call, known.revision)
            # From here on callers with the old revision are refused; the deletion is certain.
            await registry.touch(connection, table, key, revision=expected)
        # A terminal may have months of reports: they are deleted in portions before its row.
        for portion in of_it:
            await delete_all(self._database, portion)
        try:
            async with self._changes.transaction() as (connection, publish):
                before = await _known(connection, table, key)
                if table is tables.Terminal:
                    await self._end_all_of(connection, publish, int(key))
                if not await registry.remove(connection, table, key):
                    raise _missing(table, key)
                publish(_change(table, key, "deleted"))
                was = _state(model_of(before))
                await call.record(connection, _changed("delete", table, key, was, None))
        except IntegrityError as error:
            raise _has_terminals(key) from error

    async def _end_all_of(self, connection: AsyncConnection, publish: Publish, node: int) -> None:
        """End what would outlive a terminal elsewhere: its tokens, and alerts at their targets."""
        # Locked first: an alert that fires meanwhile is either seen here, or finds no terminal.
        locked = select(tables.Terminal.node).where(tables.Terminal.node == node).with_for_update()
        await connection.execute(locked)
        now_ms = self._database.clock.now_ms()
        await revoke_tokens_of(connection, node, now_ms)
        ended = await alerts.resolve_of(connection, node, now_ms)
        await tell(connection, publish, self._metrics, "resolved", ended, now_ms)


async def _known(connection: AsyncConnection, table: Table, key: str | int) -> Row[Any]:
    row = await registry.get(connection, table, key)
    if row is None:
        raise _missing(table, key)
    return row


def _missing(table: Table, key: str | int) -> Problem:
    return Problem(HTTPStatus.NOT_FOUND, f"there is no {table.__tablename__} {key}")


def _has_terminals(beam: str | int) -> Problem:
    return Problem(HTTPStatus.CONFLICT, f"{beam} still has terminals")


def _change(table: Table, key: str | int, action: str) -> dict[str, Any]:
    return {"kind": table.__tablename__, table.__tablename__: key, "action": action}


def _changed(
    action: str,
    table: Table,
    key: str | int,
    before: dict[str, Any] | None,
    after: dict[str, Any] | None,
) -> Changed:
    target = f"/v1/{table.__tablename__}s/{key}"
    tenant = (after or before or {}).get("tenant")
    return Changed(action, target, tenant, before, after)


def _state(model: models.Model) -> dict[str, Any]:
    return model.model_dump(mode="json", exclude_none=True)


def _announced(state: dict[str, Any]) -> dict[str, Any]:
    """Return a state as events show it, without the footprint, which is too large."""
    return {name: value for name, value in state.items() if name != "footprint"}


def _shown_beam(call: Call) -> Callable[[Row[Any]], models.Beam]:
    """Return how beams are shown to a caller: tenants do not see the NCC's address."""
    if call.known_caller.tenant is None:
        return _beam
    return lambda row: _beam(row).model_copy(update={"opensand": None})


def _beam(row: Row[Any]) -> models.Beam:
    return models.Beam(
        id=row.id,
        name=row.name,
        forward_capacity_bps=row.forward_capacity_bps,
        return_capacity_bps=row.return_capacity_bps,
        one_way_delay_ms=row.one_way_delay_ms,
        fair_share=row.fair_share,
        opensand=row.opensand,
        satellite=row.satellite,
        footprint=row.footprint,
    )


def _terminal(row: Row[Any]) -> models.Terminal:
    return models.Terminal(
        node=row.node,
        beam=row.beam_id,
        name=row.name,
        weight=row.weight,
        forward_minimum_bps=row.forward_minimum_bps,
        forward_maximum_bps=row.forward_maximum_bps,
        return_minimum_bps=row.return_minimum_bps,
        return_maximum_bps=row.return_maximum_bps,
        gateway=row.gateway,
        tenant=row.tenant_id,
        opensand_id=row.opensand_id,
        heard_by=row.heard_by,
        tags=tags.tags_of(row),
    )


def terminal_state(row: Row[Any]) -> dict[str, Any]:
    """Return a terminal as events show it."""
    return _state(_terminal(row))


def _tagged(model_of: Any, row: Row[Any], call: Call) -> Answer:
    tag = etag(row.revision)
    if is_known(call, tag):
        return Answer(None, HTTPStatus.NOT_MODIFIED, {"ETag": tag})
    return Answer(model_of(row), HTTPStatus.OK, {"ETag": tag})


def _beam_id(call: Call) -> str:
    try:
        return _BEAM_ID.validate_python(call.path["beam"])
    except ValidationError as error:
        detail = "a beam's id has 1 to 64 of a-z, 0-9, - and _, and begins with one of a-z, 0-9"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail) from error


def _node(call: Call) -> int:
    node = call.path_number("terminal")
    if not 1 <= node <= models.MOST_NODE:
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{node} is no ipn node number")
    return node
