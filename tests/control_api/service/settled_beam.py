"""A beam in virtual time over a database: planned, followed, reported, settled.

Four terminals are backlogged in both directions. One drives through a road tunnel, which control
expects at the right or at another time. The hub shares the rest of the forward link at once; on the
return link each sends what its plan gives. The terminal's reports from the tunnel, about the return
link, arrive after the exit: the newest first, the older ones a second later.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from sqlalchemy import insert, update
from sqlalchemy.ext.asyncio import AsyncConnection
from underpass_control.metrics import Metrics
from underpass_control.settings import Settings
from underpass_control.settlement.settler import Settler
from underpass_control.storage import links, usage
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database
from underpass_control.storage.models import Beam, Terminal
from underpass_control.storage.models import Blockage as Observed

from dama.planner import Blockage, CapacityStep, Line, Link, Request, plan
from dama.planner import Terminal as Terms
from dama.planner.splitting import equal_at
from tests.control_api.service.publishing import FENCE, hold, publish

# Any multiple of the period.
START_MS = 1_700_000_000_000
BEAM = "ku-1"
HUB, NODES = 1, (11, 12, 13, 14)
# The one that drives through the tunnel.
DRIVER = 11
BEAM_BPS = 8_000_000
GUARANTEED_BPS = 500_000
END_S = 120
_STEP_MS = 250
_TICK_S = 5


@dataclass(frozen=True)
class Drive:
    """When the driver is in the tunnel, and when control expects that, in s from the start."""

    entry_s: int
    exit_s: int
    # None: control neither expects nor notices anything.
    expected_s: tuple[int, int] | None = (30, 50)
    known_s: int = 10

    def blocked(self, at_ms: int) -> bool:
        """Tell whether the driver's link is blocked."""
        return 1000 * self.entry_s <= at_ms - START_MS < 1000 * self.exit_s

    def foreseen(self, now_s: int) -> tuple[Blockage, ...]:
        """Return the blockages that control expects.

        Control drops an expected one when it hears the driver after its entry, or after a loss.
        While the driver stays unheard, control extends it by a tick.
        """
        if self.expected_s is None:
            return ()
        entry_s, exit_s = self.expected_s
        if self.entry_s <= now_s < self.exit_s:
            return (_blockage(now_s, max(exit_s, now_s + _TICK_S)),)
        if self.known_s <= now_s <= entry_s and now_s < self.entry_s:
            return (_blockage(entry_s, exit_s),)
        return ()


def _blockage(entry_s: int, exit_s: int) -> Blockage:
    return Blockage(str(DRIVER), START_MS + 1000 * entry_s, START_MS + 1000 * exit_s)


