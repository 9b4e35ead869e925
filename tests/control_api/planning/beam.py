"""The paper's experiment in virtual time, planned as the service does it.

8 Mbit/s on the forward link, 500 ms of RTT, N terminals with one greedy download each. A drives
through a road tunnel, and each second it is predicted slightly differently. Settlement lags ten to
twenty seconds behind, as reports do. The hub follows the newest plan that has begun.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

from underpass_control.demand import Demand
from underpass_control.planning.beam_planner import BeamPlanner, Reason, Terms
from underpass_control.settlement.period import projected, shares_of

from dama.formulas import jain_index
from dama.ledger import Ledger, Usage, settle
from dama.planner import CapacityStep, Link, Plan, plan
from dama.planner.splitting import equal_at
from dama.prediction import Blockage

BEAM_BPS = 8_000_000
ONE_WAY_MS = 250
STEP_MS = 250
PERIOD_MS = 10_000
SIGNALLING_MS = 300
GUARANTEED_BPS = 500_000
# A fix comes each second; a period is settled once the next one has passed.
FIX_MS = 1_000
LINK = Link.FORWARD


class Way(Protocol):
    """The first terminal's blockages."""

    def blocked(self, sent_ms: int) -> bool:
        """Tell whether data that the hub sends at this time meets a blockage."""


@dataclass(frozen=True)
class Tunnel:
    """When the first terminal is in its road tunnel, and since when that is predicted."""

    entry_ms: int
    exit_ms: int
    foreseen_ms: int

    def blocked(self, sent_ms: int) -> bool:
        """Tell whether data that the hub sends at this time meets the blockage."""
        return self.entry_ms <= sent_ms + ONE_WAY_MS < self.exit_ms


@dataclass(frozen=True)
class InForce:
    """A plan within a period, as settlement uses it."""

    from_ms: int
    to_ms: int
    plan: Plan


def in_force(plans: Sequence[tuple[Plan, Reason]], from_ms: int, to_ms: int) -> list[InForce]:
    """Return, of successive plans, those in force in a period, each with its part of it."""
    found, until_ms = [], to_ms
    for made, _ in reversed(plans):
        begin_ms, end_ms = max(made.start_ms, from_ms), min(made.end_ms, until_ms)
        if begin_ms < end_ms:
            found.append(InForce(begin_ms, end_ms, made))
        until_ms = min(until_ms, made.start_ms)
    return found[::-1]


