"""The efficiency of a terminal's link, by what its sender measures: fades found, and their end.

A node measures what its link carries. Beside what the plan gave it, that tells an efficiency: bits
carried per bit of capacity. Three things keep the plan from following its own effects:

- A link that carries nine tenths of what the plan gave, or more, tells nothing: its sender sends no
  faster than the plan allows. So a lower plan is no reason for a still lower one.
- After the plan gives more, the sender needs round trips to find that the link carries it. Until
  then less is no evidence.
- The efficiency rises by steps, and stays where the link carries what was added. A step that fails
  is taken back, and the next one waits twice as long.

A terminal's word lowers its own rate alone; nothing here is ever above 1.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction
from typing import NamedTuple

# A link that carries less than this part of what the plan gives is in a fade.
CARRIED_PART = Fraction(9, 10)
# More capacity begins at this factor; less is rounding.
_MORE = Fraction(102, 100)
# So long does a sender look for what a plan has added, or for what a new backlog can use: ten
# round trips of a geostationary hop, in which it finds a doubling.
SETTLED_AFTER_MS = 6_000
# Reports that are closer than this, or go back, are passed over: nodes report each second.
APART_MS = 500
# A fade is believed once reports so far apart have shown it, and none between them that the link
# carries the plan; the best of them counts. The sender itself follows its link at once. What comes
# and goes faster than this, as the capacity of a LEO link does each 15 s, would only be held down.
BELIEVED_AFTER_MS = 16_000
# A step up that brings nothing leads back to what has shown before: that takes less.
FAILED_AFTER_MS = 3_000
_LONGEST_MS = 2 * BELIEVED_AFTER_MS
# From the densest to the sturdiest MODCOD of EN 302 307 it is a factor of 14.
LEAST_EFFICIENCY = Fraction(1, 16)
# By how much the efficiency rises at first, and at most: steps that succeed double.
_FIRST_GAIN = Fraction(1, 4)
_MOST_GAIN = Fraction(1)
# The time from a step that failed to the next one: at first, and at most after others that failed.
FIRST_PAUSE_MS = 10_000
MOST_PAUSE_MS = 60_000
# What was measured so long ago counts no more.
EXPIRES_AFTER_MS = 300_000
# Efficiencies are told, stored and planned with as fractions; more digits are noise and cost.
_DENOMINATOR = 1_000
# What a sender has found to be a limit, or to arrive; a hint or a first guess is neither.
_LIMIT = "limit"
_FOUND = frozenset({_LIMIT, "probe"})


@dataclass(frozen=True, slots=True)
class Grant:
    """What a plan gives a terminal at a time.

    Attributes:
        rate_bps: bit/s of IP bytes; 0 while it is blocked.
        efficiency: that the plan goes by.
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
        grant: what the plan that the node follows gives then.
        capacity_bps: what the node has measured, if anything.
        reason: what that goes back to.
        sent_bps: what it has sent since the report before; None where that is not known.
    """

    time_ms: int
    grant: Grant
    capacity_bps: int | None
    reason: str | None
    sent_bps: int | None

    @property
    def carried_bps(self) -> int | None:
        """What the link is known to carry; what is sent disproves a lower measurement."""
        found = [self.capacity_bps] if self.reason in _FOUND else []
        return max((bps for bps in (*found, self.sent_bps) if bps is not None), default=None)

    def carries(self, grant: Grant) -> bool:
        """Tell whether the link has shown that it carries what a plan gives."""
        carried_bps = self.carried_bps
        return carried_bps is not None and carried_bps >= CARRIED_PART * grant.rate_bps


class _Known(NamedTuple):
    """An efficiency that has shown: so much of a capacity was carried."""

    efficiency: Fraction
    capacity_bps: Fraction
    carried_bps: Fraction


@dataclass(slots=True)
class Fade:
    """What is known of the efficiency of one direction of a terminal's link by measuring.

    Attributes:
        efficiency: bits per unit of the beam's capacity, at most 1; 1 where nothing is known.
    """

    efficiency: Fraction = Fraction(1)
    # When the link last showed anything.
    shown_ms: int = 0
    # The last efficiency that has shown; None while there has been no fade.
    _known: _Known | None = None
    # What the plan gave while there was a backlog: as of each report of the last seconds.
    _granted: list[tuple[int, Grant]] = field(default_factory=list)
    # Reports that fell short since one has carried the plan: when, and the efficiency each shows.
    _short: list[tuple[int, _Known]] = field(default_factory=list)
    _gain: Fraction = _FIRST_GAIN
    _pause_ms: int = FIRST_PAUSE_MS
    _next_step_ms: int = 0

    @classmethod
    def remembered(cls, efficiency: Fraction, now_ms: int) -> Fade:
        """Go on from the efficiency that the last plan went by."""
        return cls(min(max(efficiency, LEAST_EFFICIENCY), Fraction(1)), shown_ms=now_ms)

    def interrupt(self) -> None:
        """Take in that the link shows nothing: no backlog, blocked, or no plan is followed."""
        self._granted.clear()
        self._short.clear()

    def see(self, sight: Sight) -> None:
        """Take in what a report shows while there is a backlog."""
        if sight.grant.rate_bps <= 0:
            self.interrupt()
            return
        if self._granted and sight.time_ms < self._granted[-1][0] + APART_MS:
            return
        least = self._least_of_late(sight)
        if sight.carries(sight.grant) or (least is not None and sight.capacity_bps is None):
            # Nothing bounds a sender that has measured nothing.
            self._short.clear()
            self._carries(sight)
        elif least is not None and sight.reason == _LIMIT and not sight.carries(least):
            # While probes find more than before, the link has not shown what it carries.
            self._fall_short(sight, least)

    def expire(self, now_ms: int) -> None:
        """Forget what was measured too long ago."""
        if self.efficiency < 1 and now_ms - self.shown_ms > EXPIRES_AFTER_MS:
            self.efficiency = Fraction(1)
            self._known = None
            self._end_step(failed=False)

    def _least_of_late(self, sight: Sight) -> Grant | None:
        """Return the least that plans have given for so long that the sender could find it.

        None: the backlog has not lasted that long.
        """
        granted = self._granted
        granted.append((sight.time_ms, sight.grant))
        begin_ms = sight.time_ms - SETTLED_AFTER_MS
        # The oldest one kept is as old as that, or older.
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
        # The oldest one kept is as old as that, or older.
        while len(self._short) > 1 and self._short[1][0] <= begin_ms:
            del self._short[0]
        if self._short[0][0] <= begin_ms:
            most = max((one for _, one in self._short), key=lambda one: one.efficiency)
            self._lower(sight.time_ms, most)

    def _lower(self, now_ms: int, shows: _Known) -> None:
        known = self._known
        if known is not None and shows.capacity_bps > _MORE * known.capacity_bps:
            # It has more capacity than when its efficiency showed. If it carries no less than
            # then, what bounds it is no fade, and is not made up for by still more.
            part = min(Fraction(1), shows.carried_bps / known.carried_bps)
            if known.efficiency * part > shows.efficiency:
                shows = shows._replace(
                    efficiency=known.efficiency * part, capacity_bps=known.capacity_bps
                )
        efficiency = max(shows.efficiency, LEAST_EFFICIENCY).limit_denominator(_DENOMINATOR)
        if efficiency >= CARRIED_PART * self.efficiency:
            return
        # A step that brought nothing leads back to what was known before.
        failed = known is not None and efficiency > CARRIED_PART * known.efficiency
        self.efficiency = efficiency
        self._known = shows._replace(efficiency=efficiency)
        self._end_step(failed=failed)
        self._next_step_ms = now_ms + self._pause_ms

    def _carries(self, sight: Sight) -> None:
        """Take in that the link carries what the plan gives, and go up a step."""
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
            # The last step has brought what it was to bring: the next one is larger.
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
