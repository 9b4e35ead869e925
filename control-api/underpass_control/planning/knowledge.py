"""What a beam's controller knows of its terminals: their blockages ahead and their demands."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from fractions import Fraction
from typing import Any

from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Link
from dama.prediction import Blockage, Fix, ObstructionMap, Span
from dama.prediction.fix import CLOCK_TOLERANCE_MS
from dama.prediction.learning import Learned
from underpass_control.demand import Demands
from underpass_control.planning import stored
from underpass_control.planning.beam_planner import BeamPlanner
from underpass_control.planning.grants import Grants
from underpass_control.planning.wire import WirePlan
from underpass_control.prediction import Predictions
from underpass_control.storage import announcements, blockages, links, positions, routes
from underpass_control.storage.positions import Position
from underpass_control.takeover import fix_of, recall
from underpass_control.taking_turns import Turns

# The blockages ahead of terminals without news are checked again after this time.
_LOOK_AGAIN_MS = 500
# The most positions of a terminal that wait for their time; of more, the latest to come are kept.
_MOST_EARLY = 256


class Knowledge:
    """Takes in reports, and gives a planner the blockages and demands that follow from them."""

    def __init__(self, beam: str) -> None:
        self._beam = beam
        self._nodes: frozenset[int] = frozenset()
        self._demands = Demands()
        self._grants = Grants()
        self.predictions = Predictions()
        # By terminal, positions not yet used for predictions.
        self._waiting: dict[int, list[Position]] = {}
        # Terminals with new reports, and terminals with a blockage ahead.
        self._changed: set[int] = set()
        self._ahead: set[int] = set()
        self._looked_ms = 0

    @property
    def nodes(self) -> frozenset[int]:
        """The beam's terminals."""
        return self._nodes

    def set_nodes(self, nodes: frozenset[int]) -> frozenset[int]:
        """Take the beam's terminals; return the new ones, whose reports have to be read."""
        gone, new = self._nodes - nodes, nodes - self._nodes
        for node in gone:
            self.predictions.forget(node)
            self._demands.forget(node)
            self._ahead.discard(node)
            self._changed.discard(node)
        self._nodes = nodes
        return new

    def set_map(
        self,
        obstructions: ObstructionMap,
        learned: Mapping[str, Learned],
        satellite: str | None = None,
    ) -> None:
        """Take another map, for the beam's satellite, and the learned places."""
        self.predictions.set_map(obstructions, learned, satellite)
        self._changed |= self._nodes

    def withdraw(self, said: Mapping[int, Mapping[int, Span]]) -> None:
        """Take the blockages that operators have withdrawn, by terminal and number."""
        self._changed |= self.predictions.withdraw(said) & self._nodes

    async def recall(
        self, connection: AsyncConnection, now_ms: int, terminals: Collection[int] | None = None
    ) -> None:
        """Read the recent reports of some terminals; None: of all."""
        await recall(connection, self._beam, self.predictions, self._demands, now_ms, terminals)
        await self._recall_early(connection, now_ms, terminals)
        for link in Link:
            if not self._grants.knows(link):
                await self._recall_plan(connection, link, now_ms)
        self._changed |= self._nodes if terminals is None else self._nodes.intersection(terminals)

    async def _recall_early(
        self, connection: AsyncConnection, now_ms: int, terminals: Collection[int] | None
    ) -> None:
        """Read the positions that wait for their time."""
        for position in await positions.dated_ahead(
            connection,
            self._beam,
            now_ms + CLOCK_TOLERANCE_MS,
            limit=_MOST_EARLY,
            terminals=terminals,
        ):
            if position.terminal in self._nodes:
                # One that is waiting already is fed twice, which changes nothing.
                self._waiting.setdefault(position.terminal, []).append(position)

    async def read_routes(self, connection: AsyncConnection, terminals: Collection[int]) -> None:
        """Read the routes of terminals whose route has changed or is gone."""
        mine = self._nodes.intersection(terminals)
        lines = await routes.of_terminals(connection, mine)
        for terminal in mine:
            self.predictions.set_route(terminal, lines.get(terminal))
        self._changed |= mine

    async def _recall_plan(self, connection: AsyncConnection, link: Link, now_ms: int) -> None:
        """Continue from the efficiencies of the last plan, made by another process."""
        last = await stored.current_plan(connection, self._beam, link)
        if last is None or last.end_ms <= now_ms:
            return
        made = await last.read()
        self._grants.take(link, last.version, await asyncio.to_thread(WirePlan, made))
        for group in made.groups:
            for member in group.members:
                efficiency = Fraction(member.efficiency)
                if efficiency < 1:
                    self._demands.remember(int(member.id), link, efficiency, now_ms)

    def planned(self, link: Link, version: int, plan: WirePlan) -> None:
        """Take a plan that has been stored."""
        self._grants.take(link, version, plan)

    def fades(self, link: Link) -> list[Fraction]:
        """Return the efficiencies below 1 of a link that were measured."""
        return self._demands.fades(link)

    def take(self, kind: str, data: Mapping[str, Any]) -> None:
        """Take a change in; positions wait for `feed`."""
        if kind == "positions":
            for position in positions.of_change(data):
                if position.terminal in self._nodes:
                    self._waiting.setdefault(position.terminal, []).append(position)
        elif kind == "links":
            for state in links.of_change(data):
                if state.terminal in self._nodes:
                    link = Link(state.link)
                    grant = self._grants.of(link, state.terminal, state.plan, state.time_ms)
                    self._demands.take(state.terminal, link, state, grant)
        elif kind == "announcements":
            for terminal, announcement in announcements.of_change(data):
                if terminal in self._nodes:
                    self.predictions.announce(terminal, announcement)
                    self._note(terminal, True)
        elif kind == "blockages":
            for terminal, entry_ms, exit_ms in blockages.sensed(data):
                if terminal in self._nodes:
                    self.predictions.observe(terminal, entry_ms, exit_ms)
                    self._note(terminal, True)
            for terminal, entry_ms, exit_ms, by_plan in blockages.held_back(data):
                if terminal in self._nodes:
                    self.predictions.held_back(terminal, entry_ms, exit_ms, by_plan=by_plan)

    def _note(self, terminal: int, changed: bool) -> None:
        if changed:
            self._changed.add(terminal)

    async def feed(self, now_ms: int, apart_ms: int = 0) -> int:
        """Predict with the waiting positions; return how many were skipped.

        For each terminal, positions less than `apart_ms` before the next one are skipped. Those
        dated later than a clock's tolerance from now wait until then: they would hide all before.
        """
        waiting, self._waiting = self._waiting, {}
        turns = Turns()
        passed_over = 0
        for terminal, found in waiting.items():
            await turns.pause()
            # First, leave out unusable positions, so that they replace no fix beside them.
            due = [one for one in found if one.time_ms <= now_ms + CLOCK_TOLERANCE_MS]
            if len(due) < len(found) and terminal in self._nodes:
                early = [one for one in found if one.time_ms > now_ms + CLOCK_TOLERANCE_MS]
                self._waiting[terminal] = early[-_MOST_EARLY:]
            fixes = [fix for fix in map(fix_of, due) if fix is not None]
            fixes.sort(key=lambda one: one.time_ms)
            kept = thinned(fixes, apart_ms) if apart_ms else fixes
            passed_over += len(fixes) - len(kept)
            for fix in kept:
                if terminal in self._nodes:
                    self._note(terminal, self.predictions.feed(terminal, fix))
                # A thousand terminals at once must not delay other tasks.
                await turns.pause()
        return passed_over

    async def tell_blockages(self, planner: BeamPlanner, now_ms: int) -> None:
        """Give the planner the blockages of terminals with news, at times of all with one ahead."""
        changed, self._changed = self._changed, set()
        if not 0 <= now_ms - self._looked_ms < _LOOK_AGAIN_MS:
            self._looked_ms = now_ms
            changed |= self._ahead
        turns = Turns()
        for terminal in changed & self._nodes:
            expected = self.predictions.blockages_of(terminal, now_ms)
            if planner.expect(terminal, expected, now_ms):
                self._ahead.add(terminal)
            else:
                self._ahead.discard(terminal)
            await turns.pause()

    def expected(self, now_ms: int) -> dict[int, tuple[Blockage, ...]]:
        """Return the blockages expected of each terminal that has any."""
        found = {node: self.predictions.blockages_of(node, now_ms) for node in self._ahead}
        return {node: blockages for node, blockages in found.items() if blockages}

    def tell_demands(self, planner: BeamPlanner, now_ms: int) -> None:
        """Give the planner the demands of all terminals."""
        for link in Link:
            capacity_bps = planner.capacity_bps(link, now_ms)
            demands = self._demands.of_link(link, self._nodes, capacity_bps, now_ms)
            planner.set_demands(link, demands, now_ms)


def thinned(found: Sequence[Fix], apart_ms: int) -> Sequence[Fix]:
    """Return a terminal's newest fix, and of the others those that are `apart_ms` apart."""
    kept: list[Fix] = []
    for one in sorted(found, key=lambda one: one.time_ms, reverse=True):
        if not kept or kept[-1].time_ms - one.time_ms >= apart_ms:
            kept.append(one)
    return kept[::-1]
