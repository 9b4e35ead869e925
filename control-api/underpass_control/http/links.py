"""The states of links."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus

from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.http import models
from underpass_control.http.cursor import next_page, number_of, parts_after
from underpass_control.http.endpoint import EVERYBODY, READERS, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.instants import milliseconds, moment_of
from underpass_control.storage import capacities, links, registry
from underpass_control.storage.database import Database
from underpass_control.storage.models import Terminal


class Links:
    """The endpoints of link states."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        return [
            Endpoint(
                "GET",
                "/v1/links",
                "What all links do, or those of a beam or terminal",
                self._page,
                READERS,
                tenancy=Tenancy.ROWS,
                query=models.LinkQuery,
                answers=models.LinkList,
            ),
            Endpoint(
                "GET",
                "/v1/terminals/{terminal}/links",
                "What a terminal's links do, both directions",
                self._of_terminal,
                EVERYBODY,
                tenancy=Tenancy.VEHICLE,
                answers=models.LinkList,
            ),
            Endpoint(
                "GET",
                "/v1/terminals/{terminal}/carried",
                "What a terminal's links were measured, or told, to carry over time",
                self._carried,
                EVERYBODY,
                tenancy=Tenancy.VEHICLE,
                query=models.CarriedQuery,
                answers=models.CarriedList,
            ),
        ]

    async def _page(self, call: Call) -> models.LinkList:
        query = call.query(models.LinkQuery)
        async with self._database.reading() as connection:
            found = await links.page(
                connection,
                beam=query.beam,
                terminal=query.terminal,
                after=_after(query.cursor),
                limit=query.limit,
            )
        last = next_page(found, query.limit, lambda one: f"{one.terminal}:{one.link}")
        return models.LinkList(links=[_shown(state) for state in found], next=last)

    async def _of_terminal(self, call: Call) -> models.LinkList:
        terminal = call.path_number("terminal")
        async with self._database.reading() as connection:
            found = await links.page(connection, terminal=terminal)
            await _make_sure_of(connection, terminal, found)
        return models.LinkList(links=[_shown(state) for state in found])

    async def _carried(self, call: Call) -> models.CarriedList:
        query = call.query(models.CarriedQuery)
        wanted = capacities.Wanted(
            call.path_number("terminal"),
            query.link,
            None if query.since is None else milliseconds(query.since),
            None if query.until is None else milliseconds(query.until),
            query.order == "newest",
        )
        async with self._database.reading() as connection:
            found = await capacities.page(
                connection, wanted, after=_place_after(query.cursor), limit=query.limit
            )
            await _make_sure_of(connection, wanted.terminal, found)
        last = next_page(found, query.limit, lambda one: ":".join(map(str, one.place)))
        return models.CarriedList(carried=[_shown_carried(one) for one in found], next=last)


async def _make_sure_of(
    connection: AsyncConnection, terminal: int, found: Sequence[object]
) -> None:
    if not found and await registry.get(connection, Terminal, terminal) is None:
        raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}")


def _shown_carried(one: capacities.Carried) -> models.Carried:
    return models.Carried(
        start=moment_of(one.place.start_ms),
        link=one.place.link,  # type: ignore[arg-type]
        node=one.place.node,
        path=one.place.path,
        time=moment_of(one.time_ms),
        efficiency=one.efficiency,
        capacity_bps=one.capacity_bps,
        capacity_reason=one.capacity_reason,
    )


def _shown(state: links.LinkState) -> models.LinkState:
    return models.LinkState.model_validate(links.shown(state))


def _after(cursor: str | None) -> tuple[int, str] | None:
    parts = parts_after(cursor, 2)
    return None if parts is None else (number_of(parts[0]), parts[1])


def _place_after(cursor: str | None) -> capacities.Place | None:
    parts = parts_after(cursor, 5)
    if parts is None:
        return None
    start_ms, link, node, incarnation, path = parts
    return capacities.Place(
        number_of(start_ms), link, number_of(node), number_of(incarnation), path
    )
