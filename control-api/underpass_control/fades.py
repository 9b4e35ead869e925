"""The efficiency of a terminal's link, from its sender's measurements: fades and their end.

A node measures the rate that its link carries. Divided by the capacity that the plan gave, that is
an efficiency: bits carried per bit of capacity. Three rules keep the plan from following its own
effects:

- A link that carries nine tenths of the plan's rate or more shows nothing: its sender sends no
  faster than the plan allows. So a lower plan does not cause a still lower one.
- After the plan gives more, the sender needs round trips to find that the link carries it. Until
  then a lower rate is no evidence.
- The efficiency rises in steps, and keeps a step if the link carries what was added. A step that
  fails is taken back, and the next one waits twice as long.

A terminal's reports can lower only its own rate; no efficiency here is above 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

# A link that carries less than this part of the plan's rate is in a fade.
CARRIED_PART = Fraction(9, 10)
# Capacity counts as more from this factor on; a smaller difference is rounding.
_MORE = Fraction(102, 100)
# The time in which a sender finds the rate that a plan has added, or that a new backlog can use:
# ten round trips of a geostationary hop, in which it finds a doubling.
SETTLED_AFTER_MS = 6_000
# Reports that are closer together than this, or go back in time, are ignored: nodes report each
# second.
APART_MS = 500
# A fade is believed once reports this far apart have shown it, and no report between them shows
# that the link carries the plan; the best of them counts. The sender itself follows its link at
# once. If the plan followed faster changes, such as those of a LEO link each 15 s, it would only
# hold the link down.
BELIEVED_AFTER_MS = 16_000
# The same time after a step up that brought nothing: it only confirms the efficiency known before.
FAILED_AFTER_MS = 3_000
_LONGEST_MS = 2 * BELIEVED_AFTER_MS
# The densest and the sturdiest MODCOD of EN 302 307 differ by a factor of 14.
LEAST_EFFICIENCY = Fraction(1, 16)
# The part by which the efficiency rises at first, and at most: it doubles after each success.
_FIRST_GAIN = Fraction(1, 4)
_MOST_GAIN = Fraction(1)
# The time from a step that failed to the next one: at first, and at most after others that failed.
FIRST_PAUSE_MS = 10_000
MOST_PAUSE_MS = 60_000
# An efficiency that has not been shown for this long is forgotten.
EXPIRES_AFTER_MS = 300_000
# Efficiencies are reported, stored and planned with as fractions; more digits are noise and cost.
_DENOMINATOR = 1_000
# A sender has found these capacities to be a limit, or to arrive; not so a hint or a first guess.
_LIMIT = "limit"
_FOUND = frozenset({_LIMIT, "probe"})


@dataclass(frozen=True, slots=True)
class Grant:
    """What a plan gives a terminal at a time.

    Attributes:
        rate_bps: bit/s of IP bytes; 0 while it is blocked.
        efficiency: the one that the plan assumes.
    """

    rate_bps: int
    efficiency: Fraction

    @property
    def capacity_bps(self) -> Fraction:
        """The rate in bit/s of the beam's capacity."""
        return self.rate_bps / self.efficiency


class Sight(NamedTuple):
    """What a report of a backlogged link shows.

    Attributes:
        time_ms: of the report, UTC, ms since the Unix epoch.
        grant: of the plan that the node follows then.
        capacity_bps: as the node has measured it; None if it has not.
        reason: what the measurement is based on.
        sent_bps: sent since the report before; None if unknown.
    """

    time_ms: int
    grant: Grant
    capacity_bps: int | None
    reason: str | None
    sent_bps: int | None

    @property
    def carried_bps(self) -> int | None:
        """The rate that the link is known to carry; a higher rate sent disproves a measurement."""
        found = [self.capacity_bps] if self.reason in _FOUND else []
        return max((bps for bps in (*found, self.sent_bps) if bps is not None), default=None)

    def carries(self, grant: Grant) -> bool:
        """Tell whether the link has shown that it carries a plan's rate."""
        carried_bps = self.carried_bps
        return carried_bps is not None and carried_bps >= CARRIED_PART * grant.rate_bps


class _Known(NamedTuple):
    """An efficiency that a link has shown: the part of a capacity that it carried."""

    efficiency: Fraction
    capacity_bps: Fraction
    carried_bps: Fraction


