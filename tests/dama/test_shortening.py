"""Plans that begin later: from then on they are unchanged."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dama.planner import CapacityStep, Link, PlanError, Request, Terminal, plan
from dama.planner.coarsening import coarsened
from dama.planner.shortening import shortened
from dama.planner.text import plan_document, read_plan, text
from tests.dama.requests import requests


@settings(max_examples=60, deadline=None)
@given(st.data(), requests(balances=True), st.sampled_from((0.0, 2.0**-6)))
def test_from_its_start_on_a_shortened_plan_gives_what_the_whole_one_does(
    data: st.DataObject, request: Request, tolerance: float
) -> None:
    whole = coarsened(plan(request), tolerance) if tolerance else plan(request)
    start_ms = data.draw(st.integers(whole.start_ms, whole.end_ms - 1))
    left = shortened(whole, start_ms)
    assert (left.start_ms, left.end_ms) == (start_ms, whole.end_ms)
    assert (left.issued_ms, left.tolerance) == (whole.issued_ms, whole.tolerance)
    assert list(left.terminals()) == list(whole.terminals())
    for number, (begin_ms, end_ms) in enumerate(pairwise(left.times_ms)):
        column = number + len(whole.capacity_bps) - len(left.capacity_bps)
        assert whole.times_ms[column] <= begin_ms < end_ms == whole.times_ms[column + 1]
        assert left.capacity_bps[number] == whole.capacity_bps[column]
        before, after = whole.amounts(begin_ms, end_ms), left.amounts(begin_ms, end_ms)
        for name, (bits, fair) in after.items():
            # Rows are rounded, and shared by their members.
            assert abs(bits - before[name][0]) <= 2
            assert abs(fair - before[name][1]) <= 2
        given_bits = sum(int(part.bits[number]) for part in left.parts)
        most = sum(int(part.bits[column]) for part in whole.parts)
        span_ms = whole.times_ms[column + 1] - whole.times_ms[column]
        assert given_bits * span_ms <= most * (end_ms - begin_ms)
    for part, former in zip(left.parts, whole.parts, strict=True):
        assert part.blocked.tolist() == former.blocked[-len(part.blocked) :].tolist()
    written = text(plan_document(left))
    assert text(plan_document(read_plan(json.loads(written)))) == written


@given(requests())
@settings(max_examples=10, deadline=None)
def test_a_plan_that_begins_later_already_stays_as_it_is(request: Request) -> None:
    whole = plan(request)
    assert shortened(whole, whole.start_ms - 1) is whole
    assert shortened(whole, whole.start_ms) is whole


def test_nothing_is_left_of_a_plan_that_is_over() -> None:
    terminals = (Terminal("a"), Terminal("b"))
    request = Request("east", Link.FORWARD, 0, 180_000, (CapacityStep(0, 8_000),), terminals)
    with pytest.raises(PlanError, match="ends at 180000 ms"):
        shortened(plan(request), 180_000)


def test_the_most_that_a_plan_may_hold_is_shortened_exactly() -> None:
    capacity = (CapacityStep(0, 10**12),)
    whole = plan(Request("east", Link.FORWARD, 0, 7_200_000, capacity, (Terminal("a"),)))
    left = shortened(whole, 3_600_001)
    assert left.amounts(3_600_001, 7_200_000)["a"][0] == 3_599_999 * 10**9
