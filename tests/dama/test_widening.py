"""Plans of many blockages: bounded in size, safe at any instant, and near the exact ones."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dama.ledger import Ledger, Usage, settle
from dama.planner import CapacityStep, Link, Plan, Request, Terminal, plan, widening
from dama.planner.intervals import Integers, by_terminal, times
from dama.planner.network import network
from dama.planner.widening import FEW_COLUMNS, MOST_CELLS, MOST_COLUMNS, widened
from tests.dama.requests import town

# With this few columns, the laws of large plans are quick to check.
FEW = 60


def columns(request: Request) -> int:
    return len(times(request, by_terminal(request))) - 1


def planned(request: Request, most: int) -> Plan:
    """Plan with another bound of columns."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(widening, "MOST_COLUMNS", most)
        return plan(request)


SEEDS = st.integers(0, 2**32)
TOWNS = st.builds(town, SEEDS, st.integers(2, 8), st.integers(60, 240), st.sampled_from(Link))


@settings(max_examples=6, deadline=None)
@given(SEEDS, st.sampled_from((2, 10)), st.sampled_from(Link))
def test_blockages_only_grow_and_the_less_the_nearer_they_are(
    seed: int, times_the_limit: int, link: Link
) -> None:
    exact = town(seed, 1_000, times_the_limit * MOST_COLUMNS // 2, link, sure=True)
    assert columns(exact) > MOST_COLUMNS
    wider = widened(exact)
    assert columns(wider) <= MOST_COLUMNS
    assert replace(wider, blockages=()) == replace(exact, blockages=())
    for before, after in zip(exact.blockages, wider.blockages, strict=True):
        assert replace(after, entry_ms=before.entry_ms, exit_ms=before.exit_ms) == before
        for moved_ms, edge_ms in (
            (before.entry_ms - after.entry_ms, before.entry_ms),
            (after.exit_ms - before.exit_ms, before.exit_ms),
        ):
            left_ms = edge_ms - exact.shift_ms - exact.start_ms
            assert 0 <= moved_ms <= max(left_ms, 0) / 64


def rows(request: Request) -> int:
    return len(network(request).rows)


def test_what_fits_stays_as_it_is() -> None:
    request = town(1, 300, 1_500)
    assert MOST_COLUMNS / 2 < columns(request) <= MOST_COLUMNS
    assert MOST_CELLS / 2 < rows(request) * columns(request) <= MOST_CELLS
    assert widened(request) is request


@pytest.mark.parametrize(
    ("terminals", "blockages"), [(1_000, 1_500), (1_000, 2_100), (2_000, 4_200)]
)
def test_the_more_rows_a_plan_has_the_fewer_are_its_columns(terminals: int, blockages: int) -> None:
    exact = town(1, terminals, blockages, sure=True)
    wider = widened(exact)
    assert rows(wider) == rows(exact)
    # Parts are halved, so the plan uses more than half of what is allowed.
    assert MOST_CELLS / 2 < rows(wider) * columns(wider) <= MOST_CELLS


def test_plans_of_very_many_rows_keep_some_columns() -> None:
    exact = town(1, 6_000, 8_000, sure=True)
    wider = widened(exact)
    assert rows(wider) * FEW_COLUMNS > MOST_CELLS
    assert FEW_COLUMNS / 2 < columns(wider) <= FEW_COLUMNS


def test_many_steps_of_the_capacity_leave_columns_for_blockages() -> None:
    town_of_many = town(1, 6_000, 8_000, sure=True)
    begin_ms, bps = town_of_many.capacity[0].from_ms, 10_000_000_000
    steps = tuple(CapacityStep(begin_ms + 500 * n, bps + n) for n in range(300))
    exact = replace(town_of_many, capacity=steps)
    wider = widened(exact)
    fixed = columns(replace(exact, blockages=()))
    assert fixed > FEW_COLUMNS
    assert 1.25 * fixed < columns(wider) <= 2 * fixed
    moved_ms = [
        (after.exit_ms - before.exit_ms) / (before.exit_ms - exact.start_ms)
        for before, after in zip(exact.blockages, wider.blockages, strict=True)
        if before.exit_ms - exact.start_ms > 10_000
    ]
    assert max(moved_ms) <= 1 / 8


def test_terminals_that_share_a_row_cost_no_columns() -> None:
    few = town(1, 200, 1_500, sure=True)
    others = tuple(Terminal(str(node), floor_bps=64_000) for node in range(201, 3_000))
    request = replace(few, terminals=few.terminals + others)
    assert len(request.terminals) * columns(request) > MOST_CELLS
    assert widened(request) is request


def test_unaffected_terminals_that_share_no_row_count() -> None:
    few = town(1, 200, 1_500, sure=True)
    others = tuple(Terminal(str(node), demand_bps=1_000 * node) for node in range(201, 1_000))
    wider = widened(replace(few, terminals=few.terminals + others))
    assert MOST_CELLS / 2 < rows(wider) * columns(wider) <= MOST_CELLS


def test_the_effort_grows_with_the_edges(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = 0
    clusters = widening._clusters

    def counted(edges: Integers, start_ms: int, part: float) -> Integers:
        nonlocal seen
        seen += len(edges)
        return clusters(edges, start_ms, part)

    monkeypatch.setattr(widening, "_clusters", counted)
    for times_the_limit in (2, 10):
        seen = 0
        request = town(1, 1_000, times_the_limit * MOST_COLUMNS // 2)
        widened(request)
        # A few parts are tried, and each edge is looked at once for each.
        assert seen <= 6 * 2 * len(request.blockages)


@settings(max_examples=10, deadline=None)
@given(TOWNS)
def test_a_wider_plan_is_safe_at_any_instant(request: Request) -> None:
    made = planned(request, FEW)
    assert len(made.capacity_bps) <= FEW
    for (begin, end), capacity_bps in zip(
        itertools.pairwise(made.times_ms), made.capacity_bps, strict=True
    ):
        assert not any(begin < step.from_ms < end for step in request.capacity)
        assert capacity_bps == [s.rate_bps for s in request.capacity if s.from_ms <= begin][-1]
        given_bits = sum(bits for bits, _ in made.amounts(begin, end).values())
        assert given_bits <= capacity_bps * (end - begin) // 1_000 + len(request.terminals)
    for one in request.blockages:
        if one.confidence < request.least_confidence:
            continue
        entry_ms, exit_ms = one.entry_ms - request.shift_ms, one.exit_ms - request.shift_ms
        for segment in made.line(one.terminal).segments:
            if segment.start_ms < exit_ms and segment.end_ms > entry_ms:
                assert segment.blocked
                assert not segment.bits


@settings(max_examples=10, deadline=None)
@given(TOWNS)
def test_volumes_differ_by_no_more_than_is_carried_while_blockages_are_longer(
    request: Request,
) -> None:
    exact, wider = planned(request, 10**9), planned(request, FEW)
    longer_ms = _blocked_ms(wider) - _blocked_ms(exact)
    assert longer_ms >= 0
    most_bps = max(step.rate_bps for step in request.capacity)
    bound = most_bps * longer_ms // 1_000 + len(request.terminals)
    amounts = exact.amounts(exact.start_ms, exact.end_ms)
    for terminal, (bits, fair_bits) in wider.amounts(wider.start_ms, wider.end_ms).items():
        assert abs(bits - amounts[terminal][0]) <= bound
        assert abs(fair_bits - amounts[terminal][1]) <= len(request.terminals)


def _blocked_ms(made: Plan) -> int:
    """Return the sum of the times for which terminals are blocked."""
    durations = np.diff(made.times_ms)
    return sum(int(durations[part.blocked].sum()) for part in made.parts)


@settings(max_examples=8, deadline=None)
@given(TOWNS, st.integers(1, 30))
def test_the_ledger_of_a_wider_plan_is_square(request: Request, period_s: int) -> None:
    made = planned(request, FEW)
    ledger = Ledger()
    bounds = [*range(made.start_ms, made.end_ms, 1_000 * period_s), made.end_ms]
    moved = dict.fromkeys(made.terminals(), 0)
    for from_ms, to_ms in itertools.pairwise(bounds):
        amounts = made.amounts(from_ms, to_ms)
        settle(
            ledger,
            from_ms,
            to_ms,
            [Usage(name, fair, bits, bits) for name, (bits, fair) in amounts.items()],
        )
        for name, (bits, fair) in amounts.items():
            moved[name] += abs(fair - bits)
        assert sum(ledger.balance(name) for name in moved) == 0
        for name, bits in moved.items():
            # Capacity that one leaves and nobody takes is no debt.
            assert abs(ledger.balance(name)) <= bits
