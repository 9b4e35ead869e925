"""Remote settings of terminals and gateways: policies, migration rules, paths.

A terminal gets them from its gateway, applies them as it does a reload, and reports back; so does a
gateway with its own. The node's own configuration says what may be set.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from sqlalchemy.engine import Row
from sqlalchemy.exc import IntegrityError

from underpass_control.access.audit import Changed
from underpass_control.http import setting_models as models
from underpass_control.http.conditions import etag, replaced
from underpass_control.http.cursor import next_page, number_after
from underpass_control.http.endpoint import (
    EVERYBODY,
    MIDDLE,
    OPERATORS,
    READERS,
    Answer,
    Call,
    Endpoint,
)
from underpass_control.http.models import MOST_NODE, Page
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import moment_of
from underpass_control.rollouts.documents import NOTHING, differences, laid_over
from underpass_control.storage import links, registry, settings
from underpass_control.storage import models as tables
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database


class NodeSettings:
    """The endpoints of terminals' and gateways' settings."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        path = "/v1/terminals/{terminal}/settings"
        of_gateway = "/v1/gateways/{gateway}/settings"
        return [
            Endpoint(
                "GET",
                "/v1/settings",
                "What is set of terminals from afar, and what has become of it",
                self._page,
                READERS,
                tenancy=Tenancy.ROWS,
                query=Page,
                answers=models.SettingsList,
            ),
            Endpoint(
                "GET",
                path,
                "What is set of a terminal from afar, and what has become of it",
                self._get,
                EVERYBODY,
                tenancy=Tenancy.VEHICLE,
                answers=models.Settings,
            ),
            Endpoint(
                "PUT",
                path,
                "Set policies, migration rules and paths of a terminal; nothing: as it has them",
                self._put,
                OPERATORS,
                tenancy=Tenancy.VEHICLE,
                headers=["If-Match", "If-None-Match"],
                body=models.SettingsBody,
                most=MIDDLE,
                answers=models.Settings,
            ),
            Endpoint(
                "POST",
                path + "/preview",
                "What a document would change of what is set of a terminal; nothing is changed",
                self._preview,
                OPERATORS,
                tenancy=Tenancy.VEHICLE,
                recorded=False,
                query=models.PreviewQuery,
                body=models.SettingsBody,
                most=MIDDLE,
                answers=models.SettingsPreview,
            ),
            Endpoint(
                "GET",
                of_gateway,
                "What is set of a gateway itself from afar, and what has become of it",
                self._get_of_gateway,
                READERS,
                answers=models.GatewaySettings,
            ),
            Endpoint(
                "PUT",
                of_gateway,
                "Set policies, migration rules and terminals' paths of a gateway; nothing: as it "
                "has them",
                self._put_of_gateway,
                OPERATORS,
                headers=["If-Match", "If-None-Match"],
                body=models.GatewaySettingsBody,
                most=MIDDLE,
                answers=models.GatewaySettings,
            ),
            Endpoint(
                "POST",
                of_gateway + "/preview",
                "What a document would change of what is set of a gateway; nothing is changed",
                self._preview_of_gateway,
                OPERATORS,
                recorded=False,
                body=models.GatewaySettingsBody,
                most=MIDDLE,
                answers=models.SettingsPreview,
            ),
        ]

    async def _page(self, call: Call) -> models.SettingsList:
        query = call.query(Page)
        async with self._database.reading() as connection:
            rows = await settings.page(
                connection, after=number_after(query.cursor), limit=query.limit
            )
        last = next_page(rows, query.limit, lambda row: row.terminal)
        return models.SettingsList(settings=[_shown(row) for row in rows], next=last)

    async def _get(self, call: Call) -> Answer:
        terminal = call.path_number("terminal")
        async with self._database.reading() as connection:
            row = await settings.get(connection, terminal)
        if row is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"nothing is set of terminal {terminal}")
        return _answer(row)

    async def _put(self, call: Call) -> Answer:
        terminal = call.path_number("terminal")
        document = call.body(models.SettingsBody).document()
        try:
            return _answer(await self._set(call, terminal, document, tables.TerminalSettings))
        except IntegrityError as error:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}") from error

    async def _preview(self, call: Call) -> Answer:
        terminal = call.path_number("terminal")
        document = call.body(models.SettingsBody).document()
        async with self._database.reading() as connection:
            if await registry.get(connection, tables.Terminal, terminal) is None:
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}")
            row = await settings.get(connection, terminal)
            states = await links.page(connection, terminal=terminal)
        if call.query(models.PreviewQuery).merged:
            document = laid_over(NOTHING if row is None else row.document, document)
        _check_size(terminal, document)
        return _previewed(row, document, _unreported(states, document))

    async def _preview_of_gateway(self, call: Call) -> Answer:
        gateway = _gateway_of(call)
        document = call.body(models.GatewaySettingsBody).document()
        _check_size(gateway, document)
        async with self._database.reading() as connection:
            row = await settings.get(connection, gateway, table=tables.GatewaySettings)
        return _previewed(row, document)

    async def _get_of_gateway(self, call: Call) -> Answer:
        gateway = call.path_number("gateway")
        async with self._database.reading() as connection:
            row = await settings.get(connection, gateway, table=tables.GatewaySettings)
        if row is None:
            raise Problem(HTTPStatus.NOT_FOUND, f"nothing is set of gateway {gateway}")
        return _answer_of_gateway(row)

    async def _put_of_gateway(self, call: Call) -> Answer:
        gateway = _gateway_of(call)
        document = call.body(models.GatewaySettingsBody).document()
        row = await self._set(call, gateway, document, tables.GatewaySettings)
        return _answer_of_gateway(row)

    async def _set(
        self, call: Call, node: int, document: dict[str, Any], table: settings.Table
    ) -> Row[Any]:
        _check_size(node, document)
        of_gateway = table is tables.GatewaySettings
        now_ms = self._database.clock.now_ms()
        async with self._changes.transaction() as (connection, publish):
            tenant = None
            if not of_gateway:
                owner = await registry.get(connection, tables.Terminal, node)
                tenant = None if owner is None else owner.tenant_id
            before = await settings.get(connection, node, table=table)
            expected = replaced(call, _version_of(before))
            row = await settings.put(
                connection, node, document, now_ms, table=table, replaced=expected
            )
            publish(settings.change_of(node, row.version, "set", by_gateway=of_gateway))
            was = None if before is None else before.document
            target = f"/v1/{'gateways' if of_gateway else 'terminals'}/{node}/settings"
            await call.record(connection, Changed("set", target, tenant, was, document))
        return row