@dataclass
class SettledBeam:
    """The beam, its links and its settler."""

    database: Database
    drive: Drive
    settings: Settings = field(default_factory=Settings)
    # The efficiencies with which terminals in a fade are planned, from a time on, in s from the
    # start. No report has them.
    efficiencies: Mapping[int, Fraction] = field(default_factory=dict)
    fades_s: int = 0
    # In bits of capacity.
    sent_bits: dict[tuple[int, Link], int] = field(default_factory=dict)
    lines: dict[Link, dict[int, Line]] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.changes = Changes(self.database, self.told.append, lambda: None)
        self.settler = self.new_settler()
        self.sent_bits = {(node, link): 0 for node in NODES for link in Link}
        self._ip_bits = {key: Fraction() for key in self.sent_bits}
        # The reports, each with the time of its arrival.
        self._reports: list[tuple[int, usage.Count]] = []

    def new_settler(self) -> Settler:
        """Return a settler that knows only the stored data."""
        return Settler(self.database, self.changes, Metrics(), self.settings, BEAM)

    async def begin(self, until_s: int = 0) -> None:
        """Set the beam and its terminals, begin to settle, and go on until `until_s`."""
        async with self.database.transaction() as connection:
            row = {"forward_capacity_bps": BEAM_BPS, "return_capacity_bps": BEAM_BPS}
            await connection.execute(
                insert(Beam).values(id=BEAM, name="Ku", one_way_delay_ms=0, revision=1, **row)
            )
            await connection.execute(
                insert(Terminal),
                [{"node": node, "beam_id": BEAM, "name": f"vehicle {node}"} for node in NODES],
            )
            await hold(connection, BEAM)
        self._report(0)
        await self.settler.settle_due(START_MS, FENCE)
        for now_s in range(0, until_s, _TICK_S):
            await self.tick(now_s)

    async def run(self, after: Callable[[int], None] | None = None) -> None:
        """Drive to the end, and settle everything."""
        await self.begin()
        for now_s in range(0, END_S, _TICK_S):
            await self.tick(now_s)
            if after is not None:
                after(now_s)
        await self.deliver(END_S + 10)
        await self.settle(END_S + 10)

    async def tick(self, now_s: int) -> None:
        """Take reports in, settle, plan, and send for some seconds."""
        await self.deliver(now_s)
        await self.settle(now_s)
        await self.plan(now_s)
        await self.send(now_s)

    async def send(self, now_s: int) -> None:
        """Send for some seconds."""
        for second in range(now_s, now_s + _TICK_S):
            for at_ms in range(START_MS + 1000 * second, START_MS + 1000 * (second + 1), _STEP_MS):
                for link in Link:
                    for node, bits in self._step(link, at_ms).items():
                        self.sent_bits[node, link] += bits
                        self._ip_bits[node, link] += bits * self._efficiency(node, now_s)
            self._report(second + 1)

    async def settle(self, now_s: int) -> int:
        """Settle what can be settled."""
        return await self.settler.settle_due(START_MS + 1000 * now_s, FENCE)

    async def deliver(self, now_s: int) -> None:
        """Take in the reports that have arrived, and the hub's observations."""
        now_ms = START_MS + 1000 * now_s
        come = [count for at_ms, count in self._reports if at_ms <= now_ms]
        self._reports = [(at_ms, count) for at_ms, count in self._reports if at_ms > now_ms]
        async with self.database.transaction() as connection:
            await usage.count(connection, come)
            newest = {
                (one.terminal, one.link): _state(one, now_ms) for one in sorted(come, key=_time)
            }
            await links.put(connection, newest.values())
            await self._observe(connection, now_s)

    async def plan(self, now_s: int, owed_bits: Mapping[int, int] | None = None) -> None:
        """Plan both links anew, with the balances at the plan's start, or with given ones."""
        now_ms = START_MS + 1000 * now_s
        for link in Link:
            async with self.database.reading() as connection:
                owed = owed_bits or await self.settler.owed_bits(connection, link, now_ms)
            made = plan(
                Request(
                    beam=BEAM,
                    link=link,
                    now_ms=now_ms,
                    end_ms=START_MS + 1000 * END_S,
                    capacity=(CapacityStep(0, BEAM_BPS),),
                    terminals=tuple(
                        Terms(
                            str(node),
                            minimum_bps=GUARANTEED_BPS,
                            owed_bits=owed.get(node, 0),
                            efficiency=self._efficiency(node, now_s),
                        )
                        for node in NODES
                    ),
                    blockages=self.drive.foreseen(now_s),
                )
            )
            await publish(self.changes, made)
            self.lines[link] = {node: made.line(str(node)) for node in NODES}

    def _efficiency(self, node: int, now_s: int) -> Fraction:
        return self.efficiencies.get(node, Fraction(1)) if now_s >= self.fades_s else Fraction(1)

    def _step(self, link: Link, at_ms: int) -> dict[int, int]:
        """Return what is sent in a step."""
        lines = self.lines[link]
        bits = {node: lines[node].amounts(at_ms, at_ms + _STEP_MS)[0] for node in NODES}
        heard = [node for node in NODES if node != DRIVER or not self.drive.blocked(at_ms)]
        others = [node for node in heard if node != DRIVER]
        if DRIVER not in heard:
            bits[DRIVER] = 0
        elif not bits[DRIVER]:
            # Heard beats planned: the hub sends to it, at the others' expense.
            bits[DRIVER] = GUARANTEED_BPS * _STEP_MS // 1000
            if link is Link.FORWARD:
                _share(bits, others, -bits[DRIVER])
        if link is Link.FORWARD:
            _share(bits, heard, BEAM_BPS * _STEP_MS // 1000 - sum(bits.values()))
        return bits

    def _report(self, now_s: int) -> None:
        at_ms = START_MS + 1000 * now_s
        blocked = self.drive.blocked(at_ms)
        out_ms = START_MS + 1000 * self.drive.exit_s
        for (node, link), exact in self._ip_bits.items():
            bits = int(exact)
            held = blocked and node == DRIVER
            made = usage.Count(
                terminal=node,
                link=link.value,
                node=HUB if link is Link.FORWARD else node,
                incarnation=1,
                path="satellite",
                uptime_ms=1000 * now_s,
                time_ms=at_ms,
                sent_bytes=bits // 8,
                offered_bytes=bits // 8 + 1_000_000,
                blocked=held,
            )
            comes_ms = at_ms
            if held and link is Link.RETURN:
                comes_ms = out_ms if at_ms + 1000 == out_ms else out_ms + 1000
            self._reports.append((comes_ms, made))

    async def _observe(self, connection: AsyncConnection, now_s: int) -> None:
        """Store the hub's observations: a blockage at its beginning and at its end."""
        entry_ms, exit_ms = (START_MS + 1000 * s for s in (self.drive.entry_s, self.drive.exit_s))
        known_ms = START_MS + 1000 * (now_s - _TICK_S), START_MS + 1000 * now_s
        if known_ms[0] < entry_ms <= known_ms[1]:
            row = {"terminal": DRIVER, "link": Link.FORWARD.value, "path": "satellite"}
            row |= {"source": "probing"}
            await connection.execute(
                insert(Observed).values(
                    entry_ms=entry_ms, received_ms=known_ms[1], exit_reported=False, **row
                )
            )
        if known_ms[0] < exit_ms <= known_ms[1]:
            await connection.execute(update(Observed).values(exit_ms=exit_ms, exit_reported=True))


def _share(bits: dict[int, int], nodes: list[int], total: int) -> None:
    """Add so much to some, in equal parts."""
    parts = equal_at(abs(total), len(nodes))
    for node, part in zip(nodes, parts, strict=True):
        bits[node] += part if total > 0 else -part


def _time(count: usage.Count) -> int:
    return count.time_ms


def _state(count: usage.Count, now_ms: int) -> links.LinkState:
    return links.LinkState(
        terminal=count.terminal,
        link=count.link,
        node=count.node,
        incarnation=count.incarnation,
        uptime_ms=count.uptime_ms,
        time_ms=count.time_ms,
        received_ms=now_ms,
        gateway=HUB,
        path=count.path,
        state="blocked" if count.blocked else "up",
        offered_bytes=count.offered_bytes,
        sent_bytes=count.sent_bytes,
        backlogged_bytes=1_000_000,
        streams=1,
    )
