"""The plan in the form for gateways: `docs/control-protocol.md`, *Plans*.

Terminals whose lines are equal, to a bit in each interval, share the least of them, so that rates
never sum to more than the capacity. The lines of a coarse plan have the steps of its parts instead
of all columns.
"""

from __future__ import annotations

import itertools
import json
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np
import numpy.typing as npt

from dama.planner import Link, Plan, Terminal
from dama.planner.coarsening import ROUNDING_BITS, steps_of_parts
from dama.planner.intervals import MS_PER_S, Flags, Integers
from dama.planner.plan import Part
from underpass_control.fades import Grant
from underpass_control.planning.spare import Spare

_STATES = ("fair", "borrowing", "lending", "repaying", "repaid", "blocked")
_FAIR, _BORROWING, _LENDING, _REPAYING, _REPAID, _BLOCKED = range(len(_STATES))
# The highest rate in the protocol. With an efficiency far above 1, a large beam may give more.
_MOST_BPS = 10**12
Rates = npt.NDArray[np.float64]


@dataclass(frozen=True)
class _Shared:
    """Terminals with the same line: bits and fair bits per step, for each of them."""

    terminals: tuple[Terminal, ...]
    # The columns in which the steps begin.
    begins: Integers
    given: Integers
    fair: Integers
    blocked: Flags


@dataclass(frozen=True)
class WireLine:
    """Terminals with the same line, as it is sent."""

    terminals: tuple[int, ...]
    # Bits per unit of the beam's capacity.
    efficiency: Fraction
    # Per column.
    rates_bps: Integers
    # Without the terminals and the guaranteed rate.
    segments: str
    # How many.
    count: int


class WirePlan:
    """A plan rendered for all gateways; this takes some ms for a large beam."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._bounds_ms: Integers = np.array(plan.times_ms, dtype=np.int64)
        self._guaranteed = guaranteed_rates(plan)
        spare = Spare(plan)
        # On the forward link, the hub shares the spare capacity itself.
        self._spread = spare if plan.link is Link.RETURN else None
        self._spare = spare
        apart = spare.begins if self._spread is not None else None
        self.lines = tuple(self._line(shared) for shared in _shared(plan, apart))

    def document(self, version: int, terminals: Collection[int], *, alone: bool) -> str:
        """Return the document with the lines of some terminals.

        Args:
            version: of the plan.
            terminals: those of the gateway.
            alone: whether no other gateway sends on the link.
        """
        lines = []
        rates = np.zeros(len(self._plan.capacity_bps), dtype=np.int64)
        for line in self.lines:
            mine = [node for node in line.terminals if node in terminals]
            rates += line.rates_bps * len(mine)
            for guaranteed, of in itertools.groupby(
                sorted(mine, key=lambda node: (self._guaranteed[node], node)),
                lambda node: self._guaranteed[node],
            ):
                nodes = ",".join(map(str, of))
                lines.append(
                    f'{{"terminals":[{nodes}],"guaranteed_bps":{guaranteed},'
                    f'"segments":{line.segments}}}'
                )
        plan = self._plan
        head = {
            "version": 1,
            "beam": plan.beam,
            "link": plan.link.value,
            "plan": version,
            "issued_ms": plan.issued_ms,
            "start_ms": plan.start_ms,
            "end_ms": plan.end_ms,
            "capacity": self._capacity(terminals, rates, alone=alone),
        }
        text = json.dumps(head, separators=(",", ":"))
        return f'{text[:-1]},"lines":[{",".join(lines)}]}}'

    def granted(self, terminal: int, at_ms: int) -> Grant | None:
        """Return the plan's grant to a terminal at a time; None if it has none."""
        line = self._line_of.get(terminal)
        if line is None or not self._plan.start_ms <= at_ms < self._plan.end_ms:
            return None
        column = bisect_right(self._plan.times_ms, at_ms) - 1
        return Grant(int(line.rates_bps[column]), line.efficiency)

    @cached_property
    def segments(self) -> int:
        """How many segments all lines of the document have."""
        return sum(
            line.count * len({self._guaranteed[node] for node in line.terminals})
            for line in self.lines
        )

    @cached_property
    def _line_of(self) -> dict[int, WireLine]:
        return {node: line for line in self.lines for node in line.terminals}

    def _line(self, shared: _Shared) -> WireLine:
        first = shared.terminals[0]
        efficiency = float(first.efficiency)
        bounds_ms = np.append(self._bounds_ms[shared.begins], self._bounds_ms[-1])
        durations: Integers = np.diff(bounds_ms)
        per_s = shared.given * float(MS_PER_S) / durations
        if self._spread is not None:
            per_s += self._spread.part_of(first, shared.begins, per_s, shared.blocked)
        # Every such rate fits a double; the addend compensates rounding below a whole number.
        rates = np.floor(np.minimum(per_s * efficiency + 1e-6, _MOST_BPS)).astype(np.int64)
        rates[shared.blocked] = 0
        states = _states(shared, first.owed_bits)
        tolerated = 2 * ROUNDING_BITS * MS_PER_S * max(1.0, efficiency) / durations + 1
        joined, segments = _joined(bounds_ms.tolist(), rates, states, tolerated)
        nodes = tuple(int(terminal.id) for terminal in shared.terminals)
        columns = np.diff(np.append(shared.begins, len(self._bounds_ms) - 1))
        written = ",".join(segments)
        return WireLine(
            nodes,
            Fraction(first.efficiency),
            np.repeat(joined, columns),
            f"[{written}]",
            len(segments),
        )

    def _capacity(
        self, terminals: Collection[int], rates: Integers, *, alone: bool
    ) -> list[dict[str, int]]:
        """Return the gateway's total rate: the beam's, unless others send or MODCODs differ."""
        plan = self._plan
        members = [terminal for group in plan.groups for terminal in group.members]
        if not alone or any(terminal.efficiency != 1 for terminal in members):
            weights = {int(one.id): Fraction(one.weight) for one in members}
            whole = sum(weights.values())
            mine = sum((weights[node] for node in weights if node in terminals), Fraction())
            part = 1.0 if alone else float(mine / whole) if whole else 0.0
            spare = 0.0 if self._spread is not None else self._spare.bps * part
            most = np.minimum(rates + spare, _MOST_BPS)
            whole_bps: list[int] = np.floor(most).astype(np.int64).tolist()
            return _steps(plan.times_ms, whole_bps)
        return self.beam_capacity()

    def beam_capacity(self) -> list[dict[str, int]]:
        """Return the steps of the whole beam's capacity."""
        return _steps(self._plan.times_ms, self._plan.capacity_bps)


