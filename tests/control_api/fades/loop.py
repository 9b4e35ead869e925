"""The loop of plan, link, measurement and report, in virtual time.

A beam's terminals always have something to send on the return link. Each second every one reports
what a node reports, and the beam is planned as the service does it: `Demands`, `BeamPlanner`, the
planner and `Grants` are the real ones. Links and senders are modelled. A link carries its
terminal's capacity times the true efficiency. A sender behaves as `gateway/capacity` does: it finds
a lower capacity at once, and a higher one by probes that double it within ten round trips, but
only up to the rate that its plan allows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction

from underpass_control.demand import Demands
from underpass_control.fades import Grant
from underpass_control.planning.beam_planner import BeamPlanner, Reason, Terms
from underpass_control.planning.grants import Grants
from underpass_control.planning.wire import WirePlan
from underpass_control.settlement.period import (
    PERIOD_MS,
    efficiencies_of,
    projected,
    shares_of,
)
from underpass_control.storage.links import LinkState

from dama.ledger import Ledger, Usage, settle
from dama.planner import CapacityStep, FairShare, Link, Plan, plan
from dama.prediction import Blockage
from tests.control_api.planning.beam import in_force

LINK = Link.RETURN
BEAM_BPS = 8_000_000
SIGNALLING_MS = 300
ONE_WAY_MS = 250
STEP_MS = 1_000
# The factor by which probes raise the capacity found in a second: it doubles in six.
_FOUND_IN_A_STEP = 2 ** (1 / 6)
# The part of its rate that a link scheduler uses, and the error of measurements.
_USED_PART = 0.985
_NOISE = 0.03

# A link's rate at a time, for a capacity that its terminal has, both in bit/s.
Carries = Callable[[int, float], float]


def clear(_now_ms: int, capacity_bps: float) -> float:
    """Carry all of the capacity."""
    return capacity_bps


def faded(efficiency: float, from_ms: int = 0, to_ms: int = 10**12) -> Carries:
    """Carry a part of the capacity for some time."""

    def carries(now_ms: int, capacity_bps: float) -> float:
        return capacity_bps * (efficiency if from_ms <= now_ms < to_ms else 1.0)

    return carries


@dataclass
class Sender:
    """A terminal's node, as its reports show it."""

    node: int
    carries: Carries = clear
    noise: random.Random = field(default_factory=lambda: random.Random(7))
    # The capacity found; None while the link has carried everything that the plan allowed.
    found_bps: float | None = None
    reason: str = "limit"
    used_part: float = _USED_PART
    sent_bits: float = 0.0
    blocked: bool = False

    def send(self, now_ms: int, grant: Grant) -> float:
        """Send for a step as a plan grants it; return the bits that arrive."""
        rate_bps = float(grant.rate_bps)
        can_bps = self.carries(now_ms, float(grant.capacity_bps))
        if rate_bps > 1.02 * can_bps and (self.found_bps is None or self.found_bps > can_bps):
            self.found_bps, self.reason = can_bps, "limit"
        elif self.found_bps is not None:
            found_bps = min(self.found_bps * _FOUND_IN_A_STEP, can_bps)
            if self.found_bps < rate_bps:
                self.found_bps = min(found_bps, rate_bps)
                self.reason = "limit" if self.found_bps >= can_bps else "probe"
        allowed_bps = rate_bps if self.found_bps is None else min(rate_bps, self.found_bps)
        bits = 0.0 if self.blocked else self.used_part * allowed_bps * STEP_MS / 1000
        self.sent_bits += bits
        return bits

    def report(self, now_ms: int, version: int, grant: Grant) -> LinkState:
        """Report as a node does."""
        capacity_bps = None
        if self.found_bps is not None:
            capacity_bps = int(self.found_bps * (1 + self.noise.uniform(-_NOISE, _NOISE)))
        return LinkState(
            terminal=self.node,
            link=LINK.value,
            node=self.node,
            incarnation=1,
            uptime_ms=now_ms,
            time_ms=now_ms,
            received_ms=now_ms,
            gateway=1,
            path="satellite",
            state="blocked" if self.blocked else "up",
            offered_bytes=0,
            sent_bytes=int(self.sent_bits / 8),
            backlogged_bytes=10_000_000,
            streams=1,
            rate_bps=grant.rate_bps,
            plan=version,
            capacity_bps=capacity_bps,
            capacity_reason=None if capacity_bps is None else self.reason,
        )


