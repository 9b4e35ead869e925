"""Keeps this process's leases, and a controller for each."""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import structlog

from dama.prediction import ObstructionMap
from dama.prediction.learning import Learned
from underpass_control.metrics import Metrics
from underpass_control.planning import lease
from underpass_control.planning.controller import BeamController, Tools
from underpass_control.planning.outlet import Outlet
from underpass_control.settings import Settings
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database, DatabaseLostError
from underpass_control.storage.learned import load_map

_LOG = structlog.get_logger()
_END_WITHIN_S = 3.0
# Kinds of changes that list terminals, in a list of the same name.
_OF_TERMINALS = frozenset({"positions", "links", "announcements", "blockages"})


class Keeper:
    """Has the beams planned whose leases this process holds."""

    def __init__(
        self,
        database: Database,
        changes: Changes,
        metrics: Metrics,
        settings: Settings,
        outlet: Outlet,
    ) -> None:
        holder = f"{socket.gethostname()[:64]}:{os.getpid()}:{secrets.token_hex(4)}"
        self._tools = Tools(database, changes, metrics, settings, outlet, holder)
        # Of its own: whatever else waits for a connection, a lease is renewed in time.
        self._database = Database(database.url, pool_size=1)
        self._own_changes = changes.over(self._database)
        self._running: dict[str, tuple[BeamController, asyncio.Task[None]]] = {}
        self._of_terminal: dict[int, BeamController] = {}
        # Obstructions, and those of them that were learned: one map for all beams.
        self._map: tuple[ObstructionMap, Mapping[str, Learned]] = (ObstructionMap([]), {})
        self._map_stale = True
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
        """The beams whose leases this process holds."""
        return frozenset(self._running)

    def start(self) -> None:
        """Begin to take leases; `close` ends it."""
        self._task = asyncio.create_task(self._keep(), name="leases")

    async def close(self) -> None:
        """Plan no more, and give the leases up: another process need not wait for their end."""
        if self._task is None:
            return
        self._ending = True
        self._look.set()
        await ended([task for task in (self._task, self._reading) if task is not None])
        beams = list(self._running)
        await self._stop(beams)
        with suppress(DatabaseLostError):
            async with self._own_changes.transaction() as (connection, announce):
                await lease.release(connection, self.holder)
                lease.free(announce, beams)
        await self._database.close()

    def heard(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take in a change."""
        if kind in _OF_TERMINALS:
            concerned = {
                controller.beam: controller
                for one in data[kind]
                if (controller := self._of_terminal.get(one["terminal"])) is not None
            }
            for controller in concerned.values():
                controller.heard(kind, data)
        elif kind == "terminal":
            self._terminal(kind, data)
        elif kind == "obstructions":
            self._map_stale = True
            self._look.set()
        elif kind == "lease":
            if data["holder"] is None:
                self._look.set()
        elif "beam" in data and kind != "plans":
            if data["beam"] in self._running:
                self._running[data["beam"]][0].heard(kind, data)
            elif kind == "beam":
                self._look.set()

    def missed(self) -> None:
        """Take in that changes may have been missed."""
        self._map_stale = True
        self._look.set()
        for controller, _ in self._running.values():
            controller.missed()

    def _terminal(self, kind: str, data: Mapping[str, Any]) -> None:
        beams = {data.get("state", {}).get("beam")}
        before = self._of_terminal.get(data["terminal"])
        if before is not None:
            beams.add(before.beam)
        for beam in beams & self._running.keys():
            self._running[beam][0].heard(kind, data)

    def _serves(self, controller: BeamController, terminals: Collection[int]) -> None:
        for node, known in list(self._of_terminal.items()):
            if known is controller and node not in terminals:
                del self._of_terminal[node]
        self._of_terminal |= dict.fromkeys(terminals, controller)

    async def _keep(self) -> None:
        renewed = 0.0
        while not self._ending:
            self._look.clear()
            try:
                if self._map_stale and (self._reading is None or self._reading.done()):
                    # A country's takes longer than a lease lasts.
                    self._reading = asyncio.create_task(self._read_map(), name="map")
                due = time.monotonic() - renewed >= lease.RENEW_EVERY_S
                if due or await self._any_free():
                    begun = time.monotonic()
                    await self._renew()
                    renewed = begun
            except DatabaseLostError as error:
                # What is planned goes on being followed; leases end by themselves.
                _LOG.warning("leases are not renewed", error=str(error))
            with suppress(TimeoutError):
                async with asyncio.timeout(lease.RETRY_S):
                    await self._look.wait()

    async def _any_free(self) -> bool:
        async with self._database.reading() as connection:
            return await lease.any_free(connection)

    async def _renew(self) -> None:
        async with self._own_changes.transaction() as (connection, announce):
            held = await lease.renew(connection, announce, self.holder)
        await self._stop(
            beam
            for beam, (controller, task) in list(self._running.items())
            if held.get(beam) != controller.fence or task.done()
        )
        for beam in sorted(held.keys() - self._running.keys()):
            controller = BeamController(self._tools, beam, held[beam], self._serves)
            controller.set_map(*self._map)
            task = asyncio.create_task(controller.run(), name=f"plan {beam}")
            self._running[beam] = controller, task
            _LOG.info("plans a beam", beam=beam, fence=held[beam])
        self._tools.metrics.leases.set(len(self._running))

    async def _stop(self, beams: Iterable[str]) -> None:
        stopped = [self._running.pop(beam) for beam in list(beams)]
        for controller, _ in stopped:
            self._serves(controller, ())
            controller.stop()
        ends = await ended([task for _, task in stopped])
        for (controller, _), end in zip(stopped, ends, strict=True):
            if isinstance(end, Exception):
                _LOG.error("planning failed", beam=controller.beam, exc_info=end)

    async def _read_map(self) -> None:
        self._map_stale = False
        try:
            async with self._tools.database.reading() as connection:
                self._map = await load_map(connection)
        except DatabaseLostError as error:
            self._map_stale = True
            _LOG.warning("the map is not read", error=str(error))
            return
        for controller, _ in self._running.values():
            controller.set_map(*self._map)


async def ended(tasks: Sequence[asyncio.Task[None]]) -> list[BaseException | None]:
    """Wait for tasks that have been told to end; cancel those that do not soon."""
    if tasks:
        # A transaction that is cancelled in its middle may keep its connection for a while.
        _, late = await asyncio.wait(tasks, timeout=_END_WITHIN_S)
        for task in late:
            task.cancel()
    return await asyncio.gather(*tasks, return_exceptions=True)
