"""The states of links: the newest report of each direction of each terminal's link."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any

from sqlalchemy import select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.instants import milliseconds_of, moment_of, rfc3339
from underpass_control.storage.bulk import BulkInsert
from underpass_control.storage.changes import Change, listed
from underpass_control.storage.membership import among
from underpass_control.storage.models import LinkState as Table
from underpass_control.storage.models import Terminal

# A link that is down at one node may be up at another, to which the terminal has moved: the former
# counts only once the other has been silent for this long. Idle links are reported every 10 s.
_MOVED_AFTER_MS = 25_000
# The most paths beside the beam's that are kept of a link.
MOST_OTHER_PATHS = 8


@dataclass(frozen=True, slots=True)
class LinkState:
    """What a direction of a terminal's link does; the fields are those of the table."""

    terminal: int
    link: str
    node: int
    incarnation: int
    uptime_ms: int
    time_ms: int
    received_ms: int
    gateway: int
    path: str
    state: str
    offered_bytes: int
    sent_bytes: int
    backlogged_bytes: int
    streams: int
    rate_bps: int | None = None
    plan: int | None = None
    efficiency: float = 1.0
    efficiency_told: bool = False
    capacity_bps: int | None = None
    capacity_reason: str | None = None
    clock_offset_ms: int | None = None
    synchronised: bool = False
    # JSON, as the node has said it: no plan goes by it.
    figures: str | None = None

    @property
    def key(self) -> tuple[int, str]:
        """Whose it is."""
        return self.terminal, self.link

    def replaces(self, known: LinkState | None) -> bool:
        """Tell whether it is later than the known state, and replaces it."""
        if known is None:
            return True
        if known.node == self.node:
            return (self.incarnation, self.uptime_ms) > (known.incarnation, known.uptime_ms)
        patience = _MOVED_AFTER_MS if self.state == "down" else 0
        return self.time_ms > known.time_ms + patience


_COLUMNS = tuple(one.name for one in fields(LinkState))
_values = attrgetter(*_COLUMNS)
_CHANGES = ", ".join(f"{name} = excluded.{name}" for name in _COLUMNS[2:])
_PATIENCE = f"CASE excluded.state WHEN 'down' THEN {_MOVED_AFTER_MS} ELSE 0 END"
# The same rule as `replaces`: another process may have stored a later state meanwhile.
_LATER = (
    "CASE WHEN excluded.node = link_state.node THEN"
    " (excluded.incarnation, excluded.uptime_ms) > (link_state.incarnation, link_state.uptime_ms)"
    f" ELSE excluded.time_ms > link_state.time_ms + {_PATIENCE} END"
)
_PUT = BulkInsert(Table, _COLUMNS, f"(terminal, link) DO UPDATE SET {_CHANGES} WHERE {_LATER}")


async def put(connection: AsyncConnection, states: Iterable[LinkState]) -> None:
    """Store states, one for each link; what is known already to be older changes nothing."""
    await _PUT.execute(connection, list(map(_values, sorted(states, key=lambda one: one.key))))


async def of_terminals(
    connection: AsyncConnection, terminals: Sequence[int]
) -> dict[tuple[int, str], LinkState]:
    """Return the states of some terminals' links, by terminal and direction."""
    rows = await connection.execute(select(Table.__table__).where(Table.terminal.in_(terminals)))
    states = (LinkState(**row) for row in rows.mappings())
    return {state.key: state for state in states}


async def of_beam(
    connection: AsyncConnection, beam: str, terminals: Collection[int] | None = None
) -> dict[tuple[int, str], LinkState]:
    """Return the states of a beam's links, or of some terminals' of it, as `of_terminals` does."""
    rows = await connection.execute(
        select(Table.__table__)
        .join(Terminal, Terminal.node == Table.terminal)
        .where(among(beam, terminals))
        .order_by(Table.terminal, Table.link)
    )
    states = (LinkState(**row) for row in rows.mappings())
    return {state.key: state for state in states}


async def page(
    connection: AsyncConnection,
    *,
    beam: str | None = None,
    terminal: int | None = None,
    after: tuple[int, str] | None = None,
    limit: int | None = None,
) -> list[LinkState]:
    """Return states behind a terminal and direction, in order of both."""
    query = select(Table.__table__).order_by(Table.terminal, Table.link).limit(limit)
    if beam is not None:
        query = query.join(Terminal, Terminal.node == Table.terminal).where(
            Terminal.beam_id == beam
        )
    if terminal is not None:
        query = query.where(Table.terminal == terminal)
    if after is not None:
        query = query.where(tuple_(Table.terminal, Table.link) > after)
    rows = await connection.execute(query)
    return [LinkState(**row) for row in rows.mappings()]


def changes_of(states: Iterable[LinkState]) -> Iterator[Change]:
    """Return what is announced of states, some in each change."""
    return listed("links", map(shown, states))


def shown(state: LinkState) -> dict[str, Any]:
    """Return a state as the API shows it."""
    # Not `asdict`, which copies deeply: thousands are shown each second.
    named = zip(_COLUMNS, _values(state), strict=True)
    document = {name: value for name, value in named if value is not None}
    document["time"] = rfc3339(moment_of(document.pop("time_ms")))
    document["received"] = rfc3339(moment_of(document.pop("received_ms")))
    if state.figures is not None:
        document["figures"] = json.loads(state.figures)
    return document


def paths_of(state: LinkState) -> set[str] | None:
    """Return all paths that a link's node has reported; None if some of them are not kept.

    Of nodes of earlier versions, which report no figures, only one is.
    """
    if state.figures is None:
        return None
    figures = json.loads(state.figures)
    others = figures.get("other_paths", [])
    # Earlier versions did not say how many are left out.
    if "unlisted_paths" in figures or len(others) >= MOST_OTHER_PATHS:
        return None
    return {state.path, *(one["path"] for one in others)}


def of_change(change: Mapping[str, Any]) -> Iterator[LinkState]:
    """Yield the states that a change of the kind `links` tells."""
    for one in change["links"]:
        values = {**one, "time_ms": milliseconds_of(one["time"])}
        values["received_ms"] = milliseconds_of(one["received"])
        if "figures" in one:
            values["figures"] = json.dumps(one["figures"])
        del values["time"], values["received"]
        yield LinkState(**values)
