"""The usage of a link in each 10 s, from the counts of its reports."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from typing import Any, NamedTuple

BUCKET_MS = 10_000
# The first counters of a run cover the time since its start, if that is recent; otherwise their
# period is unknown.
YOUNG_MS = 60_000
_SLOT_MS = 1_000
_SLOTS = BUCKET_MS // _SLOT_MS
# While clients hand in data, a link is reported each second; with one report lost, and seconds that
# begin between reports, two seconds may have none. Any other link is reported every 10 s, even
# while it carries the acknowledgements of a download.
_MOST_MISSING = 2
_MOST_MISSING_IDLE = 12
# The most that an idle link carries in 10 s: reports, beacons and keepalives. If clients hand in no
# more than that, its reports are as rare.
_IDLE_BITS = 160_000
# Efficiencies come as decimal fractions; more digits than this are noise and cost.
_DENOMINATOR = 1_000


class Run(NamedTuple):
    """A run, in which counters only grow: a path of a node from one start to the next."""

    node: int
    incarnation: int
    path: str


class Point(NamedTuple):
    """Counts at a time."""

    time_ms: int
    sent_bytes: int
    offered_bytes: int


@dataclass(frozen=True, slots=True)
class Seen:
    """A run's reports within a bucket: their first and last counts, and masks of seconds."""

    start_ms: int
    first_uptime_ms: int
    first: Point
    last: Point
    seen: int
    blocked: int
    # None: not set by a modem or an operator.
    efficiency: float | None

    @classmethod
    def of_row(cls, row: Any) -> Seen:
        """Make it of a row of the table."""
        return cls(
            row.start_ms,
            row.first_uptime_ms,
            Point(row.first_time_ms, row.first_sent_bytes, row.first_offered_bytes),
            Point(row.last_time_ms, row.last_sent_bytes, row.last_offered_bytes),
            row.seen,
            row.blocked,
            row.efficiency if row.efficiency_told else None,
        )


@dataclass(slots=True)
class Usage:
    """The usage of a terminal's link in the 10 s from `start_ms` on.

    Attributes:
        start_ms: UTC, ms since the Unix epoch, a multiple of 10,000.
        sent_bits: IP bits sent.
        offered_bits: bits that clients handed in for it.
        blocked_ms: how long it could not be sent on, to the second.
        efficiency: bits per unit of the beam's capacity, as the last report tells it; None where
            it does not.
        complete: reports cover it without a gap; later ones change nothing.
    """

    start_ms: int
    sent_bits: int = 0
    offered_bits: int = 0
    blocked_ms: int = 0
    efficiency: Fraction | None = None
    complete: bool = False


def usage_of(runs: Collection[Sequence[Seen]], since_ms: int, until_ms: int) -> list[Usage]:
    """Return the usage of a link by the runs that report it, each in the order of its uptime.

    The times are multiples of 10,000 ms; buckets between known reports are there, others not.
    """
    lines = [_points(run) for run in runs]
    known_ms = [point.time_ms for line in lines for point in line]
    first_ms, last_ms = min(known_ms), max(known_ms)
    begin_ms = max(since_ms, first_ms - first_ms % BUCKET_MS)
    buckets = [Usage(at_ms) for at_ms in range(begin_ms, min(until_ms, last_ms + 1), BUCKET_MS)]
    for line in lines:
        for one, other in pairwise(line):
            _spread(buckets, one, other)
    seconds = _Seconds(seen for run in runs for seen in run)
    seconds.begin(begin_ms)
    for bucket in buckets:
        seconds.judge(bucket, first_ms, last_ms)
    return buckets


def _points(run: Sequence[Seen]) -> list[Point]:
    points = []
    if run[0].first_uptime_ms <= YOUNG_MS:
        points.append(Point(run[0].first.time_ms - run[0].first_uptime_ms, 0, 0))
    for seen in run:
        points.append(seen.first)
        if seen.last != seen.first:
            points.append(seen.last)
    return points


