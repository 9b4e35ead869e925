"""Makes the NCCs of this process's beams follow their plans."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog
from sqlalchemy import select

from dama.planner import Link
from underpass_control.clock import Clock
from underpass_control.metrics import Metrics
from underpass_control.opensand.allocation import Allocation
from underpass_control.opensand.ncc import Ncc
from underpass_control.opensand.plans import version_of
from underpass_control.opensand.request import Request
from underpass_control.planning import stored
from underpass_control.planning.seen_terms import SeenTerms
from underpass_control.storage.changes import Change, Changes
from underpass_control.storage.database import Database, DatabaseLostError
from underpass_control.storage.models import Beam, Terminal

_LOG = structlog.get_logger()
# How often to check whether a lease has come or gone.
_LOOK_EVERY_S = 0.5
# Changes that wait to be published as events; beyond, the oldest are dropped.
_MOST_TOLD = 1_000


@dataclass(frozen=True)
class _Terms:
    """What an operator has set for a beam."""

    url: str
    lead_ms: int
    # By node, the satellite terminal.
    st_ids: Mapping[int, int]


class Station:
    """Connects to the NCC of each beam that has one, while this process holds the beam's lease."""

    def __init__(
        self,
        database: Database,
        changes: Changes,
        metrics: Metrics,
        held: Callable[[], Collection[str]],
    ) -> None:
        """Take, too, how to see which beams' leases are held."""
        self._database = database
        self._changes = changes
        self._metrics = metrics
        self._held = held
        self._followers: dict[str, _Follower] = {}
        self._known: frozenset[str] = frozenset()
        self._stale_terms = True
        self._terms = SeenTerms()
        self._stale_plans: set[str] = set()
        self._look = asyncio.Event()
        self._to_tell: asyncio.Queue[Change] = asyncio.Queue(_MOST_TOLD)
        self._tasks: list[asyncio.Task[None]] = []

    def on_change(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in a change."""
        if kind == "plans" and data["link"] == Link.RETURN.value:
            self._stale_plans.add(data["beam"])
        elif kind == "beam" or (kind == "terminal" and self._terms.differ(data)):
            self._stale_terms = True
        elif kind != "lease":
            return
        self._look.set()

    def on_missed(self) -> None:
        """Take in that changes may have been missed."""
        self._terms.forget()
        self._stale_terms = True
        self._stale_plans.update(self._followers)
        self._look.set()

    def start(self) -> None:
        """Begin."""
        self._tasks = [
            asyncio.create_task(self._run(), name="opensand"),
            asyncio.create_task(self._tell_for_ever(), name="opensand events"),
        ]

    async def close(self) -> None:
        """Disconnect from all NCCs; they keep their last rates."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for beam in list(self._followers):
            await self._let_go(beam)

    async def _run(self) -> None:
        while True:
            self._look.clear()
            try:
                await self._keep_up()
            except Exception as error:
                # The stored plans are still followed. No caller waits for this task.
                is_lost = isinstance(error, DatabaseLostError)
                _LOG.warning(
                    "plans for an NCC cannot be read", error=str(error), exc_info=not is_lost
                )
                self.on_missed()
                await asyncio.sleep(_LOOK_EVERY_S)
            with suppress(TimeoutError):
                async with asyncio.timeout(_LOOK_EVERY_S):
                    await self._look.wait()

    async def _keep_up(self) -> None:
        held = frozenset(self._held())
        if self._stale_terms or held != self._known:
            self._stale_terms = False
            terms = await self._read_terms(held)
            self._known = held
            for beam in self._followers.keys() - terms.keys():
                await self._let_go(beam)
            for beam, found in terms.items():
                known = self._followers.get(beam)
                if known is not None and known.terms.url != found.url:
                    await self._let_go(beam)
                    known = None
                if known is None:
                    self._followers[beam] = self._follower(beam, found)
                elif known.terms != found:
                    known.terms = found
                else:
                    continue
                self._stale_plans.add(beam)
        stale, self._stale_plans = self._stale_plans & self._followers.keys(), set()
        for beam in stale:
            async with self._database.reading() as connection:
                plan = await stored.current_plan(connection, beam, Link.RETURN)
            if plan is not None and beam in self._followers:
                await self._followers[beam].follow(plan)

    async def _read_terms(self, held: Collection[str]) -> dict[str, _Terms]:
        if not held:
            return {}
        async with self._database.reading() as connection:
            beams = await connection.execute(
                select(Beam.id, Beam.opensand, Beam.one_way_delay_ms).where(
                    Beam.id.in_(held), Beam.opensand.is_not(None)
                )
            )
            found = {row.id: (row.opensand, row.one_way_delay_ms) for row in beams}
            terminals = await connection.execute(
                select(Terminal.beam_id, Terminal.node, Terminal.opensand_id).where(
                    Terminal.beam_id.in_(found), Terminal.opensand_id.is_not(None)
                )
            )
            ids: dict[str, dict[int, int]] = {beam: {} for beam in found}
            for row in terminals:
                ids[row.beam_id][row.node] = row.opensand_id
        return {beam: _Terms(*one, ids[beam]) for beam, one in found.items()}

    def _follower(self, beam: str, terms: _Terms) -> _Follower:
        def may_tell() -> bool:
            return beam in self._held()

        clock = self._database.clock
        return _Follower(beam, terms, self._metrics, self._report, clock, may_tell)

    async def _let_go(self, beam: str) -> None:
        await self._followers.pop(beam).close()

    def _report(self, change: Change) -> None:
        if self._to_tell.full():
            self._to_tell.get_nowait()
        self._to_tell.put_nowait(change)

    async def _tell_for_ever(self) -> None:
        while True:
            change = await self._to_tell.get()
            # Nobody waits for it: the next change has what followers of events miss while the
            # database is away.
            try:
                async with self._changes.transaction() as (_, publish):
                    publish(change)
            except Exception as error:
                _LOG.warning("an event of an NCC is not told", error=str(error))


class _Follower:
    """One beam's NCC."""

    def __init__(
        self,
        beam: str,
        terms: _Terms,
        metrics: Metrics,
        report: Callable[[Change], None],
        clock: Clock,
        may_tell: Callable[[], bool],
    ) -> None:
        self.terms = terms
        self._beam = beam
        self._metrics = metrics
        self._report = report
        self._allocation = Allocation()
        # By satellite terminal, its rate beyond the plan's.
        self._rounding_bps: dict[int, int] = {}
        self._ncc = Ncc(terms.url, self._allocation, self._told, clock, may_tell, self._connected)
        self._task = asyncio.create_task(self._ncc.run(), name=f"opensand {beam}")

    async def follow(self, plan: stored.StoredPlan) -> None:
        """Follow a plan; called in time before its start."""
        terms = self.terms
        version = await asyncio.to_thread(
            version_of, await plan.read(), plan.version, terms.st_ids, terms.lead_ms
        )
        self._allocation.follow(version)
        self._rounding_bps = {
            st_id: bps for st_id, bps in self._rounding_bps.items() if st_id in version.profiles
        }
        self._ncc.changed()

    async def close(self) -> None:
        """Let it go."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        for gauge in (self._metrics.opensand_connected, self._metrics.opensand_rounding_bps):
            gauge.remove_by_labels({"beam": self._beam})

    def _connected(self, connected: bool) -> None:
        self._metrics.opensand_connected.labels(self._beam).set(connected)
        self._report({"kind": "opensand", "beam": self._beam, "connected": connected})

    def _told(self, requests: list[Request]) -> None:
        self._metrics.opensand_requests.labels(self._beam).inc(len(requests))
        before = dict(self._rounding_bps)
        self._rounding_bps |= {one.st_id: one.rounding_bps for one in requests}
        rounding_bps = sum(self._rounding_bps.values())
        self._metrics.opensand_rounding_bps.labels(self._beam).set(rounding_bps)
        if self._rounding_bps == before:
            # The same rates as before, sent again.
            return
        told = {"requests": len(requests), "rounding_bps": rounding_bps}
        _LOG.info("told the NCC", beam=self._beam, **told)
        self._report({"kind": "opensand", "beam": self._beam, "connected": True, **told})
