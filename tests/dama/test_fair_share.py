"""Fair shares that are equal in symbols or in bits."""

from __future__ import annotations

import json
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from dama.planner import CapacityStep, FairShare, Link, Request, Terminal, fair_rates, plan
from dama.planner.text import plan_document, read_plan, text
from tests.dama.requests import requests

# Six in clear sky, two in a fade of 6 dB.
EIGHT = [Terminal(str(n), efficiency=Fraction(1, 4) if n > 6 else 1) for n in range(1, 9)]


def shares(fair_share: FairShare, capacity_bps: int, *terminals: Terminal) -> list[Fraction]:
    of = [replace(terminal, fair_share=fair_share) for terminal in terminals]
    found = fair_rates(capacity_bps, of)
    return [found[terminal.id] for terminal in of]


def test_by_symbols_all_have_the_same_capacity() -> None:
    assert shares(FairShare.SYMBOLS, 8_000_000, *EIGHT) == [1_000_000] * 8


def test_by_bits_all_have_the_same_rate() -> None:
    found = shares(FairShare.BITS, 14_000_000, *EIGHT)
    assert found == [1_000_000] * 6 + [4_000_000] * 2
    assert {share * one.efficiency for share, one in zip(found, EIGHT, strict=True)} == {1_000_000}


def test_by_symbols_a_fade_takes_its_part_of_a_guaranteed_rate() -> None:
    kept = Terminal("1", minimum_bps=3_000_000, efficiency=Fraction(1, 4))
    found = shares(FairShare.SYMBOLS, 4_000_000, kept, Terminal("2"), Terminal("3"))
    assert found == [3_000_000, 500_000, 500_000]
    # A better MODCOD needs less capacity for the same rate.
    better = replace(kept, efficiency=3)
    others = [Terminal(str(n)) for n in range(2, 11)]
    assert shares(FairShare.SYMBOLS, 4_000_000, better, *others)[0] == 1_000_000
    assert shares(FairShare.BITS, 13_000_000, kept, Terminal("2"))[0] == 12_000_000


@settings(max_examples=60, deadline=None)
@given(
    requests(balances=True),
    st.data(),
    st.fractions(Fraction(1, 16), 1, max_denominator=1_000),
)
def test_by_symbols_a_fade_changes_nothing_of_anybodys_capacity(
    request: Request, data: st.DataObject, efficiency: Fraction
) -> None:
    """For a backlogged terminal, by symbols, a fade costs only the terminal itself."""
    clear = tuple(
        replace(terminal, fair_share=FairShare.SYMBOLS, floor_bps=0)
        for terminal in request.terminals
    )
    greedy = [one for one in clear if one.maximum_bps is None and one.demand_bps is None]
    assume(greedy)
    chosen = data.draw(st.sampled_from(greedy))
    before, after = (
        plan(
            replace(
                request,
                terminals=tuple(
                    replace(one, efficiency=of) if one.id == chosen.id else one for one in clear
                ),
            )
        )
        for of in (1, efficiency)
    )
    whole = (before.start_ms, before.end_ms)
    assert before.amounts(*whole) == after.amounts(*whole)
    assert before.line(chosen.id).segments[0].bits == after.line(chosen.id).segments[0].bits
    assert after.efficiencies().get(chosen.id, 1) == efficiency


def test_plans_of_earlier_releases_were_by_bits() -> None:
    terminals = tuple(replace(one, fair_share=FairShare.BITS) for one in EIGHT)
    capacity = (CapacityStep(0, 8_000_000),)
    made = plan(Request("beam", Link.RETURN, 0, 60_000, capacity, terminals))
    document = json.loads(text(plan_document(made)))
    for group in document["groups"]:
        for run in group["members"]:
            assert run.pop("fair_share") == "bits"
    assert read_plan(document).groups[0].members[0].fair_share is FairShare.BITS
    group["members"][0]["fair_share"] = "luck"
    with pytest.raises(ValueError, match="luck"):
        read_plan(document)


@given(
    st.lists(st.fractions(1, 4, max_denominator=7), min_size=1, max_size=8),
    st.lists(st.integers(1, 600_000), min_size=1, max_size=4, unique=True),
    st.integers(1, 9_000_000),
)
def test_fair_shares_sum_to_the_capacity_to_the_bit(
    weights: list[Fraction], edges_ms: list[int], capacity_bps: int
) -> None:
    """Else a plan would move a bit where nobody owes anything."""
    terminals = tuple(Terminal(str(n), weight=weight) for n, weight in enumerate(weights))
    steps = tuple(CapacityStep(at_ms, capacity_bps) for at_ms in (0, *sorted(edges_ms)[:-1]))
    end_ms = max(edges_ms)
    made = plan(Request("beam", Link.FORWARD, 0, end_ms, steps, terminals))
    for at_ms in made.times_ms:
        amounts = made.amounts(0, at_ms).values()
        assert sum(fair for _, fair in amounts) == capacity_bps * at_ms // 1000
    amounts = made.amounts(0, end_ms).values()
    assert all(given_bits == fair for given_bits, fair in amounts)
