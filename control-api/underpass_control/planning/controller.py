"""A beam's controller, which the holder of its lease runs.

It follows changes, and makes a new plan when `BeamPlanner` says so. Each second it also settles the
periods that are due, and stores expectations and learned places.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

import structlog

from dama.planner import Link, Plan, PlanError, Request, plan
from dama.planner.shortening import shortened
from dama.planner.text import plan_document, text
from dama.prediction import Blockage, ObstructionMap
from underpass_control.metrics import Metrics
from underpass_control.planning import lease, stored
from underpass_control.planning.beam_planner import BeamPlanner, Reason
from underpass_control.planning.delays import Delays
from underpass_control.planning.knowledge import Knowledge
from underpass_control.planning.lease import FencedError
from underpass_control.planning.maps import Maps
from underpass_control.planning.newest_plans import NewestPlans
from underpass_control.planning.published import published
from underpass_control.planning.terms import terms_of
from underpass_control.planning.wire import WirePlan
from underpass_control.settings import Settings
from underpass_control.settlement.settler import Settler
from underpass_control.storage import expectations, habits, interventions, learned, passages
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database, DatabaseLostError
from underpass_control.taking_turns import Turns
from underpass_control.tracing import Plan as TracedPlan
from underpass_control.tracing import Traces

if TYPE_CHECKING:
    from opentelemetry.trace import SpanContext

_LOG = structlog.get_logger()
# Changes that come within this time go into the same plan.
_GATHER_S = 0.01
# How often to check for changes that come with time alone, and to settle.
_TICK_S = 1.0
_AGAIN_S = 0.5
# The part of the time that planning may take: on a beam of thousands, news come faster than plans
# can be made, and each plan takes time from predictions.
_PLANNING_PART = 0.15
# Moving a plan's start and storing it takes at most this part of the time for making it.
_SHORTENING_PART = 0.1
# If news have waited longer than this, fewer fixes are used: of each terminal the newest, and
# others as far apart as the delay. So predictions are late by no more than the time for two fixes
# of each terminal, however fast fixes come.
_LATE_S = 1.0
# Kinds of changes that need the fixes before them.
_BY_FIXES = frozenset({"announcements", "blockages"})
# The most waiting changes. Beyond that they are dropped, and everything is read again from the
# database.
_MOST_WAITING = 20_000


@dataclass(frozen=True)
class Tools:
    """What all controllers of a process share."""

    database: Database
    changes: Changes
    metrics: Metrics
    settings: Settings
    newest_plans: NewestPlans
    traces: Traces
    # Where plans are computed.
    workers: Executor
    # This process's name in leases, and the beams whose leases it certainly holds now.
    holder: str
    held: Callable[[], Collection[str]]


class _LateError(Exception):
    """A plan would arrive after its start."""


@dataclass(frozen=True)
class _Worked:
    """A plan that is not stored yet."""

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
        serves: Callable[[BeamController, Collection[int]], None],
    ) -> None:
        """Also take a function that gets the beam's terminals."""
        self.beam = beam
        self.fence = fence
        self._tools = tools
        self._serves = serves
        self._planner = BeamPlanner(beam)
        self._knowledge = Knowledge(beam)
        self._maps = Maps(ObstructionMap([]), {}, {})
        # The satellite of the beam's terminals; None if unknown.
        self._satellite: str | None = None
        self._delays = Delays()
        self._settler = Settler(tools.database, tools.changes, tools.metrics, tools.settings, beam)
        self._waiting: deque[tuple[str, Mapping[str, Any]]] = deque()
        self._wake = asyncio.Event()
        self._ending = asyncio.Event()
        # When the oldest waiting change came.
        self._heard: float | None = None
        self._stale_terms = self._stale_reports = True
        # Terminals that are new in the beam: this controller has not seen their earlier reports.
        self._new: set[int] = set()
        # Terminals whose routes have changed.
        self._stale_routes: set[int] = set()
        # Whether the former planner's expectations have been read, or are not needed.
        self._recalled = False
        self._demands_told = 0.0
        # The task that makes plans, while predictions continue.
        self._planning: asyncio.Task[None] | None = None
        # When the next plan may be made.
        self._rested = 0.0
        self._expected: dict[int, tuple[Blockage, ...]] = {}

    def on_change(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in a change that concerns the beam or a terminal of it."""
        if kind == "terminal" and data.get("action") == "route":
            self._stale_routes.add(data["terminal"])
        elif kind in ("beam", "terminal", "intervention"):
            self._stale_terms = True
        elif len(self._waiting) >= _MOST_WAITING:
            self.on_missed()
        else:
            self._waiting.append((kind, data))
        if self._heard is None:
            self._heard = time.monotonic()
        self._wake.set()

    def on_missed(self) -> None:
        """Note that changes may have been missed."""
        self._waiting.clear()
        self._stale_terms = self._stale_reports = True
        self._wake.set()

    def set_map(self, maps: Maps) -> None:
        """Take other maps, and use the one for the beam's satellite."""
        self._maps = maps
        self._use_map()
        self._wake.set()

    def _use_map(self) -> None:
        satellite = self._satellite
        self._knowledge.set_map(self._maps.of(satellite), self._maps.learned, satellite)

    def stop(self) -> None:
        """Make `run` return after its present step."""
        self._ending.set()
        self._wake.set()

    async def run(self) -> None:
        """Plan until the lease or the beam is gone."""
        keeping = asyncio.create_task(self._keep_books(), name=f"books {self.beam}")
        try:
            while not self._ending.is_set() and not keeping.done():
                try:
                    if not await self._step():
                        return
                except DatabaseLostError as error:
                    await self._lost(error)
                    continue
                try:
                    async with asyncio.timeout(self._until_look_s()):
                        await self._wake.wait()
                except TimeoutError:
                    continue
                await asyncio.sleep(_GATHER_S)
        except FencedError as error:
            _LOG.info("another process plans the beam", beam=self.beam, error=str(error))
        except asyncio.CancelledError:
            if self._planning is not None:
                self._planning.cancel()
            raise
        finally:
            self.stop()
            beside = [keeping] if self._planning is None else [keeping, self._planning]
            # Cancelling this task cancels them, too.
            await asyncio.gather(*beside, return_exceptions=True)
            keeping.result()
            self._settler.close()
            self._forget_metrics()

    def _until_look_s(self) -> float:
        """Return after how long to look for due plans, if no change comes meanwhile."""
        rest_s = self._rested - time.monotonic()
        return min(rest_s, _TICK_S) if rest_s > 0.0 else _TICK_S

    async def _lost(self, error: DatabaseLostError) -> None:
        # Nodes keep following their plans, which last longer than a restart takes.
        self._tools.metrics.planning_failures.labels("database").inc()
        _LOG.warning("cannot plan", beam=self.beam, error=str(error))
        self._stale_terms = self._stale_reports = True
        await asyncio.sleep(_AGAIN_S)

    async def _step(self) -> bool:
        """Take in the waiting changes, and begin due plans; return False if the beam is gone.

        While plans are being made, their inputs do not change, except for the predictions.
        """
        self._wake.clear()
        heard, self._heard = self._heard, None
        if self._planning is not None and self._planning.done():
            planning, self._planning = self._planning, None
            planning.result()
        is_planning = self._planning is not None
        if self._stale_terms and not is_planning:
            self._stale_terms = False
            if not await self._read_terms():
                return False
        if self._stale_reports or self._new:
            # The reports of all terminals, or of the new ones only.
            of = None if self._stale_reports else self._new
            self._stale_reports, self._new = False, set()
            async with self._tools.database.reading() as connection:
                await self._knowledge.recall(connection, self._tools.database.clock.now_ms(), of)
        if self._stale_routes:
            changed, self._stale_routes = self._stale_routes, set()
            async with self._tools.database.reading() as connection:
                await self._knowledge.read_routes(connection, changed)
        await self._take_waiting(0.0 if heard is None else time.monotonic() - heard)
        now_ms = self._tools.database.clock.now_ms()
        await self._knowledge.tell_blockages(self._planner, now_ms)
        if heard is not None:
            predicted = self._tools.metrics.positions_to_predictions_seconds
            predicted.observe(time.monotonic() - heard)
        if is_planning:
            return True
        if time.monotonic() - self._demands_told >= _TICK_S:
            self._demands_told = time.monotonic()
            self._knowledge.tell_demands(self._planner, now_ms)
            self._measure_fades()
        if self.beam not in self._tools.held():
            # The lease may have run out. Nothing is planned until it is renewed.
            return True
        if time.monotonic() < self._rested:
            return True
        due = self._planner.due(now_ms)
        if due:
            self._planning = asyncio.create_task(
                self._make_plans(due, heard), name=f"make plans {self.beam}"
            )
            self._planning.add_done_callback(lambda _: self._wake.set())
        return True

    async def _make_plans(self, due: Mapping[Link, Reason], heard: float | None) -> None:
        began = time.monotonic()
        causes = self._tools.traces.causes(self._knowledge.nodes)
        # If one link fails, the other one's work is still waited for.
        ends = await asyncio.gather(
            *(self._plan(link, reason, heard, causes) for link, reason in due.items()),
            return_exceptions=True,
        )
        for end in ends:
            if end is not None:
                raise end
        taken_s = time.monotonic() - began
        self._rested = began + taken_s / _PLANNING_PART

    async def _read_terms(self) -> bool:
        async with self._tools.database.reading() as connection:
            now_ms = self._tools.database.clock.now_ms()
            terms = await terms_of(connection, self.beam, now_ms)
        if terms is None:
            return False
        nodes = frozenset(terms.terminals[Link.FORWARD])
        if new := self._knowledge.set_nodes(nodes):
            self._new = (self._new | new) & nodes
            # Without a demand, a terminal would be planned without a floor, too.
            self._demands_told = 0.0
        if terms.satellite != self._satellite:
            self._satellite = terms.satellite
            self._use_map()
        self._delays.one_way_ms = terms.one_way_delay_ms
        for link in Link:
            self._planner.set_terms(
                link, terms.capacity[link], terms.terminals[link], terms.one_way_delay_ms
            )
        self._planner.intervene(terms.interventions, now_ms)
        self._knowledge.withdraw(terms.interventions.withdrawn())
        if self._planner.is_frozen and not self._recalled:
            await self._recall_expected(now_ms)
        self._recalled = True
        self._serves(self, nodes)
        return True

    async def _recall_expected(self, now_ms: int) -> None:
        """Read since when blockages have been expected: those from before a freeze are lent for."""
        async with self._tools.database.reading() as connection:
            standing = await expectations.standing(connection, self.beam, now_ms)
        for terminal, first_ms, blockage in standing:
            self._planner.recall(terminal, blockage, first_ms, now_ms)

    def _measure_fades(self) -> None:
        metrics = self._tools.metrics
        for link in Link:
            fades = self._knowledge.fades(link)
            metrics.terminals_faded.labels(self.beam, link.value).set(len(fades))
            least = min(fades, default=Fraction(1))
            metrics.least_efficiency.labels(self.beam, link.value).set(float(least))

    async def _take_waiting(self, waited_s: float) -> None:
        """Take in the waiting changes, in order; the oldest has waited for `waited_s`."""
        apart_ms = round(1000 * waited_s) if waited_s > _LATE_S else 0
        waiting, self._waiting = self._waiting, deque()
        turns = Turns()
        for kind, data in waiting:
            if kind == "acknowledgements":
                for one in data["acknowledgements"]:
                    node = one["node"]
                    by_terminal = node in self._knowledge.nodes
                    self._delays.acknowledged(
                        Link(data["link"]),
                        node,
                        data["plan"],
                        one["after_ms"],
                        by_terminal=by_terminal,
                    )
            else:
                if kind in _BY_FIXES:
                    await self._feed(apart_ms)
                self._knowledge.take(kind, data)
            await turns.pause()
        await self._feed(apart_ms)

    async def _feed(self, apart_ms: int) -> None:
        now_ms = self._tools.database.clock.now_ms()
        passed_over = await self._knowledge.feed(now_ms, apart_ms)
        self._tools.metrics.positions_passed_over.inc(passed_over)
        for terminal in sorted(self._knowledge.predictions.take_leaping()):
            self._tools.metrics.terminals_double.inc()
            _LOG.warning(
                "positions leap, or always come late: do two vehicles report under one number?",
                terminal=terminal,
            )

    async def _plan(
        self, link: Link, reason: Reason, heard: float | None, causes: list[SpanContext]
    ) -> None:
        with self._tools.traces.plan(self.beam, link.value, reason.value, causes) as traced:
            await self._make(link, reason, heard, traced)

    async def _make(
        self, link: Link, reason: Reason, heard: float | None, traced: TracedPlan
    ) -> None:
        issued = time.monotonic()
        now_ms = self._tools.database.clock.now_ms()
        delay_ms = self._delays.of(link)
        async with self._tools.database.reading() as connection:
            owed = await self._settler.owed_bits(connection, link, now_ms + delay_ms)
        request = self._planner.request(link, now_ms, delay_ms, owed)
        metrics = self._tools.metrics
        began = time.perf_counter()
        try:
            worked = await self._in_worker(_work, request)
            metrics.planning_seconds.observe(time.perf_counter() - began)
            version = await self._store_in_time(worked, reason, traced, issued)
        except PlanError as error:
            metrics.planning_failures.labels("request").inc()
            _LOG.warning("no plan", beam=self.beam, link=link.value, error=str(error))
            self._planner.refused(link, now_ms)
            return
        self._delays.made(link, version, round(1000 * (time.monotonic() - issued)))
        if heard is not None:
            metrics.report_to_plan_seconds.observe(time.monotonic() - heard)

    async def _store_in_time(
        self, worked: _Worked, reason: Reason, traced: TracedPlan, issued: float
    ) -> int:
        """Store a plan so that it starts once it can have arrived; return its version.

        Raises:
            PlanError: It would start after its end.
        """
        storing_s = 0.0
        while True:
            began = time.monotonic()
            worked = await self._in_time(worked, began - issued, storing_s)
            # The database may be busy for seconds, several times in a row.
            with suppress(_LateError):
                return await self._store(worked, reason, traced)
            storing_s = time.monotonic() - began

    async def _in_time(self, worked: _Worked, taken_s: float, storing_s: float) -> _Worked:
        """Return a plan unchanged, or with a later start if it would arrive after its start.

        `taken_s` is how long it has been in the making; `storing_s` is how long it took to store
        it in vain.

        Raises:
            PlanError: It would start after its end.
        """
        late_ms = self._late_ms(worked)
        if not late_ms:
            return worked
        link = worked.request.link
        self._tools.metrics.plans_late.labels(link.value).inc()
        _LOG.warning(
            "a plan took longer than expected: it starts later",
            beam=self.beam,
            link=link.value,
            late_ms=late_ms,
            made_in_ms=round(1000 * taken_s),
        )
        ahead_ms = round(1000 * (_SHORTENING_PART * taken_s + storing_s))
        start_ms = worked.plan.start_ms + late_ms + ahead_ms
        return await self._in_worker(_shorten, worked, start_ms)

    def _late_ms(self, worked: _Worked) -> int:
        now_ms = self._tools.database.clock.now_ms()
        return self._delays.late_ms(worked.request.link, worked.plan.start_ms, now_ms)

    async def _in_worker(self, work: Callable[..., _Worked], *given: object) -> _Worked:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._tools.workers, work, *given)

    async def _store(self, worked: _Worked, reason: Reason, traced: TracedPlan) -> int:
        """Store a plan; return its version.

        Raises:
            _LateError: By now it would arrive after its start; nothing is stored.
        """
        link = worked.request.link
        async with self._tools.newest_plans.making((self.beam, link)) as made:
            async with self._tools.changes.transaction() as (connection, publish):
                plan = await stored.store(
                    connection,
                    publish,
                    worked.plan,
                    worked.document,
                    holder=self._tools.holder,
                    fence=self.fence,
                    reason=reason.value,
                )
                if self._late_ms(worked):
                    raise _LateError
            traced.stored(plan.version)
            made(plan.version, worked.wire)
        self._planner.taken(worked.request, worked.plan)
        self._knowledge.planned(link, plan.version, worked.wire)
        self._settler.planned(link, plan.version, worked.plan)
        metrics, labels = self._tools.metrics, (self.beam, link.value)
        delay_s = (plan.start_ms - plan.issued_ms) / 1000
        metrics.plans.labels(link.value, reason.value).inc()
        metrics.plan_version.labels(*labels).set(plan.version)
        metrics.plan_ends.labels(*labels).set(plan.end_ms / 1000)
        metrics.plan_tolerance.labels(*labels).set(plan.made.tolerance)
        metrics.signalling_delay_seconds.labels(*labels).set(delay_s)
        _LOG.info(
            "planned",
            beam=self.beam,
            link=link.value,
            plan=plan.version,
            reason=reason.value,
            blockages=len(worked.request.blockages),
        )
        return plan.version

    async def _keep_books(self) -> None:
        """Each second, beside planning: settle, and store expectations and learned places."""
        try:
            while True:
                with suppress(TimeoutError):
                    async with asyncio.timeout(_TICK_S):
                        await self._ending.wait()
                        return
                try:
                    await self._settle()
                    await self._keep_expectations()
                except DatabaseLostError as error:
                    _LOG.warning("cannot settle", beam=self.beam, error=str(error))
        except FencedError as error:
            _LOG.info("another process settles the beam", beam=self.beam, error=str(error))
            self._wake.set()

    async def _settle(self) -> None:
        now_ms = self._tools.database.clock.now_ms()
        if not await self._settler.settle_due(now_ms, self.fence):
            return
        async with self._tools.database.reading() as connection:
            for link in Link:
                owed = await self._settler.owed_bits(connection, link, now_ms)
                self._planner.see_balances(link, owed, now_ms)

    async def _keep_expectations(self) -> None:
        now_ms = self._tools.database.clock.now_ms()
        expected = self._knowledge.expected(now_ms)
        predictions = self._knowledge.predictions
        lessons, driven = predictions.lessons(), predictions.habits(now_ms)
        moved, passed = predictions.withdrawn_moved(), predictions.passages(now_ms)
        if expected == self._expected and not (lessons or driven or moved or passed):
            return
        async with self._tools.changes.transaction() as (connection, publish):
            await lease.check(connection, self.beam, self._tools.holder, self.fence)
            await expectations.keep(connection, publish, self.beam, expected, now_ms)
            if lessons:
                await learned.put(connection, publish, lessons)
            if passed:
                await passages.put(connection, publish, passed, now_ms)
            if driven:
                await habits.put(connection, driven)
            await interventions.withdrawal_moved(connection, moved)
        predictions.stored(len(lessons))
        predictions.passages_stored(passed)
        predictions.habits_stored(driven)
        predictions.withdrawn_stored(moved)
        self._expected = expected

    def _forget_metrics(self) -> None:
        metrics = self._tools.metrics
        gauges = (
            metrics.plan_version,
            metrics.plan_ends,
            metrics.plan_tolerance,
            metrics.signalling_delay_seconds,
            metrics.terminals_faded,
            metrics.least_efficiency,
        )
        for gauge in gauges:
            gauge.remove_by_labels({"beam": self.beam})


def _work(request: Request) -> _Worked:
    made, wire = published(plan(request))
    return _Worked(request, made, text(plan_document(made)), wire)


def _shorten(worked: _Worked, start_ms: int) -> _Worked:
    made = shortened(worked.plan, start_ms)
    return _Worked(worked.request, made, text(plan_document(made)), WirePlan(made))
