"""What a settlement counts, which reports it waits for, and the planner's balances until then."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.settlement.period import (
    Counted,
    Evidence,
    Report,
    Share,
    awaited,
    count,
    efficiencies_of,
    enter,
    projected,
    shares_of,
    unheard,
)

from dama.ledger import Ledger, Lot, Rule
from dama.planner import CapacityStep, Link, Plan, Request, Terminal, plan
from tests.dama.requests import requests

A, B, C = 1, 2, 3
SQUARE = Share(2000, 2000)
LENDS, BORROWS = Share(1000, 2000), Share(3000, 2000)
OWED = Ledger({"1": [Lot(0, -300)], "2": [Lot(0, 300)]})
NOTHING_YET = Evidence(
    start_ms=100_000,
    end_ms=110_000,
    shares={A: SQUARE, B: SQUARE, C: SQUARE},
    reports={},
    blocked={},
    heard_ms={A: 100_000, B: 100_000, C: 100_000},
    members={A, B, C},
)


def reported(**sent: int) -> dict[int, Report]:
    return {
        {"a": A, "b": B, "c": C}[name]: Report(bits, blocked=False, complete=True)
        for name, bits in sent.items()
    }


@dataclass(frozen=True)
class Numbered:
    """A plan whose terminals have numbers for names."""

    made: Plan
    numbers: Mapping[str, int]

    def amounts(self, from_ms: int, to_ms: int) -> dict[str, tuple[int, int]]:
        of_names = self.made.amounts(from_ms, to_ms)
        return {str(self.numbers[name]): amounts for name, amounts in of_names.items()}


@dataclass(frozen=True)
class Piece:
    """A plan within the time in which it holds."""

    from_ms: int
    to_ms: int
    plan: Numbered


def test_only_reports_of_those_with_a_stake_are_awaited() -> None:
    assert awaited(Ledger(), NOTHING_YET, 60_000) == set()
    assert awaited(OWED, NOTHING_YET, 60_000) == {A, B}
    lending = replace(NOTHING_YET, shares={A: BORROWS, B: LENDS, C: SQUARE})
    assert awaited(Ledger(), lending, 60_000) == {A, B}
    assert awaited(Ledger(), replace(lending, reports=reported(a=3000)), 60_000) == {B}


def test_a_report_with_a_gap_is_still_awaited() -> None:
    gap = {A: Report(500, blocked=False, complete=False), **reported(b=0)}
    assert awaited(OWED, replace(NOTHING_YET, reports=gap), 60_000) == {A}


def test_who_has_left_or_has_long_been_silent_is_not_awaited() -> None:
    assert awaited(OWED, replace(NOTHING_YET, members={B, C}), 60_000) == {B}
    silent = replace(NOTHING_YET, heard_ms={A: 39_999, B: 40_000})
    assert awaited(OWED, silent, 60_000) == {B}
    assert awaited(OWED, replace(NOTHING_YET, heard_ms={}), 60_000) == set()


def test_where_no_plan_was_in_force_nobody_is_awaited() -> None:
    assert awaited(OWED, replace(NOTHING_YET, shares={}), 60_000) == set()


WHOLE = (100_000, 110_000)


@pytest.mark.parametrize(
    ("heard_ms", "report", "blocked", "silent"),
    [
        (110_500, Report(700, blocked=False, complete=True), [], []),
        # Counters bridge the gap: all bytes are known, but not when they were sent.
        (115_000, Report(700, blocked=False, complete=False), [], []),
        (106_000, Report(700, blocked=False, complete=False), [], [(106_000, 110_000)]),
        (106_000, Report(700, blocked=False, complete=False), [(106_000, 110_000)], []),
        (
            106_000,
            Report(700, blocked=True, complete=False),
            [(101_000, 102_000), (107_000, 108_000)],
            [(106_000, 107_000), (108_000, 110_000)],
        ),
        (90_000, None, [], [WHOLE]),
        # Both ends observed the same blockage.
        (90_000, None, [(100_000, 105_000), (101_000, 104_000)], [(105_000, 110_000)]),
        (90_000, None, [WHOLE], []),
        # Without a report, nothing of this period is known, whatever came later.
        (115_000, None, [], [WHOLE]),
    ],
)
def test_since_its_last_report_a_terminal_is_unheard_but_while_it_is_known_to_be_blocked(
    heard_ms: int,
    report: Report | None,
    blocked: list[tuple[int, int]],
    silent: list[tuple[int, int]],
) -> None:
    known = replace(
        NOTHING_YET,
        shares={A: LENDS},
        reports={} if report is None else {A: report},
        heard_ms={A: heard_ms},
        blocked={A: blocked},
    )
    assert unheard(Ledger(), known) == ({A: silent} if silent else {})
    # If no amounts are at stake, nothing has to be presumed.
    assert unheard(Ledger(), replace(known, shares={A: SQUARE})) == {}


def test_what_is_presumed_counts_as_sent_beside_what_is_reported() -> None:
    known = replace(
        NOTHING_YET,
        reports={B: Report(700, blocked=False, complete=False)},
        blocked={C: [WHOLE]},
    )
    assert count(Ledger(), known, {A: 1500, B: 300}) == [
        Counted(A, 2000, 2000, 1500, blocked=False, presumed=True),
        Counted(B, 2000, 2000, 1000, blocked=False, presumed=True),
        Counted(C, 2000, 2000, 0, blocked=True, presumed=False),
    ]


def test_a_beam_that_carries_next_to_nothing_for_a_while_is_settled() -> None:
    owed = {node: node - 100 for node in range(200)}
    owed[0] -= sum(owed.values())
    terminals = tuple(Terminal(str(node), owed_bits=bits) for node, bits in owed.items())
    steps = (CapacityStep(0, 2_000_000), CapacityStep(60_000, 1), CapacityStep(120_000, 2_000_000))
    made = plan(Request("beam", Link.FORWARD, 0, 180_000, steps, terminals))
    known = Numbered(made, {str(node): node for node in owed})
    for start_ms in range(0, 180_000, 10_000):
        shares = shares_of([Piece(start_ms, start_ms + 10_000, known)])
        assert min(share.planned_bits for share in shares.values()) >= 0
        evidence = replace(NOTHING_YET, shares=shares, members=set(owed))
        bits = {
            int(name): given
            for name, (given, _) in made.amounts(start_ms, start_ms + 10_000).items()
        }
        counted = count(Ledger(), evidence, bits)
        assert min(one.sent_bits for one in counted) >= 0
        enter(Ledger(), evidence, counted, None)


def test_who_owes_is_counted_whether_or_not_a_plan_knew_it() -> None:
    counted = count(OWED, replace(NOTHING_YET, shares={C: SQUARE}), {})
    assert [one.terminal for one in counted] == [A, B, C]


def test_those_who_have_left_are_forgiven_once_the_period_is_settled() -> None:
    ledger = Ledger(OWED.lots())
    known = replace(NOTHING_YET, members={B, C})
    entries = enter(ledger, known, count(ledger, known, {}), None)
    assert [(entry.rule, entry.to_ms) for entry in entries] == [(Rule.LEFT, 110_000)]
    assert ledger.balances() == {}
    both = Ledger(OWED.lots())
    # Each account is the other's other side, so one entry is enough.
    assert len(enter(both, replace(known, members={C}), [], None)) == 1


def test_debts_older_than_the_limit_are_forgiven() -> None:
    for limit_ms, left in ((110_000, OWED.balances()), (109_999, {})):
        ledger = Ledger(OWED.lots())
        entries = enter(ledger, NOTHING_YET, [], limit_ms)
        assert ledger.balances() == left
        assert all(entry.rule is Rule.EXPIRED for entry in entries)


@given(requests(), st.data())
def test_plans_that_follow_each_other_give_what_each_gives_in_its_time(
    request: Request, data: st.DataObject
) -> None:
    made = plan(request)
    named = {name: number for number, name in enumerate(made.terminals())}
    numbered = Numbered(made, named)
    cuts = sorted(
        data.draw(st.lists(st.integers(made.start_ms, made.end_ms), min_size=2, max_size=5))
    )
    pieces = [Piece(begin, end, numbered) for begin, end in itertools.pairwise(cuts) if begin < end]
    whole = {
        named[name]: Share(bits, fair)
        for name, (bits, fair) in made.amounts(cuts[0], cuts[-1]).items()
    }
    assert shares_of(pieces) == (whole if pieces else {})


_EFFICIENCIES = st.fractions(Fraction(1, 16), 2, max_denominator=100)


@dataclass(frozen=True)
class Faded:
    """A plan that gives one terminal this many bits a second, with its efficiency."""

    per_s: int
    efficiency: Fraction

    def amounts(self, from_ms: int, to_ms: int) -> dict[str, tuple[int, int]]:
        bits = self.per_s * (to_ms - from_ms) // 1000
        return {str(A): (bits, bits), str(B): (bits, bits)}

    def efficiencies(self) -> dict[str, Fraction]:
        return {str(A): self.efficiency} if self.efficiency != 1 else {}


@dataclass(frozen=True)
class FadedPiece:
    """Such a plan within the time in which it holds."""

    from_ms: int
    to_ms: int
    plan: Faded


@given(
    st.lists(
        st.tuples(st.integers(1, 5), st.integers(0, 9_000_000), _EFFICIENCIES | st.just(1)),
        min_size=1,
        max_size=5,
    )
)
def test_who_sends_what_plans_gave_it_took_the_capacity_that_they_gave_it(
    given_by: list[tuple[int, int, Fraction]],
) -> None:
    pieces, at_ms = [], 0
    for seconds, per_s, efficiency in given_by:
        made = Faded(per_s, Fraction(efficiency))
        pieces.append(FadedPiece(at_ms, at_ms + 1000 * seconds, made))
        at_ms += 1000 * seconds
    found = efficiencies_of(pieces)
    assert set(found) <= {A}
    if A not in found:
        assert all(efficiency == 1 for _, _, efficiency in given_by)
        return
    capacity = shares_of(pieces)[A].planned_bits
    sent = sum(seconds * per_s * efficiency for seconds, per_s, efficiency in given_by)
    assert sent / found[A] == capacity if capacity else found[A] == given_by[-1][2]


_BITS = st.integers(0, 10_000)


@given(st.lists(st.tuples(_BITS, _BITS, _BITS), max_size=6))
def test_what_is_projected_is_what_is_settled_once_the_plans_are_followed(
    periods: list[tuple[int, int, int]],
) -> None:
    ledger = Ledger(OWED.lots())
    ahead = Ledger(OWED.lots())
    for number, lent in enumerate(periods):
        # C has as much beyond its share as A and B lack.
        shares = {
            A: Share(20_000 - lent[0], 20_000),
            B: Share(20_000 - lent[1], 20_000),
            C: Share(20_000 + lent[0] + lent[1], 20_000),
        }
        sent = {
            terminal: Report(share.planned_bits, False, True) for terminal, share in shares.items()
        }
        known = replace(
            NOTHING_YET,
            start_ms=10_000 * number,
            end_ms=10_000 * (number + 1),
            shares=shares,
            reports=sent,
        )
        expected = projected(ahead, shares)
        enter(ledger, known, count(ledger, known, {}), None)
        assert {int(name): bits for name, bits in ledger.balances().items()} == expected
        ahead = Ledger(ledger.lots())


def test_projecting_changes_nothing() -> None:
    before = OWED.lots()
    assert projected(OWED, {A: BORROWS, B: LENDS}) == {A: -1300, B: 1300}
    assert OWED.lots() == before