def _spread(buckets: list[Usage], one: Point, other: Point) -> None:
    """Spread the counts between two reports evenly."""
    if not buckets:
        return
    sent, offered = (8 * max(0, b - a) for a, b in zip(one[1:], other[1:], strict=True))
    # If the clock was set back, all counts at the time of the later report.
    begin_ms = one.time_ms if one.time_ms < other.time_ms else other.time_ms - 1
    lasting_ms = other.time_ms - begin_ms
    low = max(0, (begin_ms - buckets[0].start_ms) // BUCKET_MS)
    for bucket in buckets[low:]:
        if bucket.start_ms >= other.time_ms:
            break
        start = max(bucket.start_ms - begin_ms, 0)
        end = min(bucket.start_ms + BUCKET_MS - begin_ms, lasting_ms)
        # Differences of one rounded line, so that they sum to the counts, to the bit.
        bucket.sent_bits += sent * end // lasting_ms - sent * start // lasting_ms
        bucket.offered_bits += offered * end // lasting_ms - offered * start // lasting_ms


class _Seconds:
    """The state of a link in each second, by all of its runs."""

    def __init__(self, seen: Iterable[Seen]) -> None:
        # By bucket: masks of the seconds with a report, and of those in which any run could send.
        self.masks: dict[int, tuple[int, int]] = {}
        self.efficiencies: dict[int, tuple[int, float | None]] = {}
        for one in seen:
            known, able = self.masks.get(one.start_ms, (0, 0))
            self.masks[one.start_ms] = (known | one.seen, able | (one.seen & ~one.blocked))
            latest = (one.last.time_ms, one.efficiency)
            self.efficiencies[one.start_ms] = max(
                self.efficiencies.get(one.start_ms, latest), latest, key=lambda at: at[0]
            )
        # The state at the last report, and for how many seconds there has been none since.
        self.blocked = False
        self.missing = 0
        self.efficiency = self.efficiencies[min(self.efficiencies)][1]

    def begin(self, start_ms: int) -> None:
        """Go to a bucket; without a report there, the former state continues."""
        if earlier := [at_ms for at_ms in self.masks if at_ms < start_ms]:
            at_ms = max(earlier)
            known, able = self.masks[at_ms]
            last = known.bit_length() - 1
            self.blocked = not able >> last & 1
            self.missing = (start_ms - at_ms) // _SLOT_MS - last - 1
            self.efficiency = self.efficiencies[at_ms][1]

    def judge(self, bucket: Usage, first_ms: int, last_ms: int) -> None:
        """Set in the next bucket how long the link was blocked, and if reports are complete."""
        known, able = self.masks.get(bucket.start_ms, (0, 0))
        longest = self.missing
        for slot in range(_SLOTS):
            if known >> slot & 1:
                self.blocked, self.missing = not able >> slot & 1, 0
            else:
                self.missing += 1
                longest = max(longest, self.missing)
            if self.blocked and bucket.start_ms + slot * _SLOT_MS <= last_ms:
                bucket.blocked_ms += _SLOT_MS
        if bucket.start_ms in self.efficiencies:
            self.efficiency = self.efficiencies[bucket.start_ms][1]
        if self.efficiency is not None:
            bucket.efficiency = Fraction(self.efficiency).limit_denominator(_DENOMINATOR)
        covered = first_ms <= bucket.start_ms and last_ms >= bucket.start_ms + BUCKET_MS
        after = self.masks.get(bucket.start_ms + BUCKET_MS, (0, 0))[0]
        # Up to the next report: the seconds of the next bucket that come before it.
        ahead = self.missing + ((after & -after).bit_length() - 1 if after else _SLOTS)
        # If more than this was handed in and sent, the reports of a gap have not come yet.
        idle = min(bucket.sent_bits, bucket.offered_bits) <= _IDLE_BITS
        most = _MOST_MISSING_IDLE if idle else _MOST_MISSING
        bucket.complete = covered and max(longest, ahead) <= most
