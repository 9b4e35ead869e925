"""The planner against the paper: one blockage, equal sessions."""

from __future__ import annotations

import string
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dama.formulas import borrowed_bps, repaid_bits, unused_bits
from dama.planner import (
    Blockage,
    CapacityStep,
    Line,
    Link,
    Plan,
    Request,
    Segment,
    Terminal,
    plan,
)

_NOW_MS = 1_700_000_000_000


def _one_blockage(
    rate_bps: int, lead_ms: int, blocked_ms: int, sessions: int, after_ms: int = 0
) -> Plan:
    entry = _NOW_MS + lead_ms
    return plan(
        Request(
            beam="beam",
            link=Link.RETURN,
            now_ms=_NOW_MS,
            end_ms=entry + blocked_ms + after_ms,
            capacity=(CapacityStep(_NOW_MS, rate_bps * sessions),),
            terminals=tuple(Terminal(name) for name in string.ascii_uppercase[:sessions]),
            blockages=(Blockage("A", entry, entry + blocked_ms),),
        )
    )


def _planned(
    end_ms: int,
    terminals: tuple[Terminal, ...],
    *blockages: Blockage,
    capacity_bps: int = 8_000_000,
) -> Plan:
    """The plan of a return link from 0 on."""
    return plan(
        Request(
            beam="beam",
            link=Link.RETURN,
            now_ms=0,
            end_ms=end_ms,
            capacity=(CapacityStep(0, capacity_bps),),
            terminals=terminals,
            blockages=blockages,
        )
    )


@given(
    st.integers(1, 10**8),
    st.integers(1, 10_000_000),
    st.integers(1, 1_000_000),
    st.integers(2, 20),
    st.integers(0, 100_000),
)
def test_one_blockage_is_lent_for_as_the_paper_says(
    rate: int, lead_ms: int, blocked_ms: int, sessions: int, after_ms: int
) -> None:
    made = _one_blockage(rate, lead_ms, blocked_ms, sessions, after_ms)
    entry = _NOW_MS + lead_ms
    # The others cannot lend more than they have: N - 1 of them their rate over T_r.
    lendable = rate * (sessions - 1) * lead_ms // 1000
    if unused_bits(rate, blocked_ms) > lendable:
        return
    each = repaid_bits(rate, blocked_ms, sessions)
    for name in string.ascii_uppercase[1:sessions]:
        line = made.line(name)
        lent = _until(line, entry)
        assert abs(sum(segment.lent_bits for segment in lent) - each) <= 1
        assert abs(sum(segment.repaid_bits for segment in line.segments) - each) <= 1
    borrowed = sum(segment.borrowed_bits for segment in _until(made.line("A"), entry))
    assert abs(borrowed - unused_bits(rate, blocked_ms)) <= 1


def _until(line: Line, time_ms: int) -> list[Segment]:
    return [segment for segment in line.segments if segment.end_ms <= time_ms]


@pytest.mark.parametrize("sessions", [2, 4, 5])
def test_the_paper_s_experiment_is_planned_to_the_bit(sessions: int) -> None:
    rate = 8_000_000 // sessions
    made = _one_blockage(rate, 120_000, 60_000, sessions, after_ms=60_000)
    borrower, lender = made.line("A"), made.line("B")
    lends = borrowed_bps(rate, 60_000, 120_000, sessions)
    assert [segment.rate for segment in borrower.segments] == [
        rate + lends * (sessions - 1),
        Fraction(0),
        rate,
    ]
    repaid = repaid_bits(rate, 60_000, sessions) / 60
    assert [segment.rate for segment in lender.segments] == [rate - lends, rate + repaid, rate]
    assert [segment.blocked for segment in borrower.segments] == [False, True, False]
    unused = unused_bits(rate, 60_000)
    assert [segment.borrowed_bits for segment in borrower.segments] == [unused, 0, 0]
    assert [segment.repaying_bits for segment in borrower.segments] == [0, unused, 0]
    each = repaid_bits(rate, 60_000, sessions)
    assert [segment.lent_bits for segment in lender.segments] == [each, 0, 0]
    assert [segment.repaid_bits for segment in lender.segments] == [0, each, 0]
    assert made.start_ms == _NOW_MS


