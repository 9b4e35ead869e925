"""The newest plans, ready to send; each is prepared once for all gateways that follow it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import structlog
from sqlalchemy import select

from dama.planner import Link
from underpass_control.metrics import Metrics
from underpass_control.planning import stored
from underpass_control.planning.published import MOST_DOCUMENT_BYTES
from underpass_control.planning.seen_terms import SeenTerms
from underpass_control.planning.stored import StoredPlan
from underpass_control.planning.wire import WirePlan, gateways_alone
from underpass_control.storage.attachments import SERVED_BY
from underpass_control.storage.database import Database
from underpass_control.storage.models import Terminal

_LOG = structlog.get_logger()
Key = tuple[str, Link]
# Documents kept: one for each link and gateway that is followed.
_MOST_DOCUMENTS = 256


@dataclass
class _Newest:
    """The newest plan of a link, as far as this process has needed it."""

    # The newest version that is known to exist.
    heard: int = 0
    version: int = 0
    wire: WirePlan | None = None
    # Locked while a new plan is read, or made by this process.
    coming: asyncio.Lock = field(default_factory=asyncio.Lock)


@dataclass(frozen=True)
class Outgoing:
    """A plan in the form that one gateway is sent."""

    version: int
    document: bytes

    @property
    def is_refused(self) -> bool:
        """Whether it is too large for a gateway, which would end the stream each time."""
        return len(self.document) > MOST_DOCUMENT_BYTES


class NewestPlans:
    """Reads and prepares each new plan once, and signals its arrival."""

    def __init__(self, database: Database, metrics: Metrics) -> None:
        self._database = database
        self._metrics = metrics
        self._newest: dict[Key, _Newest] = {}
        # By beam, the gateway of each terminal; read again once one has changed.
        self._gateways: dict[str, Mapping[int, int | None]] = {}
        # By gateway, the beams of its terminals.
        self._beams: dict[int, frozenset[str]] = {}
        # Rises with each change of these two; a reading made during a change is not cached.
        self._changed = 0
        self._documents: OrderedDict[tuple[Key, int], Outgoing] = OrderedDict()
        self._news = asyncio.Event()
        self._terms = SeenTerms()
        # Counts the changes that may concern settings for a gateway.
        self.settings_changed = 0

    def on_change(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in a change."""
        if kind == "plans":
            newest = self._newest.setdefault((data["beam"], Link(data["link"])), _Newest())
            newest.heard = max(newest.heard, data["plan"])
            self._wake()
        elif kind == "settings" and data["action"] == "set":
            self.settings_changed += 1
            self._wake()
        elif kind == "beam" or (kind == "terminal" and self._terms.differ(data)):
            self._forget_gateways()
            self.settings_changed += 1
            if data.get("action") == "deleted" and kind == "beam":
                for link in Link:
                    self._newest.pop((data["beam"], link), None)
            self._wake()

    def on_missed(self) -> None:
        """Take in that changes may have been missed."""
        self._newest.clear()
        self._terms.forget()
        self._forget_gateways()
        self.settings_changed += 1
        self._wake()

    @asynccontextmanager
    async def making(self, key: Key) -> AsyncIterator[Callable[[int, WirePlan], None]]:
        """Make a plan in this process; once stored, it need not be read from the database."""
        newest = self._newest.setdefault(key, _Newest())

        def made(version: int, wire: WirePlan) -> None:
            newest.version, newest.wire = version, wire

        # A stream that learns of the plan before the caller has passed it on waits here.
        async with newest.coming:
            yield made

    def news_event(self) -> asyncio.Event:
        """Return the event that is set with the next change."""
        return self._news

    async def links_of(self, gateway: int) -> list[Key]:
        """Return the links of the beams that a gateway has terminals of."""
        beams = self._beams.get(gateway)
        if beams is None:
            serves = SERVED_BY.in_([gateway])
            query = select(Terminal.beam_id).where(serves).distinct()
            age = self._changed
            async with self._database.reading() as connection:
                beams = frozenset(await connection.scalars(query))
            if age == self._changed:
                self._beams[gateway] = beams
        return [(beam, link) for beam in sorted(beams) for link in Link]

    async def newest(self, key: Key, gateway: int, above: int) -> Outgoing | None:
        """Return the newest plan of a link for a gateway, if its version is above another."""
        newest = self._newest.setdefault(key, _Newest())
        if 0 < newest.heard <= above:
            return None
        version, wire = await self._wire(key, newest)
        if wire is None or version <= above:
            return None
        kept = self._documents.get((key, gateway))
        if kept is not None and kept.version == version:
            self._documents.move_to_end((key, gateway))
            return None if kept.is_refused else kept
        gateways = await self._gateways_of(key[0])
        mine = {node for node, of in gateways.items() if of == gateway}
        alone = gateways_alone(gateways, gateway)
        text = await asyncio.to_thread(wire.document, version, mine, alone=alone)
        outgoing = Outgoing(version, text.encode())
        if outgoing.is_refused:
            self._metrics.planning_failures.labels("size").inc()
            _LOG.error(
                "a plan is not sent: no gateway takes a document of its size",
                beam=key[0],
                link=key[1].value,
                plan=version,
                gateway=gateway,
                bytes=len(outgoing.document),
            )
        self._documents[key, gateway] = outgoing
        while len(self._documents) > _MOST_DOCUMENTS:
            self._documents.popitem(last=False)
        return None if outgoing.is_refused else outgoing

    async def _wire(self, key: Key, newest: _Newest) -> tuple[int, WirePlan | None]:
        async with newest.coming:
            if newest.wire is None or not 0 < newest.heard <= newest.version:
                async with self._database.reading() as connection:
                    plan = await stored.current_plan(connection, *key)
                if plan is not None and plan.version > newest.version:
                    newest.wire = await asyncio.to_thread(_wire_of, plan)
                    newest.version = plan.version
                newest.heard = max(newest.heard, newest.version)
            return newest.version, newest.wire

    async def _gateways_of(self, beam: str) -> Mapping[int, int | None]:
        gateways = self._gateways.get(beam)
        if gateways is None:
            serving = SERVED_BY.label("serving")
            query = select(Terminal.node, serving).where(Terminal.beam_id == beam)
            age = self._changed
            async with self._database.reading() as connection:
                rows = (await connection.execute(query)).all()
            gateways = {row.node: row.serving for row in rows}
            if age == self._changed:
                self._gateways[beam] = gateways
        return gateways

    def _forget_gateways(self) -> None:
        self._changed += 1
        self._gateways.clear()
        self._beams.clear()

    def _wake(self) -> None:
        self._news.set()
        self._news = asyncio.Event()


def _wire_of(plan: StoredPlan) -> WirePlan:
    return WirePlan(plan.made)
