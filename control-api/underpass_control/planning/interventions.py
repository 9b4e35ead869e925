"""Interventions: operators override the planner for a time; their effect on plans.

Without I/O and clock; times are UTC in ms since the Unix epoch.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum

from dama.planner import CapacityStep, FairShare, Link, Terminal
from dama.prediction import Span


class Kind(StrEnum):
    """What an intervention does."""

    # Of a beam: nothing is lent for blockages that are foreseen after its beginning.
    FREEZE = "freeze"
    # Of a terminal: it has the set rate.
    RATE = "rate"
    # Of a beam: it carries less. Of a terminal: it wants nothing.
    MAINTENANCE = "maintenance"
    # Of a terminal: one blockage that is foreseen will not come.
    WITHDRAWAL = "withdrawal"


@dataclass(frozen=True, slots=True)
class Intervention:
    """One intervention; `terminal` is None where it is of the beam.

    Attributes:
        id: its number.
        from_ms: when it begins.
        until_ms: when it ends by itself.
        forward_bps: of a rate, the terminal's; of a beam's maintenance, the beam's capacity; None:
            unchanged.
        return_bps: the same on the return link.
        span: of a withdrawal, the blockage.
    """

    id: int
    kind: Kind
    terminal: int | None
    from_ms: int
    until_ms: int
    forward_bps: int | None = None
    return_bps: int | None = None
    span: Span | None = None

    def rate_bps(self, link: Link) -> int | None:
        """Return the rate set for a link."""
        return self.forward_bps if link is Link.FORWARD else self.return_bps

    def is_in_force(self, now_ms: int) -> bool:
        """Tell whether it has begun and has not ended."""
        return self.from_ms <= now_ms < self.until_ms


@dataclass(frozen=True, slots=True)
class Effect:
    """The effect of interventions on a terminal's terms: a rate (bit/s), or None if it is away."""

    rate_bps: int | None


@dataclass(frozen=True, slots=True)
class InForce:
    """The effect of interventions on a link's plan at a time; a change requires a new plan."""

    effects: Mapping[int, Effect]
    # Since when no new blockage is lent for; None: there is no freeze.
    frozen_ms: int | None


class Interventions:
    """The interventions on a beam and its terminals that have not ended."""

    def __init__(self, of_beam: Iterable[Intervention] = ()) -> None:
        self._all = tuple(of_beam)

    def in_force(self, link: Link, now_ms: int) -> InForce:
        """Return their present effect on a link's plan."""
        effects: dict[int, Effect] = {}
        frozen_ms: int | None = None
        for one in self._all:
            if not one.is_in_force(now_ms):
                continue
            if one.kind is Kind.FREEZE:
                frozen_ms = one.from_ms if frozen_ms is None else min(frozen_ms, one.from_ms)
            elif one.terminal is None:
                continue
            elif one.kind is Kind.MAINTENANCE:
                effects[one.terminal] = Effect(None)
            elif one.kind is Kind.RATE and (rate_bps := one.rate_bps(link)) is not None:
                effects.setdefault(one.terminal, Effect(rate_bps))
        return InForce(effects, frozen_ms)

    def capacity(self, link: Link, steps: tuple[CapacityStep, ...]) -> tuple[CapacityStep, ...]:
        """Return the capacity over time that a beam's maintenance windows leave."""
        windows = [
            (one.from_ms, one.until_ms, rate_bps)
            for one in self._all
            if one.kind is Kind.MAINTENANCE and one.terminal is None
            if (rate_bps := one.rate_bps(link)) is not None
        ]
        if not windows:
            return steps
        starts = [step.from_ms for step in steps]
        bounds = {*starts, *(bound for window in windows for bound in window[:2])}
        found: list[CapacityStep] = []
        for from_ms in sorted(bound for bound in bounds if bound >= starts[0]):
            set_bps = steps[bisect_right(starts, from_ms) - 1].rate_bps
            left = (rate for begin, end, rate in windows if begin <= from_ms < end)
            rate_bps = min(set_bps, *left, set_bps)
            if not found or found[-1].rate_bps != rate_bps:
                found.append(CapacityStep(from_ms, rate_bps))
        return tuple(found)

    def withdrawn(self) -> dict[int, dict[int, Span]]:
        """Return by terminal and number the blockages that are withdrawn."""
        found: dict[int, dict[int, Span]] = {}
        for one in self._all:
            if one.kind is Kind.WITHDRAWAL and one.terminal is not None and one.span is not None:
                found.setdefault(one.terminal, {})[one.id] = one.span
        return found


def applied(terminal: Terminal, effect: Effect | None) -> Terminal:
    """Return a terminal for planning, with the interventions of operators.

    A terminal that is away wants nothing, but keeps its guaranteed rate in case it is heard after
    all. A set rate is a ceiling and a floor but no guarantee, which would outlast the intervention
    if the control service were away. Like a guaranteed rate by symbols, it takes no more capacity
    in a fade than without one: its floor and its demand are then below its ceiling.
    """
    if effect is None:
        return terminal
    if effect.rate_bps is None:
        return replace(terminal, demand_bps=0, floor_bps=0)
    rate_bps = effect.rate_bps
    floor_bps = rate_bps
    if terminal.fair_share is FairShare.SYMBOLS and terminal.efficiency < 1:
        floor_bps = int(rate_bps * terminal.efficiency)
    return replace(
        terminal,
        minimum_bps=min(terminal.minimum_bps, rate_bps),
        floor_bps=floor_bps,
        maximum_bps=rate_bps,
        demand_bps=floor_bps,
    )
