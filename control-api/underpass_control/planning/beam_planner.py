"""When a beam is planned anew, and with what: the decisions, without I/O and clock.

The inputs are `expect`, `set_terms`, `set_demands`, `see_balances` and, for interventions of
operators, `intervene`. `due` tells which links need a plan now, and why; `request` returns what to
plan; `taken` is called once the plan is stored. Past lending and borrowing is in the balances given
to `request`: the settled ones, with the amounts that the plans since then have moved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction

from dama.planner import (
    Blockage,
    CapacityStep,
    FairShare,
    Link,
    Plan,
    Request,
    Terminal,
    fair_rates,
)
from dama.prediction import Blockage as Prediction
from underpass_control.demand import Demand
from underpass_control.planning.expected import Expectations, Expected, Planned
from underpass_control.planning.interventions import InForce, Interventions, applied

# A plan lasts at least HORIZON_MS. Debts are repaid within SETTLE_MS, or within SETTLE_MS of the
# last exit; the rest of the plan is for the case that no other plan follows.
HORIZON_MS = 180_000
SETTLE_MS = 60_000
# With no blockage ahead, repaying takes this part of a fair share or more, so that the last of a
# debt is repaid before another plan comes. But it takes at least this long.
_REPAID_PART = Fraction(1, 16)
_LEAST_SETTLE_MS = 1_000
# The longest plan: predictions do not reach further.
_FURTHEST_MS = 7_200_000
# A new plan is made while the present one still lasts this long, so nodes do not notice an absence
# of the control service up to this long.
RENEW_MS = 90_000
# Small changes come every second; they wait until the last plan is this old.
_MOVE_EVERY_MS = 1_000
_DEMAND_EVERY_MS = 5_000
_AGAIN_AFTER_MS = 5_000
# Demands matter once they would move this part of the capacity between terminals.
_DEMAND_PART = Fraction(2, 100)
# Efficiencies matter once one differs from the plan's by the first part. If one is lower by more
# than the second part, the plan gives far more than the link carries. Changes that concern little
# of the capacity in all wait longer, since each plan is sent to all terminals.
_EFFICIENCY_PART = Fraction(2, 100)
_FADING_PART = Fraction(10, 100)
_EFFICIENCY_EVERY_MS = 15_000
# Balances matter once they differ from the plan by what the beam carries in this time.
_BALANCE_MS = 250


class Reason(StrEnum):
    """Why a plan is made; the most urgent first."""

    FIRST = "first"
    TERMS = "terms"
    INTERVENTION = "intervention"
    CAPACITY = "capacity"
    BLOCKAGES = "blockages"
    MOVED = "moved"
    BALANCES = "balances"
    EFFICIENCY = "efficiency"
    DEMAND = "demand"
    HORIZON = "horizon"


@dataclass(frozen=True, slots=True)
class Terms:
    """A terminal's terms on one link, and the gateway that serves it."""

    weight: int
    minimum_bps: int
    maximum_bps: int | None
    gateway: int | None
    fair_share: FairShare = FairShare.SYMBOLS


_GREEDY = Demand(None, Fraction(1))
_NOTHING_SET = InForce({}, None)


