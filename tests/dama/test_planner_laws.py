"""Laws that hold for every plan."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dama.planner import (
    CapacityStep,
    FairShare,
    Line,
    Link,
    Plan,
    Request,
    Segment,
    Terminal,
    plan,
)
from tests.dama.requests import requests

_LAWS = settings(max_examples=60, deadline=None)


def _columns(made: Plan) -> Iterator[tuple[int, int, dict[str, Segment]]]:
    """Yield each interval of a plan with every terminal's segment over it."""
    lines = list(made.lines())
    for begin, end in itertools.pairwise(made.times_ms):
        yield begin, end, {line.terminal: _at(line, begin) for line in lines}


def _at(line: Line, time_ms: int) -> Segment:
    return next(s for s in line.segments if s.start_ms <= time_ms < s.end_ms)


def _capacity_bps(request: Request, time_ms: int) -> int:
    return [step.rate_bps for step in request.capacity if step.from_ms <= time_ms][-1]


@_LAWS
@given(requests(balances=True))
def test_rates_never_exceed_the_capacity(request: Request) -> None:
    until, given_until = Fraction(), Fraction()
    for begin, end, segments in _columns(plan(request)):
        ms = end - begin
        used = sum(
            (Fraction(s.bits * ms, s.end_ms - s.start_ms) for s in segments.values()), Fraction()
        )
        until += Fraction(_capacity_bps(request, begin) * ms, 1000)
        given_until += used
        assert given_until <= until
        assert used <= _capacity_bps(request, begin) * Fraction(ms, 1000) + 1


@_LAWS
@given(requests(balances=True))
def test_nothing_is_sent_while_blocked(request: Request) -> None:
    made = plan(request)
    for blockage in request.blockages:
        if blockage.confidence < request.least_confidence:
            continue
        entry, leave = blockage.entry_ms - request.shift_ms, blockage.exit_ms - request.shift_ms
        for segment in made.line(blockage.terminal).segments:
            if segment.start_ms < leave and segment.end_ms > entry:
                assert segment.blocked
                assert segment.rate == 0


@_LAWS
@given(requests(balances=True))
def test_ceilings_and_guaranteed_rates_are_kept(request: Request) -> None:
    made = plan(request)
    terminals = {terminal.id: terminal for terminal in request.terminals}
    guaranteed = sum(_least_bps(terminal) / terminal.efficiency for terminal in request.terminals)
    for begin, end, segments in _columns(made):
        for name, segment in segments.items():
            terminal = terminals[name]
            # Rounding costs each terminal at most a bit per interval; the largest may bear all.
            bit = (
                (2 + len(terminals)) * terminal.efficiency * Fraction(1000, min(end - begin, 10**9))
            )
            bounds = [r for r in (terminal.maximum_bps, terminal.demand_bps) if r is not None]
            if bounds:
                assert segment.rate <= min(bounds) + bit
            if not segment.blocked and guaranteed <= _capacity_bps(request, begin):
                assert segment.rate >= _least_bps(terminal) - bit


def _least_bps(terminal: Terminal) -> Fraction | int:
    bounds = [rate for rate in (terminal.maximum_bps, terminal.demand_bps) if rate is not None]
    # By symbols, a fade reduces a guaranteed rate.
    kept = min(1, terminal.efficiency) if terminal.fair_share is FairShare.SYMBOLS else 1
    return min([max(terminal.minimum_bps * kept, terminal.floor_bps), *bounds])


@_LAWS
@given(requests())
def test_what_is_lent_is_repaid_in_the_plan_except_where_a_blockage_could_not_be_lent_for(
    request: Request,
) -> None:
    made = plan(request)
    blocked = {blockage.terminal for blockage in request.blockages}
    for line in made.lines():
        if line.terminal in blocked:
            continue
        lent = sum(segment.lent_bits for segment in line.segments)
        repaid = sum(segment.repaid_bits for segment in line.segments)
        assert abs(lent - repaid) <= len(made.times_ms)


@_LAWS
@given(requests())
def test_nobody_is_worse_off_than_its_fair_share_by_more_than_its_own_blockages(
    request: Request,
) -> None:
    made = plan(request)
    for line in made.lines():
        bits = sum(segment.bits for segment in line.segments)
        without_lending = sum(segment.fair_bits for segment in line.segments if not segment.blocked)
        assert bits >= without_lending - len(made.times_ms)