def _steps(times_ms: Sequence[int], rates_bps: Sequence[int]) -> list[dict[str, int]]:
    steps: list[dict[str, int]] = []
    for from_ms, rate_bps in zip(times_ms, rates_bps, strict=False):
        if not steps or steps[-1]["rate_bps"] != rate_bps:
            steps.append({"from_ms": from_ms, "rate_bps": rate_bps})
    return steps


def guaranteed_rates(plan: Plan) -> dict[int, int]:
    """Return the rate at which each terminal may send without contact, in whole bit/s.

    It is the terminal's minimum, or without one its part by weight of the capacity that the
    minimums leave. The capacity is the one at the plan's end; minimums beyond it shrink in
    proportion.
    """
    terminals = [terminal for group in plan.groups for terminal in group.members]
    capacity = Fraction(plan.capacity_bps[-1])
    needs = _by_terms(terminals)
    minimums = sum(
        (one.minimum_capacity_bps * len(of) for one, of in needs),
        Fraction(),
    )
    weights = sum(
        (one.capacity_weight * len(of) for one, of in needs if not one.minimum_bps), Fraction()
    )
    shrunk = min(Fraction(1), capacity / minimums) if minimums else Fraction(1)
    left = max(Fraction(0), capacity - minimums)
    rates: dict[int, int] = {}
    for one, of in needs:
        if one.minimum_bps:
            capacity_bps = one.minimum_capacity_bps * shrunk
        else:
            capacity_bps = left * one.capacity_weight / weights
        whole = min(int(capacity_bps * Fraction(one.efficiency)), _MOST_BPS)
        if one.maximum_bps is not None:
            whole = min(whole, one.maximum_bps)
        rates |= dict.fromkeys((int(terminal.id) for terminal in of), whole)
    return rates


def _by_terms(terminals: list[Terminal]) -> list[tuple[Terminal, list[Terminal]]]:
    found: dict[tuple[object, ...], list[Terminal]] = {}
    for one in terminals:
        key = (one.weight, one.minimum_bps, one.maximum_bps, one.efficiency, one.fair_share)
        found.setdefault(key, []).append(one)
    return [(of[0], of) for of in found.values()]


