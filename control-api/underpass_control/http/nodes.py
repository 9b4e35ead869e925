"""Nodes' reports about themselves: their software, and the expiry of their certificates."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from sqlalchemy.engine import Row

from underpass_control.http import models
from underpass_control.http.cursor import next_page, number_of, parts_after
from underpass_control.http.endpoint import EVERYBODY, READERS, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import moment_of
from underpass_control.storage import nodes
from underpass_control.storage.database import Database


class Nodes:
    """The endpoints of what nodes say of themselves."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        return [
            Endpoint(
                "GET",
                "/v1/nodes",
                "What all terminals and gateways have said of themselves: software, certificates",
                self._page,
                READERS,
                tenancy=Tenancy.ROWS,
                query=models.NodeQuery,
                answers=models.NodeList,
            ),
            Endpoint(
                "GET",
                "/v1/terminals/{terminal}/node",
                "What a terminal has said of itself: its software, and its certificate's end",
                self._of_terminal,
                EVERYBODY,
                tenancy=Tenancy.VEHICLE,
                answers=models.NodeReport,
            ),
        ]

    async def _page(self, call: Call) -> models.NodeList:
        query = call.query(models.NodeQuery)
        parts = parts_after(query.cursor, 2)
        after = None if parts is None else (number_of(parts[0]), parts[1])
        async with self._database.reading() as connection:
            rows = await nodes.page(connection, after=after, limit=query.limit, role=query.role)
        last = next_page(rows, query.limit, lambda row: f"{row.node}:{row.role}")
        return models.NodeList(nodes=[_shown(row) for row in rows], next=last)

    async def _of_terminal(self, call: Call) -> models.NodeReport:
        terminal = call.path_number("terminal")
        async with self._database.reading() as connection:
            is_known, row = await nodes.of_terminal(connection, terminal)
        if not is_known:
            raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}")
        if row is None:
            return models.NodeReport(node=terminal, role="terminal")
        return _shown(row)


def _shown(row: Row[Any]) -> models.NodeReport:
    end_ms = row.certificate_end_ms
    return models.NodeReport(
        node=row.node,
        role=row.role,
        version=row.version,
        certificate_end=None if end_ms is None else moment_of(end_ms),
        reported=moment_of(row.time_ms),
    )
