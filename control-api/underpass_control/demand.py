"""The capacity that terminals can use of a beam, from the reports of their links.

A terminal that has more waiting than its rate clears at once is *backlogged*, and greedy: it takes
what it gets, up to its ceiling. Any other wants 1.25 times its recent rate. A terminal that cannot
send keeps its last demand: the capacity that it lends and is owed is computed from that.

Idle terminals want the *floor*, enough to report and to start sending. A terminal that lends or
repays keeps it, too. The floor is 64 kbit/s, but all of a beam's floors together are a sixteenth of
its capacity at most. Capacity that no terminal wants is not lost: each terminal has its part of it
on top of its plan.

The efficiency is the one reported by a modem or set by an operator; without either, it is estimated
from fades (`underpass_control.fades`).
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache

from dama.planner import Link
from underpass_control.fades import Fade, Grant, Sight
from underpass_control.storage.links import LinkState

# The window of the recent rate, and the least that it has to cover.
_WINDOW_MS = 5_000
_LEAST_WINDOW_MS = 900
_HEADROOM = Fraction(5, 4)
# A terminal's own traffic is no demand. Beacons and keepalives have a rate; reports come in bursts,
# and after a new plan all terminals of a beam send some at once.
_SIGNS_BPS = 2_500
_REPORTS_BYTES = 3_000
# A smaller backlog, which the rate clears within this time, does not count. A gateway lets 100 ms
# of the link's ceiling wait before it stops reading a stream, so a single greedy stream is noticed.
_CLEARED_WITHIN_MS = 50
# A single waiting packet, such as a report, is no backlog either, however slow the link.
_PASSING_BYTES = 600
# The floor, if the beam has room for it; and the part of the beam that all floors may take.
FLOOR_BPS = 64_000
_FLOORS_PART = Fraction(1, 16)
# A terminal that has been unable to send for this long is away, and wants no more than the floor.
_AWAY_AFTER_MS = 300_000
# Efficiencies come as decimal fractions; more digits than this are noise and cost.
_DENOMINATOR = 1_000
_WHOLE = Fraction(1)


@dataclass(frozen=True, slots=True)
class Demand:
    """What a terminal can use of a link.

    Attributes:
        demand_bps: in bit/s of IP bytes; None: any rate.
        efficiency: bits per unit of the beam's capacity, in its present MODCOD, if reported or
            measured.
        floor_bps: the rate that it keeps even while it lends and repays.
    """

    demand_bps: int | None
    efficiency: Fraction
    floor_bps: int = 0


@dataclass(slots=True)
class _Reported:
    """The reports of one direction of a terminal's link."""

    newest: LinkState
    # Uptime and bytes sent while the link was up, of the last seconds.
    sent: list[tuple[int, int]] = field(default_factory=list)
    # When it was last up.
    up_ms: int | None = None
    # The rate when it was last known, None before that; a backlogged terminal is greedy.
    rate_bps: int | None = None
    backlogged: bool = True
    fade: Fade = field(default_factory=Fade)

    def take(self, state: LinkState) -> None:
        last, self.newest = self.newest, state
        if state.state != "up":
            self.sent.clear()
            self.backlogged = self.backlogged or state.backlogged_bytes > 0
            return
        same = (last.node, last.incarnation, last.path) == (
            state.node,
            state.incarnation,
            state.path,
        )
        if not same:
            self.sent.clear()
        self.up_ms = state.time_ms
        self.sent.append((state.uptime_ms, state.sent_bytes))
        # The oldest entry kept is at least as old as the window.
        while len(self.sent) > 2 and self.sent[1][0] <= state.uptime_ms - _WINDOW_MS:
            del self.sent[0]
        began_ms, sent = self.sent[0]
        lasting_ms = state.uptime_ms - began_ms
        if lasting_ms >= _LEAST_WINDOW_MS:
            recent_bytes = max(0, state.sent_bytes - sent)
            own_bytes = _REPORTS_BYTES + _SIGNS_BPS * lasting_ms // 8_000
            wanted_bytes = recent_bytes if recent_bytes > own_bytes else 0
            self.rate_bps = 8_000 * wanted_bytes // lasting_ms
        cleared_bps = state.rate_bps if state.rate_bps is not None else self.rate_bps or 0
        passing_bytes = max(_PASSING_BYTES, cleared_bps * _CLEARED_WITHIN_MS // 8_000)
        self.backlogged = state.backlogged_bytes > passing_bytes

    def look(self, grant: Grant | None) -> None:
        """Look for fades in the newest report, given the grant of the plan that it follows."""
        state = self.newest
        if state.efficiency_told:
            self.fade = Fade()
        elif state.state != "up" or not self.backlogged or grant is None:
            self.fade.interrupt()
        else:
            sight = Sight(
                state.time_ms, grant, state.capacity_bps, state.capacity_reason, self._sent_bps()
            )
            self.fade.see(sight)

    def efficiency(self) -> Fraction:
        if self.newest.efficiency_told:
            return _decimal(self.newest.efficiency)
        return self.fade.efficiency

    def _sent_bps(self) -> int | None:
        """Return the rate sent since the report before; None if unknown."""
        if len(self.sent) < 2 or self.sent[-1][0] - self.sent[-2][0] < _LEAST_WINDOW_MS:
            return None
        (began_ms, before), (ended_ms, after) = self.sent[-2:]
        return max(0, 8_000 * (after - before) // (ended_ms - began_ms))

    def demand_bps(self, now_ms: int, floor_bps: int) -> int | None:
        if now_ms - (self.newest.time_ms if self.up_ms is None else self.up_ms) > _AWAY_AFTER_MS:
            return floor_bps
        if self.backlogged or self.rate_bps is None:
            return None
        return max(_stepped(int(self.rate_bps * _HEADROOM)), floor_bps)


class Demands:
    """The demands of a beam's terminals, on both links."""

    def __init__(self) -> None:
        self._demands: dict[tuple[int, Link], _Reported] = {}

    def take(self, terminal: int, link: Link, state: LinkState, grant: Grant | None = None) -> bool:
        """Take a report in, with the grant of the plan that it follows at its time.

        Return False, and change nothing, if it is older than the newest report.
        """
        demand = self._demands.get((terminal, link))
        if demand is None:
            demand = self._demands[terminal, link] = _Reported(state)
        elif not state.replaces(demand.newest):
            return False
        demand.take(state)
        demand.look(grant)
        return True

    def remember(self, terminal: int, link: Link, efficiency: Fraction, now_ms: int) -> None:
        """Continue from the efficiency of the last plan, if reports do not tell one."""
        demand = self._demands.get((terminal, link))
        if demand is not None and not demand.newest.efficiency_told:
            demand.fade = Fade.remembered(efficiency, now_ms)

    def fades(self, link: Link) -> list[Fraction]:
        """Return the efficiencies below 1 of a link that were measured."""
        found = (
            one.fade.efficiency
            for (_, of), one in self._demands.items()
            if of is link and not one.newest.efficiency_told
        )
        return [efficiency for efficiency in found if efficiency < 1]

    def forget(self, terminal: int) -> None:
        """Forget a terminal that has left the beam."""
        for link in Link:
            self._demands.pop((terminal, link), None)

    def of_link(
        self, link: Link, terminals: Collection[int], capacity_bps: int, now_ms: int
    ) -> dict[int, Demand]:
        """Return what the terminals of a beam can use of a link of a capacity.

        A terminal that has never reported wants the floor. If none has reported, nothing is known,
        and all terminals count as greedy: each gets its fair share.
        """
        floor_bps = min(Fraction(FLOOR_BPS), capacity_bps * _FLOORS_PART / max(1, len(terminals)))
        whole_bps = int(floor_bps)
        is_any_known = any((terminal, link) in self._demands for terminal in terminals)
        unheard = Demand(whole_bps if is_any_known else None, _WHOLE, whole_bps)
        found = {}
        for terminal in terminals:
            demand = self._demands.get((terminal, link))
            if demand is None:
                found[terminal] = unheard
                continue
            demand.fade.expire(now_ms)
            efficiency = demand.efficiency()
            own_bps = whole_bps if efficiency == 1 else int(floor_bps * efficiency)
            found[terminal] = Demand(demand.demand_bps(now_ms, own_bps), efficiency, own_bps)
        return found

    def efficiency(self, terminal: int, link: Link) -> Fraction:
        """Return the bits per unit of the beam's capacity in a terminal's present MODCOD."""
        demand = self._demands.get((terminal, link))
        return _WHOLE if demand is None else demand.efficiency()


@lru_cache(maxsize=1_024)
def _decimal(efficiency: float) -> Fraction:
    """Return an efficiency as the decimal fraction that was reported."""
    return Fraction(efficiency).limit_denominator(_DENOMINATOR)


def _stepped(rate_bps: int) -> int:
    """Round up, in eight steps to each doubling, so that noise does not cause new plans."""
    step = 1 << max(rate_bps.bit_length() - 4, 0)
    return -(-rate_bps // step) * step