def _shared(plan: Plan, apart: Flags | None) -> Iterator[_Shared]:
    """Yield terminals with equal lines, and these lines.

    Args:
        plan: the plan.
        apart: the columns in which all lines begin a new step; None: none.
    """
    whole = np.arange(len(plan.capacity_bps))
    parts: dict[int, list[tuple[Part, Integers, Integers]]] = {}
    for part, (begins, bits) in zip(plan.parts, steps_of_parts(plan, apart), strict=True):
        parts.setdefault(part.group, []).append((part, begins, bits))
    for number, group in enumerate(plan.groups):
        fair = group.fair_bits // max(1, len(group.members))
        # A member that is in no part has its fair share throughout.
        in_parts = np.zeros(len(group.members), dtype=np.bool_)
        for part, begins, bits in parts.get(number, ()):
            in_parts[part.first : part.last] = True
            fair_there, blocked = np.add.reduceat(fair, begins), part.blocked[begins]
            for given, first, last in _equals(part, bits):
                for of in _alike(group.members[first:last]):
                    yield _Shared(of, begins, given, fair_there, blocked)
        others = tuple(
            member for member, inside in zip(group.members, in_parts, strict=True) if not inside
        )
        nothing = np.zeros(len(whole), dtype=np.bool_)
        for of in _alike(others):
            yield _Shared(of, whole, fair, fair, nothing)


def _equals(part: Part, bits: Integers) -> Iterator[tuple[Integers, int, int]]:
    """Yield the runs of equally entitled members of a part, with the bits of each member.

    Args:
        part: the part.
        bits: given to all of them together, per step.
    """
    if part.equal:
        yield bits // len(part.entitlements), part.first, part.last
        return
    whole = sum(part.entitlements)
    place = part.first
    amounts = bits.tolist()
    for entitlement, of in itertools.groupby(part.entitlements):
        count = len(list(of))
        given = [amount * entitlement // whole for amount in amounts]
        yield np.array(given, dtype=np.int64), place, place + count
        place += count


def _alike(members: Iterable[Terminal]) -> Iterator[tuple[Terminal, ...]]:
    for _, of in itertools.groupby(sorted(members, key=_key), _key):
        yield tuple(of)


def lines_of(plan: Plan) -> list[int]:
    """Return for each part how many lines its terminals have."""
    counts = []
    for part in plan.parts:
        members = plan.groups[part.group].members[part.first : part.last]
        counts.append(len({(*_key(one), one.minimum_bps) for one in members}))
    return counts


def _key(terminal: Terminal) -> tuple[object, ...]:
    """Return the values, beside the amounts, that determine a line on the wire."""
    maximum = -1 if terminal.maximum_bps is None else terminal.maximum_bps
    return terminal.efficiency, terminal.weight, maximum, terminal.owed_bits, terminal.fair_share


def _states(shared: _Shared, owed_bits: int) -> Integers:
    more: Integers = shared.given - shared.fair
    before = owed_bits - (np.cumsum(more) - more)
    states = np.full(len(more), _FAIR, dtype=np.int64)
    gains, loses = more >= ROUNDING_BITS, more <= -ROUNDING_BITS
    # A column that is partly one and partly the other is named after the larger part.
    states[gains] = np.where(2 * np.clip(before, 0, None) >= more, _REPAID, _BORROWING)[gains]
    states[loses] = np.where(2 * np.clip(-before, 0, None) >= -more, _REPAYING, _LENDING)[loses]
    states[shared.blocked] = _BLOCKED
    return states


def _joined(
    times_ms: Sequence[int], rates: Integers, states: Integers, tolerated: Rates
) -> tuple[Integers, list[str]]:
    """Join neighbours that differ only by rounding, at their least rate, and render them."""
    apart = (np.diff(states) != 0) | (np.abs(np.diff(rates)) > tolerated[1:] + tolerated[:-1])
    begins = np.concatenate(([0], np.flatnonzero(apart) + 1))
    least = np.minimum.reduceat(rates, begins)
    counts = np.diff(np.concatenate((begins, [len(rates)])))
    ends = [*begins[1:].tolist(), len(rates)]
    written = [
        f'{{"start_ms":{times_ms[begin]},"end_ms":{times_ms[end]},'
        f'"rate_bps":{rate},"state":"{_STATES[state]}"}}'
        for begin, end, rate, state in zip(
            begins.tolist(), ends, least.tolist(), states[begins].tolist(), strict=True
        )
    ]
    return np.repeat(least, counts), written


def gateways_alone(gateways: Mapping[int, int | None], gateway: int) -> bool:
    """Tell whether no other gateway is known to serve a terminal of the beam."""
    return all(one in (None, gateway) for one in gateways.values())