@dataclass
class _LinkState:
    """The known state of one link, and the inputs of its present plan."""

    capacity: tuple[CapacityStep, ...] = ()
    terms: dict[int, Terms] = field(default_factory=dict)
    demands: dict[int, Demand] = field(default_factory=dict)
    in_force: InForce = _NOTHING_SET
    # Whether the demands differ enough from the plan's, and whether a terminal wants much more than
    # the little that the plan gives it.
    demand_due: bool = False
    starved: bool = False
    balances_due: bool = False
    # After which age the plan is due for its efficiencies; None: they require no new plan.
    efficiency_due_ms: int | None = None
    # When planning last failed because the request has no plan.
    refused_ms: int | None = None
    plan: Plan | None = None
    planned_ms: int = 0
    planned: Planned = field(default_factory=Planned)
    planned_capacity: tuple[CapacityStep, ...] = ()
    planned_terms: dict[int, Terms] = field(default_factory=dict)
    planned_in_force: InForce = _NOTHING_SET
    planned_rates: dict[str, Fraction] = field(default_factory=dict)
    planned_efficiencies: dict[int, Fraction] = field(default_factory=dict)

    def terminals(self, owed: Mapping[int, int]) -> tuple[Terminal, ...]:
        """Return the terminals for planning."""
        found = []
        for node, terms in self.terms.items():
            demand = self.demands.get(node, _GREEDY)
            terminal = Terminal(
                id=str(node),
                weight=terms.weight,
                minimum_bps=terms.minimum_bps,
                floor_bps=demand.floor_bps,
                maximum_bps=terms.maximum_bps,
                demand_bps=demand.demand_bps,
                efficiency=demand.efficiency,
                owed_bits=owed.get(node, 0),
                fair_share=terms.fair_share,
            )
            found.append(applied(terminal, self.in_force.effects.get(node)))
        return tuple(found)

    def capacity_bps(self, now_ms: int) -> int:
        """Return the capacity at a time."""
        begun = [step.rate_bps for step in self.capacity if step.from_ms <= now_ms]
        return begun[-1] if begun else 0


