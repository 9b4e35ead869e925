"""The lines that terminals will drive."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction.places import Line
from underpass_control.storage.changes import RevisionError
from underpass_control.storage.membership import among, portions_of
from underpass_control.storage.models import Route, Terminal

# The routes that are decoded at once: each may have ten thousand places.
_AT_ONCE = 5


async def put(
    connection: AsyncConnection, terminal: int, line: Line, *, replaced: int | None = None
) -> int:
    """Set a terminal's route; return its revision.

    Raises:
        IntegrityError: The terminal is not known.
        RevisionError: `replaced` is given and is not the route's revision.
    """
    geometry = {"type": "LineString", "coordinates": [list(place) for place in line]}
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    made = dialect.insert(Route).values(terminal=terminal, geometry=geometry)
    changed = made.on_conflict_do_update(
        index_elements=["terminal"],
        set_={"geometry": geometry, "revision": Route.revision + 1},
        where=None if replaced is None else Route.revision == replaced,
    ).returning(Route.revision)
    revision: int | None = (await connection.execute(changed)).scalar_one_or_none()
    if revision is None:
        raise RevisionError
    return revision


async def get(connection: AsyncConnection, terminal: int) -> Row[Any] | None:
    """Return the row of a terminal's route."""
    found = await connection.execute(select(Route.__table__).where(Route.terminal == terminal))
    return found.one_or_none()


async def remove(
    connection: AsyncConnection, terminal: int, *, replaced: int | None = None
) -> None:
    """Delete a terminal's route, if there is one.

    Raises:
        RevisionError: `replaced` is given and is not the route's revision.
    """
    gone = delete(Route).where(Route.terminal == terminal)
    if replaced is not None:
        gone = gone.where(Route.revision == replaced)
    if (await connection.execute(gone)).rowcount == 0 and replaced is not None:
        raise RevisionError


async def of_beam(
    connection: AsyncConnection, beam: str, terminals: Collection[int] | None = None
) -> dict[int, Line]:
    """Return the routes of a beam's terminals, or of some of them."""
    theirs = select(Route.terminal).join(Terminal, Terminal.node == Route.terminal)
    known = await connection.scalars(theirs.where(among(beam, terminals)))
    return await _lines(connection, sorted(known))


async def of_terminals(connection: AsyncConnection, terminals: Collection[int]) -> dict[int, Line]:
    """Return the routes of those of some terminals that have one."""
    known: list[int] = []
    for some in portions_of(terminals):
        known += await connection.scalars(select(Route.terminal).where(Route.terminal.in_(some)))
    return await _lines(connection, known)


async def _lines(connection: AsyncConnection, terminals: Sequence[int]) -> dict[int, Line]:
    """Return routes, by terminal; other work goes on between a few of them and the next."""
    lines: dict[int, Line] = {}
    for start in range(0, len(terminals), _AT_ONCE):
        some = terminals[start : start + _AT_ONCE]
        rows = await connection.execute(
            select(Route.terminal, Route.geometry).where(Route.terminal.in_(some))
        )
        lines |= {row.terminal: line_of(row.geometry) for row in rows}
    return lines


def line_of(geometry: dict[str, Any]) -> Line:
    """Return the line of a stored geometry."""
    return tuple((lon, lat) for lon, lat in geometry["coordinates"])
