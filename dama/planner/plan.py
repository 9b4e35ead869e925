"""The plan: per terminal a piecewise constant rate over absolute time, and the amounts moved."""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property

import numpy as np

from dama.planner.intervals import Flags, Integers
from dama.planner.line import Line, line_of
from dama.planner.request import Link, Terminal
from dama.planner.splitting import (
    entitled_at,
    entitled_parts,
    equal_at,
    equal_parts,
    equal_until,
)


@dataclass(frozen=True)
class Group:
    """Terminals of equal terms.

    Attributes:
        members: they share equally, in order of their places.
        fair_bits: the fair share of all together, per column.
    """

    members: tuple[Terminal, ...]
    fair_bits: Integers


@dataclass(frozen=True)
class Part:
    """The bits given to some members of a group: to one that is blocked, or to some that never are.

    Attributes:
        group: its number.
        first: the place of the first of them in the group; the others follow.
        entitlements: the bits due to each over the plan, in their order; bits are split in
            proportion to them.
        bits: given to all of them together, per column.
        blocked: the columns in which they are blocked.
    """

    group: int
    first: int
    entitlements: tuple[int, ...]
    bits: Integers
    blocked: Flags

    @property
    def last(self) -> int:
        """The place behind the last of them."""
        return self.first + len(self.entitlements)

    @property
    def equal(self) -> bool:
        """Whether all have the same entitlement; they are in order."""
        return self.entitlements[0] == self.entitlements[-1]

    def of(self, place: int) -> Integers:
        """Return the bits per column of the member at a place of the part."""
        if self.equal:
            return equal_parts(self.bits, len(self.entitlements), place, place + 1)
        return entitled_parts(self.bits, self.entitlements, place)