def test_the_forward_link_is_planned_the_one_way_delay_earlier() -> None:
    request = Request(
        beam="beam",
        link=Link.FORWARD,
        now_ms=_NOW_MS,
        end_ms=_NOW_MS + 200_000,
        capacity=(CapacityStep(0, 8_000_000),),
        terminals=(Terminal("A"), Terminal("B")),
        blockages=(Blockage("A", _NOW_MS + 100_000, _NOW_MS + 150_000),),
        one_way_delay_ms=250,
        signalling_delay_ms=1_000,
    )
    line = plan(request).line("A")
    assert [segment.start_ms - _NOW_MS for segment in line.segments] == [1_000, 99_750, 149_750]


def test_a_lender_keeps_its_guaranteed_rate_and_the_borrower_goes_short() -> None:
    made = _planned(
        20_000, (Terminal("A"), Terminal("B", minimum_bps=3_000_000)), Blockage("A", 10_000, 20_000)
    )
    assert [segment.rate for segment in made.line("B").segments] == [3_000_000, 8_000_000]
    assert [segment.rate for segment in made.line("A").segments] == [5_000_000, 0]


def test_who_repays_keeps_its_floor() -> None:
    terminals = (
        Terminal("A", owed_bits=-160_000_000, floor_bps=64_000),
        Terminal("B", owed_bits=160_000_000, floor_bps=64_000),
    )
    made = _planned(60_000, terminals, Blockage("B", 50_000, 60_000), capacity_bps=2_000_000)
    rates = [segment.rate for segment in made.line("A").segments if not segment.blocked]
    assert min(rates) == 64_000


def test_where_lending_came_too_late_the_borrower_gets_the_rest_after_its_exit() -> None:
    made = _planned(
        60_000, (Terminal("A"), Terminal("B"), Terminal("C")), Blockage("A", 1_000, 31_000)
    )
    amounts = [sum(segment.bits for segment in line.segments) for line in made.lines()]
    assert amounts == [160_000_000] * 3


def test_a_doubtful_blockage_is_lent_for_in_proportion_and_a_most_doubtful_one_not() -> None:
    def borrowed(confidence: float) -> int:
        made = _planned(
            30_000, (Terminal("A"), Terminal("B")), Blockage("A", 20_000, 30_000, confidence)
        )
        return sum(segment.borrowed_bits for segment in made.line("A").segments)

    assert [borrowed(part) for part in (1.0, 0.75, 0.5, 0.49)] == [
        40_000_000,
        30_000_000,
        20_000_000,
        0,
    ]


def test_two_that_are_blocked_in_turn_lend_to_each_other() -> None:
    made = _planned(
        40_000,
        (Terminal("A"), Terminal("B")),
        Blockage("A", 10_000, 20_000),
        Blockage("B", 30_000, 40_000),
    )
    rates = [[segment.rate for segment in line.segments] for line in made.lines()]
    assert rates == [[4_000_000, 0, 4_000_000, 8_000_000], [4_000_000, 8_000_000, 4_000_000, 0]]


def test_huge_beams_and_groups_are_reckoned_without_overflow() -> None:
    beam_bps = 10**12
    made = _planned(
        9_000_000,
        tuple(Terminal(f"t{number}", minimum_bps=number % 2 * 10**18) for number in range(4_000)),
        Blockage("t0", 5_000_000, 6_000_000),
        capacity_bps=beam_bps,
    )
    assert sum(int(part.bits.sum()) for part in made.parts) <= beam_bps * 9_000
    # Half of them have guarantees beyond everything, which shrink in proportion.
    assert made.line("t1").segments[0].rate == beam_bps // 2_000
    assert made.line("t2").segments[0].rate == 0
