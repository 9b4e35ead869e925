"""Coarse plans: fewer segments, hardly less for any terminal, and more for none."""

from __future__ import annotations

import json

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dama.planner import Blockage, CapacityStep, Link, Request, Terminal, plan
from dama.planner.coarsening import ROUNDING_BITS, coarsened, segments, steps_of_parts
from dama.planner.text import plan_document, read_plan, text
from tests.dama.requests import requests

TOLERANCES = st.sampled_from([2.0**-power for power in (11, 9, 6, 3, 1)])


@settings(max_examples=60, deadline=None)
@given(requests(balances=True), TOLERANCES)
def test_nobody_is_given_more_and_nobody_less_than_the_tolerance(
    request: Request, tolerance: float
) -> None:
    exact = plan(request)
    coarse = coarsened(exact, tolerance)
    durations = np.diff(exact.times_ms)
    shortest = durations.min()
    for before, after in zip(exact.parts, coarse.parts, strict=True):
        assert (after.bits <= before.bits).all()
        assert (after.bits >= 0).all()
        # Rounding of the shortest column may decide the rate of a step.
        rounding = 2 * ROUNDING_BITS * (durations / shortest + 1)
        assert (after.bits >= before.bits * (1 - tolerance) - rounding).all()
        assert (after.blocked == before.blocked).all()
    assert coarse.groups == exact.groups
    assert coarse.times_ms == exact.times_ms


@settings(max_examples=40, deadline=None)
@given(requests(balances=True), TOLERANCES)
def test_a_coarse_plan_has_as_many_steps_as_were_counted(
    request: Request, tolerance: float
) -> None:
    exact = plan(request)
    counted = segments(exact, tolerance)
    coarse = coarsened(exact, tolerance)
    steps = list(steps_of_parts(coarse, None))
    durations = np.diff(exact.times_ms)
    changes = sum(
        a != b for a, b in zip(coarse.capacity_bps, coarse.capacity_bps[1:], strict=False)
    )
    for part, (begins, bits), count in zip(coarse.parts, steps, counted, strict=True):
        assert len(begins) <= count + changes
        # Steps move the bits that the columns do; rounding of the shortest may decide their rate.
        moved, rounding = (
            int(part.bits.sum()),
            2 * ROUNDING_BITS * (durations / durations.min() + 1),
        )
        assert moved - rounding.sum() <= bits.sum() <= moved + ROUNDING_BITS * len(bits)


@settings(max_examples=30, deadline=None)
@given(requests(balances=True), TOLERANCES)
def test_a_coarse_plan_reads_back_to_the_bit(request: Request, tolerance: float) -> None:
    made = coarsened(plan(request), tolerance)
    written = text(plan_document(made))
    read = read_plan(json.loads(written))
    assert read.tolerance == tolerance
    assert text(plan_document(read)) == written


def large(blockages: int, terminals: int = 400) -> Request:
    random = np.random.default_rng(5)
    return Request(
        "east",
        Link.RETURN,
        0,
        180_000,
        (CapacityStep(0, terminals * 2_000_000),),
        tuple(
            Terminal(str(node), owed_bits=int(random.integers(-8_000_000, 8_000_000)))
            for node in range(1, terminals + 1)
        ),
        tuple(
            Blockage(str(node), entry, entry + int(random.integers(500, 40_000)))
            for node in range(1, blockages + 1)
            for entry in [int(random.integers(2_000, 80_000))]
        ),
        settle_ms=170_000,
    )


def test_blockages_of_a_few_make_few_steps_for_all_others() -> None:
    exact = plan(large(20))
    columns = len(exact.capacity_bps)
    assert columns > 40
    coarse = coarsened(exact, 2.0**-8)
    # A blockage moves 1/400 of a rate.
    assert np.mean(segments(exact, 2.0**-8)) < columns / 3
    lost = 1 - sum(int(one.bits.sum()) for one in coarse.parts) / sum(
        int(one.bits.sum()) for one in exact.parts
    )
    assert 0 < lost < 2.0**-8


def test_once_settled_everyone_has_exactly_its_fair_share() -> None:
    exact = plan(large(20))
    coarse = coarsened(exact, 2.0**-5)
    settled = exact.times_ms.index(170_000)
    for before, after in zip(exact.parts, coarse.parts, strict=True):
        assert (after.bits[settled:] == before.bits[settled:]).all()