class BeamPlanner:
    """Decides when the links of a beam are planned anew."""

    def __init__(self, beam: str) -> None:
        self._beam = beam
        self._one_way_delay_ms = 0
        self._expectations = Expectations()
        self._interventions = Interventions()
        self._links = {link: _LinkState() for link in Link}

    def set_terms(
        self,
        link: Link,
        capacity: tuple[CapacityStep, ...],
        terms: Mapping[int, Terms],
        one_way_delay_ms: int,
    ) -> None:
        """Take what an operator has set. The first step of the capacity is in the past."""
        state = self._links[link]
        self._one_way_delay_ms = one_way_delay_ms
        state.capacity = capacity
        for gone in state.terms.keys() - terms.keys():
            self._expectations.forget(gone)
            state.demands.pop(gone, None)
        state.terms = dict(terms)

    def intervene(self, interventions: Interventions, now_ms: int) -> None:
        """Take the present interventions of operators, instead of the former ones.

        The capacity that maintenance leaves is given by `set_terms`.
        """
        self._interventions = interventions
        self._look_at_interventions(now_ms)

    @property
    def is_frozen(self) -> bool:
        """Tell whether nothing new is lent for on any link."""
        return any(state.in_force.frozen_ms is not None for state in self._links.values())

    def recall(self, terminal: int, said: Prediction, first_ms: int, now_ms: int) -> None:
        """Take in a blockage that the former planner has expected since `first_ms`."""
        self._expectations.recall(terminal, said, first_ms, now_ms)

    def capacity_bps(self, link: Link, now_ms: int) -> int:
        """Return the capacity of a link at a time."""
        return self._links[link].capacity_bps(now_ms)

    def set_demands(self, link: Link, demands: Mapping[int, Demand], now_ms: int) -> None:
        """Take in the terminals' present demands."""
        state = self._links[link]
        if demands == state.demands:
            return
        state.demands = dict(demands)
        capacity_bps = state.capacity_bps(now_ms)
        state.efficiency_due_ms = _efficiency_due_ms(state, capacity_bps)
        rates = fair_rates(capacity_bps, state.terminals({}))
        none = Fraction()
        changes = {
            name: rates.get(name, none) - state.planned_rates.get(name, none)
            for name in rates.keys() | state.planned_rates.keys()
        }
        matters_bps = _DEMAND_PART * capacity_bps
        # The sum counts each moved rate twice: one terminal loses it, another gains it.
        state.demand_due = sum(map(abs, changes.values()), none) > 2 * matters_bps
        state.starved = any(
            more > matters_bps and 2 * more > rates[name] for name, more in changes.items()
        )

    def expect(self, terminal: int, blockages: Iterable[Prediction], now_ms: int) -> bool:
        """Take in all present predictions of a terminal; tell whether to look at it again."""
        return self._expectations.take(terminal, blockages, now_ms)

    def see_balances(self, link: Link, owed: Mapping[int, int], now_ms: int) -> None:
        """Take in the present balances: the settled ones, with the plans since then applied."""
        state = self._links[link]
        if state.plan is None:
            return
        assumed = moved(state.plan, now_ms)
        apart = sum(abs(owed.get(node, 0) - assumed.get(node, 0)) for node in state.terms)
        # While the link carries nothing, nothing can be repaid. A difference counts once the link
        # carries something again.
        matters = 2 * _BALANCE_MS * state.capacity_bps(now_ms)
        state.balances_due = 0 < matters < apart * 1000

    def due(self, now_ms: int) -> dict[Link, Reason]:
        """Return the links that need a plan now."""
        self._look_at_interventions(now_ms)
        found = {}
        for link, state in self._links.items():
            reason = self._reason(state, now_ms)
            if reason is not None:
                found[link] = reason
        return found

    def request(
        self,
        link: Link,
        now_ms: int,
        signalling_delay_ms: int,
        owed: Mapping[int, int],
    ) -> Request:
        """Return what to plan; `owed` are the balances at the plan's start."""
        state = self._links[link]
        expected = self._expected(state, now_ms)
        if expected:
            last_ms = max(now_ms, *(one.exit_ms for one in expected))
            settle_ms = min(last_ms + SETTLE_MS, now_ms + _FURTHEST_MS)
        else:
            repaid_ms = signalling_delay_ms + _repaid_within_ms(state, owed, now_ms)
            settle_ms = now_ms + min(repaid_ms, SETTLE_MS)
        return Request(
            beam=self._beam,
            link=link,
            now_ms=now_ms,
            end_ms=max(now_ms + HORIZON_MS, settle_ms),
            capacity=state.capacity,
            terminals=state.terminals(owed),
            blockages=tuple(
                Blockage(
                    str(one.terminal), one.entry_ms, one.exit_ms, one.confidence, one.is_lent_for
                )
                for one in expected
                if one.terminal in state.terms and one.entry_ms < one.exit_ms
            ),
            signalling_delay_ms=signalling_delay_ms,
            one_way_delay_ms=self._one_way_delay_ms,
            settle_ms=settle_ms,
        )

    def taken(self, request: Request, plan: Plan) -> None:
        """Take a stored plan as the present one."""
        state = self._links[request.link]
        state.plan = plan
        state.planned_ms = request.now_ms
        state.planned = Planned(
            Expected(int(one.terminal), one.entry_ms, one.exit_ms, one.confidence, one.is_lent_for)
            for one in request.blockages
        )
        state.planned_capacity = request.capacity
        state.planned_terms = dict(state.terms)
        state.planned_in_force = state.in_force
        bare = tuple(replace(terminal, owed_bits=0) for terminal in request.terminals)
        state.planned_rates = fair_rates(state.capacity_bps(request.now_ms), bare)
        state.planned_efficiencies = {
            int(one.id): Fraction(one.efficiency) for one in request.terminals
        }
        state.efficiency_due_ms = _efficiency_due_ms(state, state.capacity_bps(request.now_ms))
        state.demand_due = state.starved = state.balances_due = False
        state.refused_ms = None

    def refused(self, link: Link, now_ms: int) -> None:
        """Do not plan a link for a while, because the request has no plan."""
        self._links[link].refused_ms = now_ms

    def _reason(self, state: _LinkState, now_ms: int) -> Reason | None:
        if not state.capacity:
            return None
        if state.refused_ms is not None and abs(now_ms - state.refused_ms) < _AGAIN_AFTER_MS:
            return None
        if state.plan is None:
            return Reason.FIRST
        if state.terms != state.planned_terms:
            return Reason.TERMS
        if state.in_force != state.planned_in_force:
            return Reason.INTERVENTION
        if _ahead(state.capacity, now_ms) != _ahead(state.planned_capacity, now_ms):
            return Reason.CAPACITY
        expected = [one for one in self._expected(state, now_ms) if one.terminal in state.terms]
        if state.planned.appeared_or_vanished(expected, now_ms):
            return Reason.BLOCKAGES
        age_ms = now_ms - state.planned_ms
        if age_ms >= _MOVE_EVERY_MS and state.planned.moved(expected, now_ms):
            return Reason.MOVED
        if age_ms >= _MOVE_EVERY_MS and state.balances_due:
            return Reason.BALANCES
        if state.efficiency_due_ms is not None and age_ms >= state.efficiency_due_ms:
            return Reason.EFFICIENCY
        if state.starved and age_ms >= _MOVE_EVERY_MS:
            return Reason.DEMAND
        if state.demand_due and age_ms >= _DEMAND_EVERY_MS:
            return Reason.DEMAND
        # A negative age means that the clock was set back: the plan is for a later time.
        if state.plan.end_ms - now_ms < RENEW_MS or age_ms <= -_MOVE_EVERY_MS:
            return Reason.HORIZON
        return None

    def _expected(self, state: _LinkState, now_ms: int) -> list[Expected]:
        frozen_ms = state.in_force.frozen_ms
        return self._expectations.blockages(now_ms, state.planned, frozen_ms)

    def _look_at_interventions(self, now_ms: int) -> None:
        for link, state in self._links.items():
            state.in_force = self._interventions.in_force(link, now_ms)


