"""The request for a plan: the beam's capacity, its terminals, and the blockages to come."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from enum import StrEnum
from fractions import Fraction

# The most capacity times duration of a request, in bits: a double holds every integer up to this.
MOST_BITS = 2**53
# Blockages below this confidence are ignored.
LEAST_CONFIDENCE = 0.5


class PlanError(ValueError):
    """A request that cannot be planned, with the reason."""


class Link(StrEnum):
    """A direction of a beam: hub to terminal, or terminal to hub."""

    FORWARD = "forward"
    RETURN = "return"


class FairShare(StrEnum):
    """The unit in which fair shares are equal, where terminals' efficiencies differ.

    By symbols, terminals of equal weight have equal parts of the capacity: a fade costs only the
    terminal that it affects. By bits they have equal rates: a fade costs all terminals.
    """

    SYMBOLS = "symbols"
    BITS = "bits"


@dataclass(frozen=True, slots=True)
class CapacityStep:
    """The beam's capacity from a time on, until the next step.

    Attributes:
        from_ms: UTC, ms since the Unix epoch, at the sending node.
        rate_bps: bit/s of IP bytes at efficiency 1.
    """

    from_ms: int
    rate_bps: int


@dataclass(frozen=True, slots=True)
class Terminal:
    """A terminal's terms on one link of the beam.

    Attributes:
        id: its name, unique in the beam.
        weight: its part relative to others, or the number of its sessions.
        minimum_bps: guaranteed rate; lending never takes its rate below this.
        maximum_bps: ceiling, if any.
        demand_bps: the rate that it can use; None while it is backlogged and can use any. A
            terminal of 0 is not counted in N.
        efficiency: bits per unit of capacity in its present MODCOD.
        owed_bits: the ledger's balance, in bits of capacity: the bits that others owe it; if
            negative, that it owes them. The plan settles it.
        floor_bps: the rate that lending and repaying always leave it, to report and to start
            sending. Unlike the minimum, it is no guarantee for times without contact.
        fair_share: the unit in which its share is fair.
    """

    id: str
    weight: Fraction | int = 1
    minimum_bps: int = 0
    maximum_bps: int | None = None
    demand_bps: int | None = None
    efficiency: Fraction | int = 1
    owed_bits: int = 0
    floor_bps: int = 0
    fair_share: FairShare = FairShare.SYMBOLS

    @property
    def terms(self) -> tuple[Fraction, Fraction, Fraction | None]:
        """Weight, least and greatest rate, each per unit of capacity.

        Terminals of different efficiency with the same three values get the same capacity.
        """
        efficiency = Fraction(self.efficiency)
        bounds = [rate for rate in (self.maximum_bps, self.demand_bps) if rate is not None]
        greatest = min(bounds) / efficiency if bounds else None
        least = max(self.minimum_capacity_bps, self.floor_bps / efficiency)
        if greatest is not None:
            least = min(least, greatest)
        return self.capacity_weight, least, greatest

    @property
    def capacity_weight(self) -> Fraction:
        """Its part of the capacity relative to others."""
        if self.fair_share is FairShare.SYMBOLS:
            return Fraction(self.weight)
        return Fraction(self.weight) / Fraction(self.efficiency)

    @property
    def minimum_capacity_bps(self) -> Fraction:
        """The capacity that its guaranteed rate takes.

        By symbols, it takes no more at an efficiency below 1 than at 1: others do not make up for
        the part of a guaranteed rate that is lost to a fade.
        """
        efficiency = Fraction(self.efficiency)
        if self.fair_share is FairShare.SYMBOLS:
            efficiency = max(efficiency, Fraction(1))
        return self.minimum_bps / efficiency


@dataclass(frozen=True, slots=True)
class Blockage:
    """A predicted blockage.

    Attributes:
        terminal: the one that is blocked.
        entry_ms: UTC, ms since the Unix epoch, at the terminal's antenna.
        exit_ms: the same; the first ms with line of sight again.
        confidence: 0 to 1, the probability that it comes.
        is_lent_for: whether the terminal may borrow for it. If not, it gets no more before the
            blockage than it would without it, and the share that it leaves to others during the
            blockage is repaid afterwards.
    """

    terminal: str
    entry_ms: int
    exit_ms: int
    confidence: float = 1.0
    is_lent_for: bool = True


@dataclass(frozen=True, slots=True)
class Request:
    """Everything a plan depends on.

    Attributes:
        beam: the beam's name.
        link: which of its directions.
        now_ms: UTC, ms since the Unix epoch.
        end_ms: the end of the horizon; at least the last exit, if all of that blockage is to be
            lent for.
        capacity: steps in ascending order, the first not after the plan's start.
        terminals: those of the beam.
        blockages: those to come, in any order; those of one terminal may overlap.
        signalling_delay_ms: how long until the plan can be in force.
        one_way_delay_ms: from hub to terminal. On the forward link, data sent this long before
            entry arrives at entry, so the planner shifts blockages earlier by it.
        least_confidence: blockages below it are ignored; above it, borrowing is in proportion.
        settle_ms: the time from which on lending and repaying are over, and every terminal that is
            not blocked has its fair share. None: the end of the horizon.
    """

    beam: str
    link: Link
    now_ms: int
    end_ms: int
    capacity: tuple[CapacityStep, ...]
    terminals: tuple[Terminal, ...]
    blockages: tuple[Blockage, ...] = ()
    signalling_delay_ms: int = 0
    one_way_delay_ms: int = 0
    least_confidence: float = LEAST_CONFIDENCE
    settle_ms: int | None = None

    @property
    def start_ms(self) -> int:
        """When the plan comes into force."""
        return self.now_ms + self.signalling_delay_ms

    @property
    def shift_ms(self) -> int:
        """How much earlier the sender meets a blockage than the antenna."""
        return self.one_way_delay_ms if self.link is Link.FORWARD else 0


def check(request: Request) -> None:
    """Refuse a request that has no plan.

    Raises:
        PlanError: says which part of the request is wrong, and how.
    """
    if request.signalling_delay_ms < 0 or request.one_way_delay_ms < 0:
        raise PlanError("a delay is negative")
    if request.end_ms <= request.start_ms:
        raise PlanError(
            f"the horizon ends at {request.end_ms} ms, not after the plan's start at "
            f"{request.start_ms} ms"
        )
    if request.settle_ms is not None and request.settle_ms <= request.start_ms:
        raise PlanError("what is owed is to be settled before the plan's start")
    _check_capacity(request)
    names = set()
    for terminal in request.terminals:
        if terminal.id in names:
            raise PlanError(f"terminal {terminal.id} is there twice")
        names.add(terminal.id)
        _check_terminal(terminal)
    for blockage in request.blockages:
        if blockage.terminal not in names:
            raise PlanError(f"a blockage of terminal {blockage.terminal}, which is not in the beam")
        if blockage.exit_ms <= blockage.entry_ms:
            raise PlanError(f"a blockage of terminal {blockage.terminal} ends before it begins")
        if not 0 <= blockage.confidence <= 1:
            raise PlanError(
                f"a blockage of terminal {blockage.terminal} has the confidence "
                f"{blockage.confidence}: it is from 0 to 1"
            )


def _check_capacity(request: Request) -> None:
    steps = request.capacity
    if not steps or steps[0].from_ms > request.start_ms:
        raise PlanError("the capacity at the plan's start is not given")
    if any(later.from_ms <= step.from_ms for step, later in itertools.pairwise(steps)):
        raise PlanError("the steps of capacity are not in ascending order")
    if min(step.rate_bps for step in steps) < 0:
        raise PlanError("a capacity is negative")
    most = max(step.rate_bps for step in steps) * (request.end_ms - request.start_ms)
    if most > MOST_BITS * 1000:
        raise PlanError(f"the beam carries more than {MOST_BITS} bits until the horizon")


def _check_terminal(terminal: Terminal) -> None:
    def refuse(what: str) -> PlanError:
        return PlanError(f"terminal {terminal.id} has {what}")

    for value in (terminal.weight, terminal.efficiency):
        if isinstance(value, float) and not math.isfinite(value):
            raise refuse("a weight or an efficiency that is not finite")
    if terminal.weight <= 0:
        raise refuse(f"the weight {terminal.weight}: it is above 0")
    if terminal.efficiency <= 0:
        raise refuse(f"the efficiency {terminal.efficiency}: it is above 0")
    if terminal.minimum_bps < 0 or terminal.floor_bps < 0:
        raise refuse("a minimum rate below 0")
    if terminal.maximum_bps is not None and terminal.maximum_bps < terminal.minimum_bps:
        raise refuse("a maximum rate below its minimum")
    if terminal.demand_bps is not None and terminal.demand_bps < 0:
        raise refuse("a demand below 0")
    if abs(terminal.owed_bits) > MOST_BITS:
        raise refuse(f"a balance beyond {MOST_BITS} bits")
