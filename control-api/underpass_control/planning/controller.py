"""A beam's controller: what its lease's holder runs.

It hears what changes, feeds the predictions and demands with it, and has the beam planned anew when
`BeamPlanner` says so.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import structlog

from dama.planner import Link, Plan, PlanError, Request, plan
from dama.planner.text import plan_document, text
from dama.prediction import Fix, FixError, ObstructionMap
from underpass_control.demand import Demands
from underpass_control.instants import milliseconds_of
from underpass_control.metrics import Metrics
from underpass_control.planning import stored
from underpass_control.planning.beam_planner import BeamPlanner, Demand, Reason
from underpass_control.planning.delays import Delays
from underpass_control.planning.lease import FencedError
from underpass_control.planning.outlet import Outlet
from underpass_control.planning.terms import terms_of
from underpass_control.planning.wire import WirePlan
from underpass_control.prediction import Predictions
from underpass_control.storage import links
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database, DatabaseLostError

_LOG = structlog.get_logger()
# Changes of so long are planned with together.
_GATHER_S = 0.01
# What only time changes is looked at so often.
_TICK_S = 1.0
_AT_ONCE_S = 0.01
_AGAIN_S = 0.5
# Changes that wait; beyond, what is known is read anew.
_MOST_WAITING = 20_000

Change = Callable[["BeamController"], None]


@dataclass(frozen=True)
class Tools:
    """What all controllers of a process share."""

    database: Database
    changes: Changes
    metrics: Metrics
    outlet: Outlet
    # Who holds the leases.
    holder: str


@dataclass(frozen=True)
class _Worked:
    """What comes of planning, before it is stored."""

    request: Request
    plan: Plan
    document: str
    wire: WirePlan


class BeamController:
    """Plans one beam while its lease is held with a fence."""

    def __init__(
        self,
        tools: Tools,
        beam: str,
        fence: int,
        obstructions: ObstructionMap,
        serves: Callable[[BeamController, Collection[int]], None],
    ) -> None:
        """Take, too, whom to tell which terminals the beam has."""
        self.beam = beam
        self.fence = fence
        self._tools = tools
        self._serves = serves
        self._planner = BeamPlanner(beam)
        self._predictions = Predictions(obstructions)
        self._demands = Demands()
        self._delays = Delays()
        self._nodes: set[int] = set()
        self._waiting: deque[tuple[str, Mapping[str, Any]]] = deque()
        # Terminals of which something has come; those that a blockage is expected of.
        self._changed: set[int] = set()
        self._ahead: set[int] = set()
        self._wake = asyncio.Event()
        self._ending = False
        self._first_heard: float | None = None
        self._stale_terms = True
        self._stale = True
        self._demands_seen = 0.0

    def heard(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in a change that concerns the beam or a terminal of it."""
        if kind in ("beam", "terminal"):
            self._stale_terms = True
        elif len(self._waiting) >= _MOST_WAITING:
            self.missed()
        else:
            self._waiting.append((kind, data))
        if self._first_heard is None:
            self._first_heard = time.monotonic()
        self._wake.set()

    def missed(self) -> None:
        """Take in that changes may have been missed."""
        self._waiting.clear()
        self._stale = self._stale_terms = True
        self._wake.set()

    def set_map(self, obstructions: ObstructionMap) -> None:
        """Take another map."""
        self._predictions.set_map(obstructions)
        self._changed.update(self._nodes)
        self._wake.set()

    def stop(self) -> None:
        """Have `run` return once what it is at is done."""
        self._ending = True
        self._wake.set()

    async def run(self) -> None:
        """Plan until the lease or the beam is gone."""
        try:
            while not self._ending:
                try:
                    if not await self._step():
                        return
                except DatabaseLostError as error:
                    self._tools.metrics.planning_failures.labels("database").inc()
                    _LOG.warning("cannot plan", beam=self.beam, error=str(error))
                    self._stale = self._stale_terms = True
                    await asyncio.sleep(_AGAIN_S)
                    continue
                try:
                    async with asyncio.timeout(_TICK_S):
                        await self._wake.wait()
                except TimeoutError:
                    continue
                await asyncio.sleep(_GATHER_S)
        except FencedError as error:
            _LOG.info("another process plans the beam", beam=self.beam, error=str(error))
        finally:
            self._forget_metrics()

    async def _step(self) -> bool:
        """Take in what has come, and plan what is due; return whether the beam is there."""
        self._wake.clear()
        if self._stale_terms:
            self._stale_terms = False
            if not await self._read_terms():
                return False
        if self._stale:
            self._stale = False
            await self._read_reports()
        heard, self._first_heard = self._first_heard, None
        self._take_waiting()
        now_ms = _now_ms()
        await self._look_ahead(now_ms)
        self._look_at_demands(now_ms)
        due = self._planner.due(now_ms)
        await asyncio.gather(
            *(self._plan(link, reason, now_ms, heard) for link, reason in due.items())
        )
        return True

    async def _read_terms(self) -> bool:
        async with self._tools.database.reading() as connection:
            terms = await terms_of(connection, self.beam)
        if terms is None:
            return False
        known = self._nodes
        nodes = set(terms.terminals[Link.FORWARD])
        for gone in known - nodes:
            self._predictions.forget(gone)
            self._demands.forget(gone)
            self._ahead.discard(gone)
        if nodes - known:
            self._stale = True
        self._nodes = nodes
        self._delays.one_way_ms = terms.one_way_delay_ms
        for link in Link:
            self._planner.set_terms(
                link, terms.capacity[link], terms.terminals[link], terms.one_way_delay_ms
            )
        self._serves(self, nodes)
        return True

    async def _read_reports(self) -> None:
        async with self._tools.database.reading() as connection:
            for state in await links.page(connection, beam=self.beam):
                self._demands.take(state.terminal, Link(state.link), state)

    def _take_waiting(self) -> None:
        while self._waiting:
            kind, data = self._waiting.popleft()
            if kind == "positions":
                for one in data["positions"]:
                    if one["terminal"] in self._nodes:
                        self._feed(one)
            elif kind == "links":
                for state in links.of_change(data):
                    if state.terminal in self._nodes:
                        self._demands.take(state.terminal, Link(state.link), state)
            elif kind == "acknowledgements":
                self._delays.acknowledged(
                    Link(data["link"]), data["after_ms"], by_terminal=data["node"] in self._nodes
                )

    def _feed(self, position: Mapping[str, Any]) -> None:
        try:
            fix = Fix(
                milliseconds_of(position["time"]),
                position["longitude"],
                position["latitude"],
                position.get("speed_mps"),
                position.get("heading_deg"),
                position.get("accuracy_m"),
            )
        except FixError:
            return
        if self._predictions.feed(position["terminal"], fix):
            self._changed.add(position["terminal"])

    async def _look_ahead(self, now_ms: int) -> None:
        """Look at what is predicted of those who have reported, or have a blockage ahead."""
        changed, self._changed = self._changed | self._ahead, set()
        began = time.monotonic()
        for terminal in changed:
            blockages = self._predictions.blockages_of(terminal, now_ms)
            self._planner.expect(terminal, blockages, now_ms)
            if blockages:
                self._ahead.add(terminal)
            else:
                self._ahead.discard(terminal)
            if time.monotonic() - began > _AT_ONCE_S:
                # A thousand terminals at once must not hold up everybody else.
                await asyncio.sleep(0)
                began = time.monotonic()

    def _look_at_demands(self, now_ms: int) -> None:
        if time.monotonic() - self._demands_seen < _TICK_S:
            return
        self._demands_seen = time.monotonic()
        for link in Link:
            demands = {
                node: Demand(
                    self._demands.demand_bps(node, link, now_ms),
                    self._demands.efficiency(node, link),
                )
                for node in self._nodes
            }
            self._planner.set_demands(link, demands, now_ms)

    async def _plan(self, link: Link, reason: Reason, now_ms: int, heard: float | None) -> None:
        metrics = self._tools.metrics
        request = self._planner.request(link, now_ms, self._delays.of(link), {})
        began = time.perf_counter()
        try:
            worked = await asyncio.to_thread(_work, request)
        except PlanError as error:
            metrics.planning_failures.labels("request").inc()
            _LOG.warning("no plan", beam=self.beam, link=link.value, error=str(error))
            self._planner.refused(link, now_ms)
            return
        metrics.planning_seconds.observe(time.perf_counter() - began)
        await self._store(worked, reason)
        if heard is not None:
            metrics.report_to_plan_seconds.observe(time.monotonic() - heard)

    async def _store(self, worked: _Worked, reason: Reason) -> None:
        link = worked.request.link
        async with self._tools.outlet.making((self.beam, link)) as made:
            async with self._tools.changes.transaction() as (connection, announce):
                plan = await stored.store(
                    connection,
                    announce,
                    worked.plan,
                    worked.document,
                    holder=self._tools.holder,
                    fence=self.fence,
                    reason=reason.value,
                )
            made(plan.version, worked.wire)
        self._planner.taken(worked.request, worked.plan)
        metrics = self._tools.metrics
        metrics.plans.labels(link.value, reason.value).inc()
        labels = (self.beam, link.value)
        metrics.plan_version.labels(*labels).set(plan.version)
        metrics.plan_ends.labels(*labels).set(plan.end_ms / 1000)
        metrics.signalling_delay_seconds.labels(*labels).set(
            worked.request.signalling_delay_ms / 1000
        )
        _LOG.info(
            "planned",
            beam=self.beam,
            link=link.value,
            plan=plan.version,
            reason=reason.value,
            blockages=len(worked.request.blockages),
        )

    def _forget_metrics(self) -> None:
        metrics = self._tools.metrics
        gauges = (metrics.plan_version, metrics.plan_ends, metrics.signalling_delay_seconds)
        for gauge in gauges:
            gauge.remove_by_labels({"beam": self.beam})


def _work(request: Request) -> _Worked:
    made = plan(request)
    return _Worked(request, made, text(plan_document(made)), WirePlan(made))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