@dataclass(slots=True)
class Fade:
    """The measured efficiency of one direction of a terminal's link.

    Attributes:
        efficiency: bits per unit of the beam's capacity, at most 1; 1 where nothing is known.
    """

    efficiency: Fraction = Fraction(1)
    # When the link last showed anything.
    shown_ms: int = 0
    # The last efficiency that the link has shown; None while there has been no fade.
    _known: _Known | None = None
    # The plan's grants during the backlog, at each report of the last seconds.
    _granted: list[tuple[int, Grant]] = field(default_factory=list)
    # Reports that fell short since the last one that carried the plan: when, and the efficiency.
    _short: list[tuple[int, _Known]] = field(default_factory=list)
    _gain: Fraction = _FIRST_GAIN
    _pause_ms: int = FIRST_PAUSE_MS
    _next_step_ms: int = 0

    @classmethod
    def remembered(cls, efficiency: Fraction, now_ms: int) -> Fade:
        """Continue from the efficiency of the last plan."""
        return cls(min(max(efficiency, LEAST_EFFICIENCY), Fraction(1)), shown_ms=now_ms)

    def interrupt(self) -> None:
        """Note that the link shows nothing: no backlog, blocked, or no plan followed."""
        self._granted.clear()
        self._short.clear()

    def see(self, sight: Sight) -> None:
        """Take in a report made during a backlog."""
        if sight.grant.rate_bps <= 0:
            self.interrupt()
            return
        if self._granted and sight.time_ms < self._granted[-1][0] + APART_MS:
            return
        least = self._least_of_late(sight)
        if sight.carries(sight.grant) or (least is not None and sight.capacity_bps is None):
            # A sender that has measured no bound is not limited by its link.
            self._short.clear()
            self._carries(sight)
        elif least is not None and sight.reason == _LIMIT and not sight.carries(least):
            # While probes still find more, the link has not shown its limit.
            self._fall_short(sight, least)

    def expire(self, now_ms: int) -> None:
        """Forget an efficiency that was measured too long ago."""
        if self.efficiency < 1 and now_ms - self.shown_ms > EXPIRES_AFTER_MS:
            self.efficiency = Fraction(1)
            self._known = None
            self._end_step(failed=False)

    def _least_of_late(self, sight: Sight) -> Grant | None:
        """Return the least grant of the time that a sender needs to find its rate.

        None: the backlog has not lasted that long.
        """
        granted = self._granted
        granted.append((sight.time_ms, sight.grant))
        begin_ms = sight.time_ms - SETTLED_AFTER_MS
        # The oldest entry kept is at least that old.
        while len(granted) > 1 and granted[1][0] <= begin_ms:
            del granted[0]
        if granted[0][0] > begin_ms:
            return None
        least_bps = min(grant.rate_bps for _, grant in granted)
        return Grant(least_bps, least_bps / min(grant.capacity_bps for _, grant in granted))

    def _fall_short(self, sight: Sight, least: Grant) -> None:
        carried_bps = Fraction(max(sight.carried_bps or 0, 1))
        capacity_bps = least.capacity_bps
        shows = _Known(carried_bps / capacity_bps, capacity_bps, carried_bps)
        self._short = [one for one in self._short if sight.time_ms - one[0] <= _LONGEST_MS]
        self._short.append((sight.time_ms, shows))
        self.shown_ms = max(self.shown_ms, sight.time_ms)
        known = self._known
        after_ms = BELIEVED_AFTER_MS
        if known is not None and known.efficiency < self.efficiency:
            after_ms = FAILED_AFTER_MS
        begin_ms = sight.time_ms - after_ms
        # The oldest entry kept is at least that old.
        while len(self._short) > 1 and self._short[1][0] <= begin_ms:
            del self._short[0]
        if self._short[0][0] <= begin_ms:
            most = max((one for _, one in self._short), key=lambda one: one.efficiency)
            self._lower(sight.time_ms, most)

    def _lower(self, now_ms: int, shows: _Known) -> None:
        known = self._known
        if known is not None and shows.capacity_bps > _MORE * known.capacity_bps:
            # It has more capacity than when it showed its efficiency. If it carries no less than
            # then, its bound is not a fade, and more capacity would not help.
            part = min(Fraction(1), shows.carried_bps / known.carried_bps)
            if known.efficiency * part > shows.efficiency:
                shows = shows._replace(
                    efficiency=known.efficiency * part, capacity_bps=known.capacity_bps
                )
        efficiency = max(shows.efficiency, LEAST_EFFICIENCY).limit_denominator(_DENOMINATOR)
        if efficiency >= CARRIED_PART * self.efficiency:
            return
        # After a step that brought nothing, the efficiency is again the one known before.
        failed = known is not None and efficiency > CARRIED_PART * known.efficiency
        self.efficiency = efficiency
        self._known = shows._replace(efficiency=efficiency)
        self._end_step(failed=failed)
        self._next_step_ms = now_ms + self._pause_ms

    def _carries(self, sight: Sight) -> None:
        """Note that the link carries the plan's rate, and raise the efficiency by a step."""
        if sight.grant.efficiency != self.efficiency:
            # The plan has yet to follow the last step.
            return
        self.shown_ms = max(self.shown_ms, sight.time_ms)
        known = self._known
        if self.efficiency == 1:
            if known is not None:
                self._known = None
                self._end_step(failed=False)
            return
        if known is not None and known.efficiency < self.efficiency:
            # The last step has succeeded: the next one is larger.
            self._pause_ms = FIRST_PAUSE_MS
            self._gain = min(2 * self._gain, _MOST_GAIN)
        self._known = _Known(
            self.efficiency, sight.grant.capacity_bps, Fraction(sight.grant.rate_bps)
        )
        if sight.time_ms >= self._next_step_ms:
            risen = self.efficiency * (1 + self._gain)
            self.efficiency = min(risen, Fraction(1)).limit_denominator(_DENOMINATOR)

    def _end_step(self, *, failed: bool) -> None:
        self._gain = _FIRST_GAIN
        self._pause_ms = min(2 * self._pause_ms, MOST_PAUSE_MS) if failed else FIRST_PAUSE_MS
