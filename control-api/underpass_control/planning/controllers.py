"""Keeps this process's leases, and a controller for each."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction import ObstructionMap
from dama.prediction.learning import Learned
from underpass_control import garbage
from underpass_control.metrics import Metrics
from underpass_control.planning import lease
from underpass_control.planning.controller import BeamController, Tools
from underpass_control.planning.maps import Maps, of_satellites
from underpass_control.planning.newest_plans import NewestPlans
from underpass_control.planning.renewal import Renewal
from underpass_control.planning.seen_terms import SeenTerms
from underpass_control.settings import Settings
from underpass_control.storage import habits, registry
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database, DatabaseLostError
from underpass_control.storage.learned import load_map
from underpass_control.tracing import Traces

_LOG = structlog.get_logger()
_END_WITHIN_S = 3.0
# How often the turns and speeds of vehicles are counted again: they differ by the hour.
_COUNT_DRIVES_S = 3_600.0
# Reading a map leaves little garbage in cycles, and collecting it takes a second.
_COLLECT_S = 3_600.0
# Reading the map may take a fifth of the time at most: each passage of a learned place changes it,
# and a fleet makes many.
_REST = 4
# Kinds of changes that list terminals, in a list of the same name.
_OF_TERMINALS = frozenset({"positions", "links", "announcements", "blockages"})


class BeamControllers:
    """Runs a controller for each beam whose lease this process holds."""

    def __init__(
        self,
        database: Database,
        changes: Changes,
        metrics: Metrics,
        settings: Settings,
        newest_plans: NewestPlans,
        traces: Traces,
    ) -> None:
        holder = f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(4)}"
        # Plans have their own threads, so that no other work in threads waits for them.
        self._workers = ThreadPoolExecutor(os.cpu_count(), thread_name_prefix="plan")
        self._tools = Tools(
            database,
            changes,
            metrics,
            settings,
            newest_plans,
            traces,
            self._workers,
            holder,
            lambda: self.held,
        )
        self._renewal = Renewal(database, changes, holder, self._renewed)
        # The leases that were held when they were last renewed.
        self._fences: Mapping[str, int] = {}
        self._running: dict[str, tuple[BeamController, asyncio.Task[None]]] = {}
        # Controllers that are ending. A beam's next controller starts only after that.
        self._stopping: dict[str, asyncio.Task[None]] = {}
        self._of_terminal: dict[int, BeamController] = {}
        self._terms = SeenTerms()
        # The obstructions, with one map for all beams of a satellite.
        self._map = Maps(ObstructionMap([]), {}, {})
        # The same obstructions without turns and speeds, and when these were counted.
        self._drawn = self._map
        self._drives_counted = time.monotonic()
        self._collected = self._drives_counted
        self._map_stale = True
        # The satellites given to beams since the last reading of the map began.
        self._given: set[str] = set()
        self._rests_until = 0.0
        self._reading: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None
        self._look = asyncio.Event()
        self._ending = False

    @property
    def holder(self) -> str:
        """The name of this process among the holders of leases."""
        return self._tools.holder

    @property
    def held(self) -> frozenset[str]:
        """The beams that this process plans, and whose leases it certainly holds now."""
        return frozenset(self._running.keys() & self._renewal.held.keys())

    @property
    def followed(self) -> frozenset[str]:
        """The beams whose plans this process passes on, for example to an NCC."""
        return frozenset(self._running.keys() & self._renewal.followed.keys())

    def start(self) -> None:
        """Begin to take leases; `close` ends it."""
        self._renewal.start()
        self._task = asyncio.create_task(self._keep(), name="leases")

    async def close(self) -> None:
        """Stop planning and give up the leases, so that another process need not wait."""
        if self._task is None:
            return
        self._ending = True
        self._look.set()
        await ended([task for task in (self._task, self._reading) if task is not None])
        for beam in list(self._running):
            self._stop(beam)
        await asyncio.gather(*self._stopping.values())
        self._workers.shutdown(wait=False, cancel_futures=True)
        await self._renewal.close()

    def on_change(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in a change."""
        if kind in _OF_TERMINALS:
            concerned = {
                controller.beam: controller
                for one in data[kind]
                if (controller := self._of_terminal.get(one["terminal"])) is not None
            }
            for controller in concerned.values():
                controller.on_change(kind, data)
        elif kind == "terminal":
            if self._terms.differ(data) or data["action"] == "route":
                self._terminal(kind, data)
        elif kind == "obstructions":
            self._map_stale = True
            self._look.set()
        elif kind == "lease":
            if data["holder"] is None:
                self._renewal.look()
        elif "beam" in data and kind != "plans":
            satellite = data.get("state", {}).get("satellite") if kind == "beam" else None
            if satellite is not None:
                self._given.add(satellite)
                self._look_for_given()
            if data["beam"] in self._running:
                self._running[data["beam"]][0].on_change(kind, data)
            elif kind == "beam":
                self._renewal.look()

    def _look_for_given(self) -> None:
        """Read the map anew if it lacks a satellite that a beam was given."""
        if not self._given <= self._map.of_satellites.keys():
            self._map_stale = True
            self._look.set()

    def on_missed(self) -> None:
        """Take in that changes may have been missed."""
        self._terms.forget()
        self._map_stale = True
        self._look.set()
        for controller, _ in self._running.values():
            controller.on_missed()

    def _terminal(self, kind: str, data: Mapping[str, Any]) -> None:
        beams = {data.get("state", {}).get("beam")}
        before = self._of_terminal.get(data["terminal"])
        if before is not None:
            beams.add(before.beam)
        for beam in beams & self._running.keys():
            self._running[beam][0].on_change(kind, data)

    def _serves(self, controller: BeamController, terminals: Collection[int]) -> None:
        for node, known in list(self._of_terminal.items()):
            if known is controller and node not in terminals:
                del self._of_terminal[node]
        self._of_terminal |= dict.fromkeys(terminals, controller)

    def _renewed(self, fences: Mapping[str, int]) -> None:
        self._fences = fences
        self._look.set()

    async def _keep(self) -> None:
        while not self._ending:
            self._look.clear()
            self._renewal.move()
            now_s = time.monotonic()
            stale = self._map_stale or now_s - self._drives_counted >= _COUNT_DRIVES_S
            may_read = self._reading is None or self._reading.done()
            if stale and may_read and now_s >= self._rests_until:
                # To read the map of a country takes longer than a lease lasts.
                self._reading = asyncio.create_task(self._read_map(), name="map")
            self._follow_leases()
            with suppress(TimeoutError):
                async with asyncio.timeout(lease.RETRY_S):
                    await self._look.wait()

    def _follow_leases(self) -> None:
        """Plan the beams whose leases are held, and no others."""
        for beam, (controller, task) in list(self._running.items()):
            if self._fences.get(beam) != controller.fence or task.done():
                self._stop(beam)
        for beam in sorted(self._fences.keys() - self._running.keys() - self._stopping.keys()):
            controller = BeamController(self._tools, beam, self._fences[beam], self._serves)
            controller.set_map(self._map)
            task = asyncio.create_task(controller.run(), name=f"plan {beam}")
            self._running[beam] = controller, task
            _LOG.info("plans a beam", beam=beam, fence=controller.fence)
        self._tools.metrics.leases.set(len(self._running))

    def _stop(self, beam: str) -> None:
        controller, task = self._running.pop(beam)
        self._serves(controller, ())
        controller.stop()
        self._stopping[beam] = asyncio.create_task(self._stopped(beam, task), name=f"end {beam}")

    async def _stopped(self, beam: str, task: asyncio.Task[None]) -> None:
        (end,) = await ended([task])
        if isinstance(end, Exception):
            _LOG.error("planning failed", beam=beam, exc_info=end)
        del self._stopping[beam]
        self._look.set()

    async def _read_map(self) -> None:
        map_stale, self._map_stale = self._map_stale, False
        self._given.clear()
        began_s = self._drives_counted = time.monotonic()
        drawn = self._drawn
        try:
            async with self._tools.database.reading() as connection:
                if map_stale:
                    every, known = await load_map(connection)
                    satellites = await registry.satellites(connection)
                    drawn = await asyncio.to_thread(_drawn, every, known, satellites)
                taught = await self._taught(connection, drawn)
        except Exception as error:
            # After any error it is read again, with the changes that have come meanwhile.
            self._map_stale |= map_stale
            is_lost = isinstance(error, DatabaseLostError)
            _LOG.warning("the map is not read", error=str(error), exc_info=not is_lost)
            return
        if taught.every is not self._map.every:
            self._drawn, self._map = drawn, taught
            for controller, _ in self._running.values():
                controller.set_map(self._map)
            # A beam may have been given a satellite again that none used at the last reading.
            self._look_for_given()
        collected = began_s - self._collected >= _COLLECT_S
        if collected:
            self._collected = began_s
        garbage.leave_out(collected=collected)
        done_s = time.monotonic()
        self._rests_until = done_s + _REST * (done_s - began_s)

    async def _taught(self, connection: AsyncConnection, drawn: Maps) -> Maps:
        """Return maps with the counted turns and speeds of vehicles."""
        now_ms = self._tools.database.clock.now_ms()
        # Satellites without known shadows share one map.
        maps = {id(one): one for one in (drawn.every, *drawn.of_satellites.values())}
        taught = await habits.taught(connection, maps.values(), now_ms)
        made = dict(zip(maps, taught, strict=True))
        of = {name: made[id(one)] for name, one in drawn.of_satellites.items()}
        return Maps(made[id(drawn.every)], drawn.learned, of)


def _drawn(
    every: ObstructionMap, known: Mapping[str, Learned], satellites: Collection[str]
) -> Maps:
    return Maps(every, known, of_satellites(every, satellites))


async def ended(tasks: Sequence[asyncio.Task[None]]) -> list[BaseException | None]:
    """Wait for tasks that have been told to end; cancel those that do not end soon."""
    if tasks:
        # A transaction that is cancelled may keep its connection for a while.
        _, late = await asyncio.wait(tasks, timeout=_END_WITHIN_S)
        for task in late:
            task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)