def _efficiency_due_ms(state: _LinkState, capacity_bps: int) -> int | None:
    """Return the plan's age at which the present efficiencies require a new one; None: never."""
    concerned_bps = Fraction()
    differs = fades = False
    for node, planned in state.planned_efficiencies.items():
        now = state.demands.get(node, _GREEDY).efficiency
        if now == planned:
            continue
        differs |= abs(now / planned - 1) > _EFFICIENCY_PART
        fades |= now < (1 - _FADING_PART) * planned
        share_bps = state.planned_rates.get(str(node), Fraction())
        concerned_bps += share_bps * (1 - min(now, planned) / max(now, planned))
    if not differs:
        return None
    if concerned_bps <= _DEMAND_PART * capacity_bps:
        return _EFFICIENCY_EVERY_MS
    return _MOVE_EVERY_MS if fades else _DEMAND_EVERY_MS


def _repaid_within_ms(state: _LinkState, owed: Mapping[int, int], now_ms: int) -> int:
    """Return how long all that is owed takes to be repaid, if no blockage is expected."""
    debts = {node: abs(bits) for node, bits in owed.items() if bits and node in state.terms}
    if not debts:
        return SETTLE_MS
    rates = fair_rates(state.capacity_bps(now_ms), state.terminals({}))
    if not all(rates[str(node)] for node in debts):
        return SETTLE_MS
    longest_ms = max(
        1000 * bits / (_REPAID_PART * rates[str(node)]) for node, bits in debts.items()
    )
    return min(max(_LEAST_SETTLE_MS, int(longest_ms)), SETTLE_MS)


def moved(plan: Plan, at_ms: int) -> dict[int, int]:
    """Return each terminal's balance at a time, if the plan is followed from its start.

    As in the ledger, capacity that one terminal leaves and no other can use is no debt.
    """
    amounts = plan.amounts(plan.start_ms, max(at_ms, plan.start_ms))
    less = {name: max(0, fair - given) for name, (given, fair) in amounts.items()}
    more = {name: max(0, given - fair) for name, (given, fair) in amounts.items()}
    left, taken = sum(less.values()), sum(more.values())
    changed = min(left, taken)
    owed = {}
    for member in (member for group in plan.groups for member in group.members):
        bits = member.owed_bits
        if changed:
            bits += less[member.id] * changed // left - more[member.id] * changed // taken
        owed[int(member.id)] = bits
    return owed


def _ahead(steps: tuple[CapacityStep, ...], now_ms: int) -> tuple[CapacityStep, ...]:
    """Return the capacity from now on."""
    begun = [step for step in steps if step.from_ms <= now_ms]
    later = (step for step in steps if step.from_ms > now_ms)
    return (CapacityStep(0, begun[-1].rate_bps), *later)