@dataclass(frozen=True)
class Plan:
    """The plan of one link of a beam, from `start_ms` to `end_ms`.

    Lines are made on demand: terminals of a group share one part. A terminal in no part gets its
    fair share throughout.

    Attributes:
        issued_ms: UTC, ms since the Unix epoch: when it was requested.
        times_ms: the bounds of the columns: between two of them nothing changes.
        capacity_bps: the beam's, per column.
        tolerance: how coarse it is (`dama.planner.coarsening`); 0: not at all.
    """

    beam: str
    link: Link
    issued_ms: int
    times_ms: tuple[int, ...]
    capacity_bps: tuple[int, ...]
    groups: tuple[Group, ...]
    parts: tuple[Part, ...]
    tolerance: float = 0.0

    @property
    def start_ms(self) -> int:
        """UTC, ms since the Unix epoch: when it comes into force."""
        return self.times_ms[0]

    @property
    def end_ms(self) -> int:
        """UTC, ms since the Unix epoch: when it is stale."""
        return self.times_ms[-1]

    def terminals(self) -> Iterator[str]:
        """Yield the names of all terminals."""
        return iter(self._places)

    def lines(self) -> Iterator[Line]:
        """Yield the line of every terminal."""
        return (self.line(terminal) for terminal in self._places)

    def line(self, terminal: str) -> Line:
        """Return a terminal's line.

        Raises:
            KeyError: if it is not in the beam.
        """
        number, place = self._places[terminal]
        given, fair, blocked = self._bits_of(terminal)
        return line_of(self.times_ms, self.groups[number].members[place], fair, given, blocked)

    def given(self, terminal: str, times_ms: Iterable[int]) -> list[int]:
        """Return the bits that a terminal's line gives it up to each time.

        Raises:
            KeyError: if it is not in the beam.
        """
        bits, _, _ = self._bits_of(terminal)
        before = list(itertools.accumulate(bits.tolist(), initial=0))
        found = []
        for time_ms in times_ms:
            column = bisect_right(self.times_ms, time_ms) - 1
            until = before[max(column, 0)]
            if 0 <= column < len(bits):
                begin, end = self.times_ms[column : column + 2]
                until += (before[column + 1] - until) * (time_ms - begin) // (end - begin)
            found.append(until)
        return found

    def efficiencies(self) -> dict[str, Fraction]:
        """Return the efficiencies that the plan assumes, for all terminals where it is not 1."""
        members = (member for group in self.groups for member in group.members)
        return {
            member.id: Fraction(member.efficiency) for member in members if member.efficiency != 1
        }

    def amounts(self, from_ms: int, to_ms: int) -> dict[str, tuple[int, int]]:
        """Return each terminal's bits and its fair share in a period, in bits of capacity.

        They equal those of its line (`Line.amounts`) to within a bit, and are computed for all
        terminals at once; the amounts of consecutive periods sum exactly.
        """
        early, late = self._until(from_ms), self._until(to_ms)
        return {
            name: (late[name][0] - bits, late[name][1] - fair)
            for name, (bits, fair) in early.items()
        }

    def _until(self, time_ms: int) -> dict[str, tuple[int, int]]:
        found: dict[str, tuple[int, int]] = {}
        for number, group in enumerate(self.groups):
            members = len(group.members)
            bounds = self._around(group.fair_bits, time_ms)
            fair = equal_at(self._between(bounds, time_ms), members)
            given = list(fair)
            for part in self._parts_of.get(number, ()):
                count = len(part.entitlements)
                # Rounded as the bits given: where the plan gives the fair share, both are equal.
                own = [equal_until(bits, members, part.first, part.last) for bits in bounds]
                fair[part.first : part.last] = equal_at(self._between(own, time_ms), count)
                bits = self._between(self._around(part.bits, time_ms), time_ms)
                given[part.first : part.last] = (
                    equal_at(bits, count) if part.equal else entitled_at(bits, part.entitlements)
                )
            names = (member.id for member in group.members)
            found.update(zip(names, zip(given, fair, strict=True), strict=True))
        return found

    def _around(self, bits: Integers, time_ms: int) -> tuple[int, int]:
        """Return the bits up to the begin and to the end of the column that contains a time."""
        column = bisect_right(self.times_ms, time_ms) - 1
        if column < 0:
            return 0, 0
        until = int(bits[:column].sum())
        return until, until + (int(bits[column]) if column < len(bits) else 0)

    def _between(self, bounds: Sequence[int], time_ms: int) -> int:
        """Return the bits up to a time, by those at the bounds of its column."""
        early, late = bounds
        if early == late:
            return early
        column = bisect_right(self.times_ms, time_ms) - 1
        begin, end = self.times_ms[column : column + 2]
        return early + (late - early) * (time_ms - begin) // (end - begin)

    def _bits_of(self, terminal: str) -> tuple[Integers, Integers, Flags]:
        """Return a terminal's bits, its fair share, and whether it is blocked, by column."""
        number, place = self._places[terminal]
        group = self.groups[number]
        fair = equal_parts(group.fair_bits, len(group.members), place, place + 1)
        part = self._part_of(number, place)
        if part is None:
            return fair, fair, np.zeros(len(fair), dtype=np.bool_)
        return part.of(place - part.first), fair, part.blocked

    def _part_of(self, number: int, place: int) -> Part | None:
        for part in self._parts_of.get(number, ()):
            if part.first <= place < part.last:
                return part
        return None

    @cached_property
    def _places(self) -> dict[str, tuple[int, int]]:
        """The number of the group and the place in it, by terminal."""
        return {
            terminal.id: (number, place)
            for number, group in enumerate(self.groups)
            for place, terminal in enumerate(group.members)
        }

    @cached_property
    def _parts_of(self) -> dict[int, tuple[Part, ...]]:
        """Parts by the number of their group, in order of places."""
        ordered = sorted(self.parts, key=lambda part: (part.group, part.first))
        return {
            number: tuple(parts)
            for number, parts in itertools.groupby(ordered, lambda part: part.group)
        }
