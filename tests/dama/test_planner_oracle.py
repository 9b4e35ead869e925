from __future__ import annotations

import pytest
from hypothesis import given, settings

from dama.planner import Request, plan
from tests.dama.oracle import fair_amounts
from tests.dama.requests import requests


def _assert_as_the_oracle(request: Request) -> None:
    oracle = fair_amounts(request)
    made = plan(request)
    columns = len(made.times_ms)
    for line in made.lines():
        bits = sum(segment.bits for segment in line.segments)
        # A bit of rounding per interval, and the oracle's own tolerance.
        near = 2 * columns * len(oracle) + 6e-5 * 8e6 * (request.end_ms - request.start_ms) / 1000
        assert bits == pytest.approx(oracle[line.terminal], abs=near), line.terminal


@settings(max_examples=40, deadline=None)
@given(requests(bounds=False))
def test_amounts_are_those_of_linear_programming(request: Request) -> None:
    _assert_as_the_oracle(request)


@settings(max_examples=40, deadline=None)
@given(requests(most_terminals=5, bounds=True))
def test_amounts_are_those_of_linear_programming_with_ceilings_and_guarantees(
    request: Request,
) -> None:
    _assert_as_the_oracle(request)


@settings(max_examples=40, deadline=None)
@given(requests(most_terminals=5, bounds=False, balances=True))
def test_amounts_are_those_of_linear_programming_with_debts_to_settle(request: Request) -> None:
    _assert_as_the_oracle(request)