@dataclass
class Beam:
    """The beam, its control and its hub."""

    sessions: int
    tunnel: Way
    # The predictions at a time.
    says: Callable[[int], tuple[Blockage, ...]]
    # How long the hub sends into an unplanned blockage before it notices.
    silence_ms: int = 0
    plans: list[tuple[Plan, Reason]] = field(default_factory=list)
    sent: dict[str, int] = field(default_factory=dict)
    arrived: dict[str, int] = field(default_factory=dict)
    ledger: Ledger = field(default_factory=Ledger)
    _left_bits: int = 0

    def run(self, end_ms: int) -> None:
        """Let the time pass."""
        nodes = range(1, self.sessions + 1)
        planner = BeamPlanner("beam")
        terms = {node: Terms(1, GUARANTEED_BPS, None, 1) for node in nodes}
        planner.set_terms(LINK, (CapacityStep(0, BEAM_BPS),), terms, ONE_WAY_MS)
        planner.set_demands(LINK, {node: Demand(None, Fraction(1)) for node in nodes}, 0)
        self.sent = {str(node): 0 for node in nodes}
        self.arrived = dict(self.sent)
        waiting: list[tuple[int, dict[str, int], bool]] = []
        settled_ms = 0
        period = dict.fromkeys(self.sent, 0)
        inside = False
        since_ms: int | None = None
        for now_ms in range(0, end_ms, STEP_MS):
            if now_ms % FIX_MS == 0:
                planner.expect(1, self.says(now_ms), now_ms)
                self._plan(planner, now_ms, settled_ms)
            blocked = self.tunnel.blocked(now_ms)
            since_ms = (now_ms if since_ms is None else since_ms) if blocked else None
            noticed = since_ms is not None and now_ms - since_ms >= self.silence_ms
            for name, bits in self._send(now_ms, noticed=noticed).items():
                self.sent[name] += bits
                period[name] += bits
                self.arrived[name] += 0 if blocked and name == "1" else bits
            inside = inside or blocked
            if (now_ms + STEP_MS) % PERIOD_MS == 0:
                waiting.append((now_ms + STEP_MS - PERIOD_MS, period, inside))
                period, inside = dict.fromkeys(self.sent, 0), False
                if len(waiting) > 1:
                    settled_ms = self._settle(*waiting.pop(0))
                    owed = self._owed(settled_ms, now_ms)
                    planner.see_balances(LINK, owed, now_ms)
        for one in waiting:
            self._settle(*one)

    def _plan(self, planner: BeamPlanner, now_ms: int, settled_ms: int) -> None:
        reason = planner.due(now_ms).get(LINK)
        if reason is None:
            return
        owed = self._owed(settled_ms, now_ms + SIGNALLING_MS)
        assert sum(owed.values()) == 0
        request = planner.request(LINK, now_ms, SIGNALLING_MS, owed)
        made = plan(request)
        planner.taken(request, made)
        self.plans.append((made, reason))

    def _owed(self, settled_ms: int, at_ms: int) -> dict[int, int]:
        return projected(self.ledger, shares_of(in_force(self.plans, settled_ms, at_ms)))

    def _settle(self, begin_ms: int, sent: dict[str, int], inside: bool) -> int:
        end_ms = begin_ms + PERIOD_MS
        shares = shares_of(in_force(self.plans, begin_ms, end_ms))
        usages = [
            Usage(
                name,
                shares[int(name)].fair_bits if int(name) in shares else 0,
                shares[int(name)].planned_bits if int(name) in shares else 0,
                bits,
                blocked=inside and name == "1",
            )
            for name, bits in sent.items()
        ]
        settle(self.ledger, begin_ms, end_ms, usages)
        return end_ms

    def _send(self, now_ms: int, *, noticed: bool) -> dict[str, int]:
        """Return what the hub sends in a step: by plan, and the rest to terminals that it hears.

        In a blockage that it has not `noticed`, it follows the plan.
        """
        names = list(self.sent)
        whole = BEAM_BPS * STEP_MS // 1000
        pieces = in_force(self.plans, now_ms, now_ms + STEP_MS)
        bits = dict.fromkeys(names, 0)
        for piece in pieces:
            for name, (given, _) in piece.plan.amounts(piece.from_ms, piece.to_ms).items():
                bits[name] += given
        silent = noticed or (self.tunnel.blocked(now_ms) and not bits["1"])
        heard = [name for name in names if name != "1" or not silent]
        bits = {name: bits[name] if name in heard else 0 for name in names}
        if "1" in heard and not bits["1"] and pieces:
            # Heard beats planned: the hub sends to it, at the others' expense.
            guaranteed = GUARANTEED_BPS * STEP_MS // 1000
            less = equal_at(guaranteed, len(heard) - 1)
            for name, one in zip((name for name in heard if name != "1"), less, strict=True):
                bits[name] -= one
            bits["1"] = guaranteed
        # Parts of all that was ever left: of each step's alone, the same terminals would have more.
        before = equal_at(self._left_bits, len(heard))
        self._left_bits += whole - sum(bits.values())
        after = equal_at(self._left_bits, len(heard))
        for name, early, late in zip(heard, before, after, strict=True):
            bits[name] += late - early
        return bits

    @property
    def jain(self) -> Fraction:
        """Jain's index of the bits sent."""
        return jain_index(list(self.sent.values()))


def jittering(tunnel: Tunnel, by_ms: int, seed: int) -> Callable[[int], tuple[Blockage, ...]]:
    """Predict a tunnel once it is foreseen; each prediction's times err by up to `by_ms`."""
    noise = random.Random(seed)

    def says(now_ms: int) -> tuple[Blockage, ...]:
        if not tunnel.foreseen_ms <= now_ms < tunnel.exit_ms:
            return ()
        entry_ms, exit_ms = tunnel.entry_ms, tunnel.exit_ms
        if now_ms < tunnel.entry_ms:
            entry_ms += noise.randint(-by_ms, by_ms)
            exit_ms += noise.randint(-by_ms, by_ms)
        return (Blockage("tunnel", entry_ms, exit_ms, 0.9 if by_ms else 1.0, now_ms),)

    return says
