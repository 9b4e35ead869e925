"""Requests that have no plan, and the errors that they get."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest

from dama.planner import (
    Blockage,
    CapacityStep,
    Link,
    PlanError,
    Request,
    Terminal,
    fair_rates,
    plan,
)

_GOOD = Request(
    beam="beam",
    link=Link.FORWARD,
    now_ms=1_000,
    end_ms=61_000,
    capacity=(CapacityStep(0, 8_000_000),),
    terminals=(Terminal("A"), Terminal("B")),
    blockages=(Blockage("A", 31_000, 41_000),),
)


def test_a_good_request_has_a_plan() -> None:
    assert set(plan(_GOOD).terminals()) == {"A", "B"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"end_ms": 1_000}, "horizon ends"),
        ({"signalling_delay_ms": 60_000}, "horizon ends"),
        ({"signalling_delay_ms": -1}, "delay is negative"),
        ({"one_way_delay_ms": -1}, "delay is negative"),
        ({"capacity": ()}, "capacity at the plan's start"),
        ({"capacity": (CapacityStep(2_000, 1),)}, "capacity at the plan's start"),
        ({"capacity": (CapacityStep(0, 1), CapacityStep(0, 2))}, "ascending"),
        ({"capacity": (CapacityStep(0, -1),)}, "negative"),
        ({"capacity": (CapacityStep(0, 10**18),)}, "carries more than"),
        ({"terminals": (Terminal("A"), Terminal("A"))}, "A is there twice"),
        ({"terminals": (Terminal("B"),)}, "terminal A, which is not in the beam"),
        ({"blockages": (Blockage("A", 5, 5),)}, "ends before it begins"),
        ({"blockages": (Blockage("A", 5, 6, float("nan")),)}, "confidence nan"),
        ({"blockages": (Blockage("A", 5, 6, 1.5),)}, "confidence 1.5"),
    ],
)
def test_a_request_without_a_plan_is_told_why(change: dict[str, object], message: str) -> None:
    with pytest.raises(PlanError, match=message):
        plan(dataclasses.replace(_GOOD, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("terms", "message"),
    [
        ({"weight": 0}, "weight 0"),
        ({"efficiency": Fraction(-1)}, "efficiency -1"),
        ({"minimum_bps": -1}, "minimum rate below 0"),
        ({"floor_bps": -1}, "minimum rate below 0"),
        ({"minimum_bps": 2, "maximum_bps": 1}, "maximum rate below its minimum"),
        ({"demand_bps": -1}, "demand below 0"),
        ({"owed_bits": 2**60}, "balance beyond"),
    ],
)
def test_terms_without_a_meaning_are_refused(terms: dict[str, object], message: str) -> None:
    odd = dataclasses.replace(Terminal("B"), **terms)  # type: ignore[arg-type]
    with pytest.raises(PlanError, match=f"terminal B has .*{message}"):
        plan(dataclasses.replace(_GOOD, terminals=(Terminal("A"), odd)))


def test_a_beam_without_terminals_or_demand_has_an_empty_plan() -> None:
    nobody = dataclasses.replace(_GOOD, terminals=(), blockages=())
    assert list(plan(nobody).lines()) == []
    idle = dataclasses.replace(_GOOD, terminals=(Terminal("A", demand_bps=0),))
    assert all(segment.rate == 0 for segment in plan(idle).line("A").segments)


def test_terminals_that_differ_in_their_floor_alone_have_shares_of_their_own() -> None:
    terminals = (Terminal("A", floor_bps=3_000_000), Terminal("B"), Terminal("C"))
    found = fair_rates(4_000_000, terminals)
    assert found == {"A": 3_000_000, "B": 500_000, "C": 500_000}