@_LAWS
@given(requests(bounds=False, most_terminals=4), st.sampled_from((2, 3, Fraction(5, 4))))
def test_more_weight_never_gives_less(request: Request, times: Fraction) -> None:
    first = request.terminals[0]
    heavier = dataclasses.replace(first, weight=first.weight * times)
    with_more = dataclasses.replace(request, terminals=(heavier, *request.terminals[1:]))
    before, after = (
        sum(segment.bits for segment in plan(one).line(first.id).segments)
        for one in (request, with_more)
    )
    assert after >= before - len(request.terminals) * (len(request.blockages) * 2 + 4)


@_LAWS
@given(requests(balances=True))
def test_the_same_request_gives_the_same_plan(request: Request) -> None:
    assert list(plan(request).lines()) == list(plan(request).lines())


@_LAWS
@given(requests(most_blockages=2), st.integers(2, 7))
def test_a_group_is_planned_as_its_members_would_be(request: Request, size: int) -> None:
    """Equal terminals are one row; each gets the same as in a row of its own."""
    blocked = {blockage.terminal for blockage in request.blockages}
    model = next((t for t in request.terminals if t.id not in blocked), None)
    if model is None:
        return
    others = tuple(terminal for terminal in request.terminals if terminal is not model)
    alike = tuple(dataclasses.replace(model, id=f"m{number}") for number in range(size))
    together = plan(dataclasses.replace(request, terminals=(*others, *alike)))
    # A minute difference in weight takes each out of the group.
    apart = plan(
        dataclasses.replace(
            request,
            terminals=(
                *others,
                *(
                    dataclasses.replace(one, weight=one.weight * (1 + Fraction(place, 10**12)))
                    for place, one in enumerate(alike)
                ),
            ),
        )
    )
    assert len(apart.parts) >= len(together.parts)
    for one in alike:
        bits = sum(segment.bits for segment in together.line(one.id).segments)
        alone = sum(segment.bits for segment in apart.line(one.id).segments)
        assert bits == pytest.approx(alone, abs=100 + 1e-6 * alone)


@settings(max_examples=40, deadline=None)
@given(requests(balances=True), st.integers(1, 99))
def test_from_when_it_is_settled_everyone_has_its_fair_share(request: Request, part: int) -> None:
    whole = request.end_ms - request.start_ms
    settle_ms = request.start_ms + max(1, whole * part // 100)
    made = plan(dataclasses.replace(request, settle_ms=settle_ms))
    for line in made.lines():
        for segment in line.segments:
            if segment.start_ms >= settle_ms:
                # Members of unequal balances share a row by these, which differ by a part in fifty.
                fair = 0 if segment.blocked else segment.fair_bits
                assert abs(segment.bits - fair) <= 2 + segment.fair_bits // 50


@_LAWS
@given(requests(balances=True), st.lists(st.integers(-1_000, 700_000), max_size=5))
def test_what_is_given_until_a_time_is_what_the_line_says(
    request: Request, after_ms: list[int]
) -> None:
    made = plan(request)
    times_ms = [made.start_ms + ms for ms in after_ms]
    for line in made.lines():
        until = [line.amounts(made.start_ms, time_ms)[0] for time_ms in times_ms]
        assert made.given(line.terminal, times_ms) == until


@_LAWS
@given(
    requests(balances=True, most_blockages=0),
    st.integers(1, 50),
    st.lists(st.integers(0, 600_000), min_size=2, max_size=2),
)
def test_once_it_is_settled_no_part_of_an_interval_moves_a_bit(
    request: Request, part: int, after_ms: list[int]
) -> None:
    """Amounts within an interval are rounded, what is given and the fair share alike."""
    whole = request.end_ms - request.start_ms
    settle_ms = request.start_ms + max(1, whole * part // 100)
    made = plan(dataclasses.replace(request, settle_ms=settle_ms))
    begin_ms, end_ms = sorted(min(settle_ms + ms, made.end_ms) for ms in after_ms)
    amounts = made.amounts(begin_ms, end_ms).values()
    assert sum(given for given, _ in amounts) == sum(fair for _, fair in amounts)
    assert all(abs(given - fair) <= 1 for given, fair in amounts)


@pytest.mark.parametrize("settle_ms", [1_000, 7_001, 60_000])
def test_creditors_of_different_balances_have_theirs_when_it_is_settled(settle_ms: int) -> None:
    owed = {"A": -30_001, "B": 5_000, "C": 10_001, "D": 15_000}
    terminals = tuple(Terminal(name, owed_bits=bits) for name, bits in owed.items())
    capacity = (CapacityStep(0, 8_000_000),)
    made = plan(Request("beam", Link.FORWARD, 0, 180_000, capacity, terminals, settle_ms=settle_ms))
    amounts = made.amounts(0, settle_ms)
    assert {name: given - fair for name, (given, fair) in amounts.items()} == owed
