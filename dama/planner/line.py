"""One terminal's part of a plan: constant rates over intervals, with what they move."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dama.planner.intervals import MS_PER_S, Flags, Integers
from dama.planner.request import Terminal


@dataclass(frozen=True, slots=True)
class Segment:
    """A constant rate over an interval. Amounts are bits of capacity (efficiency 1).

    Attributes:
        start_ms: UTC, ms since the Unix epoch, at the sending node.
        end_ms: the same; the first ms that is no longer in it.
        bits: given to the terminal.
        fair_bits: its fair share without blockages. Bits beyond it are borrowed by the terminal or
            repaid to it; missing bits are lent or repaid by it.
        borrowed_bits: taken, to be repaid later.
        lent_bits: given, to be repaid later; while blocked, the share that it leaves to others.
        repaid_bits: returned to it, of what it was owed.
        repaying_bits: returned by it, of what it owed.
        blocked: without line of sight: nothing is sent.
        efficiency: bits sent per bit of capacity.
    """

    start_ms: int
    end_ms: int
    bits: int
    fair_bits: int
    borrowed_bits: int
    lent_bits: int
    repaid_bits: int
    repaying_bits: int
    blocked: bool
    efficiency: Fraction

    @property
    def amounts(self) -> tuple[int, int, int, int, int, int]:
        """All amounts, in their order."""
        return (
            self.bits,
            self.fair_bits,
            self.borrowed_bits,
            self.lent_bits,
            self.repaid_bits,
            self.repaying_bits,
        )

    @property
    def rate(self) -> Fraction:
        """The exact rate in bit/s."""
        return self.bits * self.efficiency * MS_PER_S / (self.end_ms - self.start_ms)

    @property
    def rate_bps(self) -> int:
        """The rate on the wire: whole bit/s, rounded down, so that sums never exceed capacity."""
        rate = self.rate
        return rate.numerator // rate.denominator


@dataclass(frozen=True, slots=True)
class Line:
    """One terminal's part of a plan."""

    terminal: str
    segments: tuple[Segment, ...]

    def amounts(self, from_ms: int, to_ms: int) -> tuple[int, int]:
        """Return the terminal's bits and its fair share in a period, in bits of capacity.

        Outside the plan both are 0. Both are exact to the bit up to any time, so the amounts of
        consecutive periods sum to those of the segments.
        """
        until = [self._until(time_ms) for time_ms in (from_ms, to_ms)]
        return until[1][0] - until[0][0], until[1][1] - until[0][1]

    def _until(self, time_ms: int) -> tuple[int, int]:
        bits = fair = 0
        for segment in self.segments:
            if segment.start_ms >= time_ms:
                break
            part = min(time_ms, segment.end_ms) - segment.start_ms
            whole = segment.end_ms - segment.start_ms
            bits += segment.bits * part // whole
            fair += segment.fair_bits * part // whole
        return bits, fair


def line_of(
    times_ms: Sequence[int], terminal: Terminal, fair: Integers, given: Integers, blocked: Flags
) -> Line:
    """Divide each segment's bits into lent, borrowed and repaid, by the running balance."""
    owed = terminal.owed_bits
    segments = []
    efficiency = Fraction(terminal.efficiency)
    for column, (start, end) in enumerate(itertools.pairwise(times_ms)):
        more = int(given[column] - fair[column])
        repaid = min(max(more, 0), max(owed, 0))
        repaying = min(max(-more, 0), max(-owed, 0))
        owed -= more
        segments.append(
            Segment(
                start_ms=start,
                end_ms=end,
                bits=int(given[column]),
                fair_bits=int(fair[column]),
                borrowed_bits=max(more, 0) - repaid,
                lent_bits=max(-more, 0) - repaying,
                repaid_bits=repaid,
                repaying_bits=repaying,
                blocked=bool(blocked[column]),
                efficiency=efficiency,
            )
        )
    return Line(terminal.id, tuple(_merged(segments)))


def _merged(segments: list[Segment]) -> Iterator[Segment]:
    """Join neighbours of the same rate, share and marks."""
    current = segments[0]
    for segment in segments[1:]:
        joined = _join(current, segment)
        if joined is None:
            yield current
            current = segment
        else:
            current = joined
    yield current


def _join(one: Segment, other: Segment) -> Segment | None:
    one_ms, other_ms = one.end_ms - one.start_ms, other.end_ms - other.start_ms
    if one.blocked != other.blocked:
        return None
    pairs = list(zip(one.amounts, other.amounts, strict=True))
    if any(first * other_ms != second * one_ms for first, second in pairs):
        return None
    bits, fair, borrowed, lent, repaid, repaying = (first + second for first, second in pairs)
    return Segment(
        start_ms=one.start_ms,
        end_ms=other.end_ms,
        bits=bits,
        fair_bits=fair,
        borrowed_bits=borrowed,
        lent_bits=lent,
        repaid_bits=repaid,
        repaying_bits=repaying,
        blocked=one.blocked,
        efficiency=one.efficiency,
    )