@dataclass
class Loop:
    """The beam, its control and its terminals."""

    senders: Mapping[int, Sender]
    fair_share: FairShare = FairShare.SYMBOLS
    # The predictions for a terminal at a time.
    says: Callable[[int], Mapping[int, tuple[Blockage, ...]]] = lambda _: {}
    inside: Callable[[int, int], bool] = lambda _node, _ms: False
    # Replaces a sender's reports.
    lies: Mapping[int, Callable[[LinkState], LinkState]] = field(default_factory=dict)
    plans: list[tuple[Plan, Reason]] = field(default_factory=list)
    ledger: Ledger = field(default_factory=Ledger)
    # Per terminal and step: the efficiency used in planning, and the bits that arrived.
    efficiencies: dict[int, list[Fraction]] = field(default_factory=dict)
    arrived: dict[int, list[float]] = field(default_factory=dict)

    def run(self, end_ms: int) -> None:
        """Let the time pass."""
        self._demands, self._grants = Demands(), Grants()
        self._planner = BeamPlanner("beam")
        terms = {node: Terms(1, 0, None, 1, self.fair_share) for node in self.senders}
        self._planner.set_terms(LINK, (CapacityStep(0, BEAM_BPS),), terms, ONE_WAY_MS)
        settled_ms = 0
        period = dict.fromkeys(self.senders, 0.0)
        inside = dict.fromkeys(self.senders, False)
        for now_ms in range(0, end_ms, STEP_MS):
            self._plan(now_ms, settled_ms)
            for node, bits in self._send(now_ms).items():
                period[node] += bits
                inside[node] |= self.inside(node, now_ms)
            if (now_ms + STEP_MS) % PERIOD_MS == 0:
                self._settle(settled_ms, period, inside)
                settled_ms += PERIOD_MS
                period = dict.fromkeys(self.senders, 0.0)
                inside = dict.fromkeys(self.senders, False)
                self._planner.see_balances(LINK, self._owed(settled_ms, now_ms), now_ms)

    def _plan(self, now_ms: int, settled_ms: int) -> None:
        demands = self._demands.of_link(LINK, list(self.senders), BEAM_BPS, now_ms)
        self._planner.set_demands(LINK, demands, now_ms)
        for node in self.senders:
            self._planner.expect(node, self.says(now_ms).get(node, ()), now_ms)
        reason = self._planner.due(now_ms).get(LINK)
        if reason is not None:
            owed = self._owed(settled_ms, now_ms + SIGNALLING_MS)
            assert sum(owed.values()) == 0
            request = self._planner.request(LINK, now_ms, SIGNALLING_MS, owed)
            made = plan(request)
            self._planner.taken(request, made)
            self.plans.append((made, reason))
            self._grants.take(LINK, len(self.plans), WirePlan(made))
        for node in self.senders:
            efficiency = self._demands.efficiency(node, LINK)
            self.efficiencies.setdefault(node, []).append(efficiency)

    def _send(self, now_ms: int) -> dict[int, float]:
        """Send by the plan that is in force at the end of the step, and report."""
        version = next(
            (n for n in range(len(self.plans), 0, -1) if self._begun(n, now_ms)), len(self.plans)
        )
        sent = {}
        at_ms = now_ms + STEP_MS - 1
        for node, sender in self.senders.items():
            grant = self._grants.of(LINK, node, version, at_ms) or Grant(0, Fraction(1))
            sender.blocked = self.inside(node, now_ms)
            sent[node] = sender.send(now_ms, grant)
            self.arrived.setdefault(node, []).append(sent[node])
            said = sender.report(at_ms, version, grant)
            if node in self.lies:
                said = self.lies[node](said)
            seen = self._grants.of(LINK, node, said.plan, said.time_ms)
            self._demands.take(node, LINK, said, seen)
        return sent

    def _begun(self, version: int, now_ms: int) -> bool:
        return self.plans[version - 1][0].start_ms <= now_ms + STEP_MS - 1

    def _settle(self, begin_ms: int, sent: Mapping[int, float], inside: Mapping[int, bool]) -> None:
        pieces = in_force(self.plans, begin_ms, begin_ms + PERIOD_MS)
        shares, efficiencies = shares_of(pieces), efficiencies_of(pieces)
        usages = [
            Usage(
                str(node),
                shares[node].fair_bits,
                shares[node].planned_bits,
                int(int(bits) / efficiencies.get(node, Fraction(1))),
                blocked=inside[node],
            )
            for node, bits in sent.items()
        ]
        settle(self.ledger, begin_ms, begin_ms + PERIOD_MS, usages)
        assert sum(self.ledger.balances().values()) == 0

    def _owed(self, settled_ms: int, at_ms: int) -> dict[int, int]:
        return projected(self.ledger, shares_of(in_force(self.plans, settled_ms, at_ms)))

    def bits_of(self, node: int, from_ms: int = 0, to_ms: int = 10**12) -> float:
        """Return a terminal's bits that arrived in a period."""
        return sum(self.arrived[node][from_ms // STEP_MS : to_ms // STEP_MS])


def senders(count: int, carries: Mapping[int, Carries] | None = None) -> dict[int, Sender]:
    """Return terminals, some of them on links of their own."""
    of = carries or {}
    return {
        node: Sender(node, of.get(node, clear), random.Random(node)) for node in range(1, count + 1)
    }
