"""What links do."""

from __future__ import annotations

from http import HTTPStatus

from underpass_control.http import models
from underpass_control.http.cursor import cursor_of, text_after
from underpass_control.http.endpoint import EVERYBODY, READERS, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.storage import links, registry
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
                query=models.LinkQuery,
                answers=models.LinkList,
            ),
            Endpoint(
                "GET",
                "/v1/terminals/{terminal}/links",
                "What a terminal's links do, both directions",
                self._of_terminal,
                EVERYBODY,
                answers=models.LinkList,
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
        last = None
        if len(found) == query.limit:
            last = cursor_of(f"{found[-1].terminal}:{found[-1].link}")
        return models.LinkList(links=[_shown(state) for state in found], next=last)

    async def _of_terminal(self, call: Call) -> models.LinkList:
        terminal = call.path_number("terminal")
        if not call.known_caller.may_read(terminal):
            raise Problem(HTTPStatus.FORBIDDEN, "a terminal sees its own data only")
        async with self._database.reading() as connection:
            found = await links.page(connection, terminal=terminal)
            if not found and await registry.get(connection, Terminal, terminal) is None:
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no terminal {terminal}")
        return models.LinkList(links=[_shown(state) for state in found])


def _shown(state: links.LinkState) -> models.LinkState:
    return models.LinkState.model_validate(links.shown(state))


def _after(cursor: str | None) -> tuple[int, str] | None:
    text = text_after(cursor)
    if text is None:
        return None
    number, _, link = text.partition(":")
    if not (number.isascii() and number.isdigit() and len(number) < 19):
        raise Problem(HTTPStatus.BAD_REQUEST, "the cursor is none of this list's")
    return int(number), link