def _gateway_of(call: Call) -> int:
    """Return the gateway of a call that may be the first to set something of it."""
    gateway = call.path_number("gateway")
    if not 1 <= gateway <= MOST_NODE:
        raise Problem(HTTPStatus.NOT_FOUND, f"{gateway} is no node's number")
    return gateway


def _check_size(node: int, document: dict[str, Any]) -> None:
    if not settings.fits(node, document):
        detail = f"settings may have {settings.MOST_BYTES} bytes"
        raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, detail)


def _unreported(states: Sequence[links.LinkState], document: dict[str, Any]) -> list[str] | None:
    """Return the paths of a document that the terminal would refuse, by what it has reported.

    A terminal reports all paths that it has, idle ones too, but of classes only those in use. A
    path with a neighbour is made by the document. None: there is no such path, or it is not known.
    """
    for state in states:
        reported = links.paths_of(state) if state.node == state.terminal else None
        if reported is not None:
            own = [one["name"] for one in document["path"] if "neighbour" not in one]
            return [name for name in own if name not in reported] or None
    return None


def _previewed(
    row: Row[Any] | None, document: dict[str, Any], unreported: list[str] | None = None
) -> Answer:
    """Return what a document would change; its ETag is of what is set now."""
    changes = differences(NOTHING if row is None else row.document, document)
    preview = models.SettingsPreview(
        version=None if row is None else row.version,
        changes=[
            models.SettingsChange(key=one.key, before=one.before, after=one.after)
            for one in changes
        ],
        unreported_paths=unreported,
    )
    return Answer(preview, HTTPStatus.OK, {"ETag": etag(_version_of(row))})


def _version_of(row: Row[Any] | None) -> int:
    version: int = settings.NOTHING_SET if row is None else row.version
    return version


def _shown(row: Row[Any]) -> models.Settings:
    return models.Settings.model_validate({"terminal": row.terminal, **_standing(row)})


def _standing(row: Row[Any]) -> dict[str, Any]:
    reported = None
    if row.reported_version is not None:
        reported = models.SettingsReport(
            version=row.reported_version,
            applied=row.applied,
            state=row.reported_state,
            reason=row.reason,
            received=moment_of(row.reported_ms),
        )
    if reported is None or reported.version != row.version:
        state = "waiting"
    else:
        state = "applied" if reported.state == "confirmed" else reported.state
    return {
        "version": row.version,
        "set": moment_of(row.set_ms),
        "classes": row.document["class"],
        "paths": row.document["path"],
        "state": state,
        "reported": reported,
    }


def _answer(row: Row[Any]) -> Answer:
    return Answer(_shown(row), HTTPStatus.OK, {"ETag": etag(row.version)})


def _answer_of_gateway(row: Row[Any]) -> Answer:
    shown = models.GatewaySettings.model_validate(
        {
            "gateway": row.gateway,
            "terminals": row.document.get("terminal", []),
            **_standing(row),
        }
    )
    return Answer(shown, HTTPStatus.OK, {"ETag": etag(row.version)})
