"""When a new plan is made, and when not."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction

import pytest
from underpass_control.demand import Demand
from underpass_control.planning.beam_planner import (
    HORIZON_MS,
    RENEW_MS,
    BeamPlanner,
    Reason,
    Terms,
)
from underpass_control.planning.wire import WirePlan

from dama.ledger import Ledger, Lot, Usage, settle
from dama.planner import CapacityStep, FairShare, Link, Request, plan
from dama.prediction import Blockage

TERMS = {node: Terms(1, 0, None, 1) for node in (1, 2, 3, 4)}
CAPACITY = (CapacityStep(0, 8_000_000),)
LINK = Link.RETURN


def planner() -> BeamPlanner:
    """Return a planner whose links have plans made at 1000."""
    made = BeamPlanner("beam")
    for link in Link:
        made.set_terms(link, CAPACITY, TERMS, 250)
    assert set(made.due(1_000).values()) == {Reason.FIRST}
    make(made, 1_000)
    return made


def make(of: BeamPlanner, now_ms: int) -> Request:
    """Make all plans; return the request of the return link's plan."""
    for link in Link:
        request = of.request(link, now_ms, 300, {})
        of.taken(request, plan(request))
    return request


def tunnel(entry_ms: int, exit_ms: int, confidence: float = 0.9) -> Blockage:
    return Blockage("tunnel", entry_ms, exit_ms, confidence, 0)


def reason(of: BeamPlanner, now_ms: int) -> Reason | None:
    return of.due(now_ms).get(LINK)


def expecting(entry_ms: int = 101_000, exit_ms: int = 161_000) -> BeamPlanner:
    """Return a planner that at 1100 has planned with a blockage."""
    made = planner()
    made.expect(1, [tunnel(entry_ms, exit_ms)], 1_100)
    assert reason(made, 1_100) is Reason.BLOCKAGES
    make(made, 1_100)
    assert made.due(1_100) == {}
    return made


def test_nothing_new_is_no_reason_until_the_plan_nears_its_end() -> None:
    made = planner()
    last_ms = 1_000 + HORIZON_MS - RENEW_MS
    assert made.due(last_ms) == {}
    assert reason(made, last_ms + 1) is Reason.HORIZON


def test_a_clock_that_is_set_back_makes_a_plan_for_now() -> None:
    made = planner()
    make(made, 600_000)
    made.refused(Link.FORWARD, 600_000)
    # As happens when the clock's offset is measured anew.
    assert made.due(599_900) == {}
    assert made.due(400_000) == dict.fromkeys(Link, Reason.HORIZON)
    make(made, 400_000)
    assert made.due(400_000) == {}


def test_a_blockage_is_lent_for_and_settled_a_minute_after_it() -> None:
    made = planner()
    made.expect(1, [tunnel(101_000, 261_000)], 1_100)
    request = make(made, 1_100)
    (one,) = request.blockages
    assert (one.terminal, one.entry_ms, one.exit_ms) == ("1", 101_000, 261_000)
    assert request.settle_ms == request.end_ms == 321_000


def shadow(number: int, entry_ms: int, exit_ms: int) -> Blockage:
    return Blockage(f"shadow {number}", entry_ms, exit_ms, 0.8, 0)


def test_blockages_too_short_to_lend_for_are_planned_with_one_by_one() -> None:
    made = planner()
    first, second = shadow(1, 31_000, 31_400), shadow(2, 32_200, 32_500)
    made.expect(1, [first], 1_100)
    make(made, 1_100)
    # A second one appears, closer to the first than the error that predictions may have.
    made.expect(1, [first, second], 1_400)
    assert reason(made, 1_400) is Reason.BLOCKAGES
    request = make(made, 1_400)
    assert [(one.entry_ms, one.exit_ms) for one in request.blockages] == [
        (31_000, 31_400),
        (32_200, 32_500),
    ]
    assert made.due(1_400) == {}
    # When both are predicted again they are known; when one vanishes, that is noticed.
    made.expect(1, [first, second], 2_400)
    assert made.due(2_400) == {}
    for now_ms in (3_400, 5_400):
        made.expect(1, [second], now_ms)
    assert reason(made, 5_400) is Reason.BLOCKAGES


def test_nothing_is_sent_into_a_blockage_of_a_fraction_of_a_second() -> None:
    made = planner()
    made.expect(1, [shadow(1, 31_000, 31_400), shadow(2, 34_000, 34_001)], 1_100)
    request = made.request(LINK, 1_100, 300, {})
    document = json.loads(WirePlan(plan(request)).document(1, set(TERMS), alone=True))
    (line,) = (one for one in document["lines"] if 1 in one["terminals"])
    blocked = [one for one in line["segments"] if one["state"] == "blocked"]
    assert [(one["start_ms"], one["end_ms"], one["rate_bps"]) for one in blocked] == [
        (31_000, 31_400, 0),
        (34_000, 34_001, 0),
    ]


def test_one_that_is_hardly_likely_is_no_reason() -> None:
    made = planner()
    made.expect(1, [tunnel(101_000, 161_000, 0.45)], 1_100)
    assert made.due(1_100) == {}


def test_once_planned_with_it_stays_at_a_little_less_confidence() -> None:
    made = expecting()
    for now_ms in range(2_000, 30_000, 1_000):
        made.expect(1, [tunnel(101_000, 161_000, 0.45)], now_ms)
    assert reason(made, 30_000) is Reason.MOVED
    make(made, 30_000)
    assert made.due(30_000) == {}
    for now_ms in range(31_000, 60_000, 1_000):
        made.expect(1, [tunnel(101_000, 161_000, 0.3)], now_ms)
    assert reason(made, 60_000) is Reason.BLOCKAGES


def test_a_shift_matters_the_more_the_nearer_it_is() -> None:
    made = expecting()
    made.expect(1, [tunnel(102_500, 162_500)], 20_000)
    assert made.due(20_000) == {}
    made.expect(1, [tunnel(102_500, 162_500)], 80_000)
    assert reason(made, 80_000) is Reason.MOVED


def test_a_leap_counts_at_once_but_not_twice_a_second() -> None:
    made = expecting()
    made.expect(1, [tunnel(121_000, 181_000)], 1_500)
    assert made.due(1_500) == {}
    assert reason(made, 2_100) is Reason.MOVED


def test_one_prediction_that_is_missing_is_not_missed() -> None:
    made = expecting()
    made.expect(1, [], 2_000)
    assert made.due(2_000) == {}
    made.expect(1, [], 3_000)
    assert reason(made, 3_000) is Reason.BLOCKAGES


def test_a_present_blockage_that_is_over_early_is_planned_without_at_once() -> None:
    made = expecting(2_000, 62_000)
    made.expect(1, [tunnel(2_000, 62_000)], 10_000)
    assert made.due(10_000) == {}
    made.expect(1, [], 10_500)
    assert reason(made, 10_500) is Reason.BLOCKAGES


def test_a_blockage_that_has_passed_is_no_reason() -> None:
    made = expecting(2_000, 12_000)
    assert made.due(12_000) == {}


def test_a_blockage_of_a_terminal_that_has_left_is_forgotten() -> None:
    made = expecting()
    without = {node: terms for node, terms in TERMS.items() if node != 1}
    for link in Link:
        made.set_terms(link, CAPACITY, without, 250)
    assert reason(made, 1_200) is Reason.TERMS
    assert make(made, 1_200).blockages == ()
    assert made.due(1_200) == {}


def test_rain_to_come_is_a_reason_and_rain_that_has_come_as_planned_is_none() -> None:
    made = planner()
    rain = (*CAPACITY, CapacityStep(60_000, 4_000_000))
    made.set_terms(LINK, rain, TERMS, 250)
    assert made.due(1_100) == {LINK: Reason.CAPACITY}
    make(made, 1_100)
    assert made.due(70_000) == {}


def demands(**of: int | None) -> Mapping[int, Demand]:
    return {int(node[1:]): Demand(rate, Fraction(1)) for node, rate in of.items()}


@pytest.mark.parametrize(("rate", "matters"), [(1_960_000, False), (1_000_000, True)])
def test_a_demand_matters_by_what_it_leaves_to_others(rate: int, matters: bool) -> None:
    made = planner()
    made.set_demands(LINK, demands(n1=rate, n2=None, n3=None, n4=None), 5_000)
    assert made.due(5_000) == {}
    assert made.due(6_000) == ({LINK: Reason.DEMAND} if matters else {})


def test_who_has_next_to_nothing_and_wants_more_need_not_wait() -> None:
    made = planner()
    made.set_demands(LINK, demands(n1=None, n2=None, n3=None, n4=10_000), 6_000)
    make(made, 6_000)
    made.set_demands(LINK, demands(n1=None, n2=None, n3=None, n4=None), 6_500)
    assert made.due(6_900) == {}
    assert made.due(7_000) == {LINK: Reason.DEMAND}


def test_balances_matter_once_they_are_not_as_planned() -> None:
    made = planner()
    made.see_balances(LINK, {1: 900_000, 2: -900_000}, 5_000)
    assert made.due(5_000) == {}
    made.see_balances(LINK, {1: 2_100_000, 2: -2_100_000}, 5_000)
    assert made.due(5_000) == {LINK: Reason.BALANCES}


def test_balances_matter_only_while_the_link_carries_something() -> None:
    made = BeamPlanner("beam")
    away = (*CAPACITY, CapacityStep(3_000, 0), CapacityStep(9_000, 8_000_000))
    for link in Link:
        made.set_terms(link, away, TERMS, 250)
    make(made, 1_000)
    for owed in (1, 2_100_000):
        made.see_balances(LINK, {1: owed, 2: -owed}, 5_000)
        assert made.due(5_000) == {}
    made.see_balances(LINK, {1: 2_100_000, 2: -2_100_000}, 9_000)
    assert made.due(9_000) == {LINK: Reason.BALANCES}


def test_balances_are_as_planned_while_what_was_planned_is_lent() -> None:
    made = expecting()
    # A borrows 60 s of 2 Mbit/s, at nine parts of ten, in 99.6 s.
    lent = round(0.9 * 60 * 2_000_000 * (51_000 - 1_400) / (101_000 - 1_400))
    made.see_balances(LINK, {1: -lent, **dict.fromkeys((2, 3, 4), lent // 3)}, 51_000)
    assert made.due(51_000) == {}
    made.see_balances(LINK, {}, 51_000)
    assert made.due(51_000) == {LINK: Reason.BALANCES}


@pytest.mark.parametrize(
    ("bits", "within_ms"),
    [(1, 1_300), (125_000, 1_300), (1_250_000, 10_300), (7_500_000, 60_000), (10**9, 60_000)],
)
def test_the_less_is_owed_the_sooner_it_is_repaid(bits: int, within_ms: int) -> None:
    """A plan may follow soon that begins anew to repay what is left then."""
    owed = {1: -bits, 2: bits}
    request = planner().request(LINK, 5_000, 300, owed)
    assert request.settle_ms == 5_000 + within_ms


def test_what_is_owed_while_a_blockage_is_ahead_is_repaid_after_it() -> None:
    request = expecting().request(LINK, 5_000, 300, {1: -1, 2: 1})
    assert request.settle_ms == 161_000 + 60_000


def test_a_debt_ends_though_each_plan_is_soon_replaced() -> None:
    made, ledger = planner(), Ledger({"1": [Lot(0, -8_000_000)], "2": [Lot(0, 8_000_000)]})
    for now_ms in range(5_000, 205_000, 5_000):
        owed = {int(name): bits for name, bits in ledger.balances().items()}
        its = plan(made.request(LINK, now_ms, 300, owed))
        amounts = its.amounts(its.start_ms, its.start_ms + 5_000).items()
        settle(ledger, 0, 0, [Usage(name, fair, given, given) for name, (given, fair) in amounts])
    assert ledger.balances() == {}


def test_what_has_no_plan_is_left_alone_for_a_while() -> None:
    made = BeamPlanner("beam")
    made.set_terms(LINK, CAPACITY, TERMS, 250)
    made.refused(LINK, 1_000)
    assert made.due(5_000) == {}
    assert made.due(6_000) == {LINK: Reason.FIRST}


def efficiencies(**of: Fraction) -> Mapping[int, Demand]:
    return {node: Demand(None, of.get(f"n{node}", Fraction(1))) for node in TERMS}


@pytest.mark.parametrize(
    ("efficiency", "after_ms"),
    [
        # Falls that affect more than 2 % of the capacity, and falls that affect less.
        (Fraction(1, 4), 1_000),
        (Fraction(7, 8), 1_000),
        (Fraction(91, 100), 5_000),
        (Fraction(95, 100), 15_000),
        (Fraction(5, 4), 5_000),
    ],
)
def test_an_efficiency_that_changes_is_planned_with_the_sooner_the_more_it_concerns(
    efficiency: Fraction, after_ms: int
) -> None:
    made = planner()
    made.set_demands(LINK, efficiencies(n1=efficiency), 1_000)
    assert made.due(1_000 + after_ms - 1) == {}
    assert made.due(1_000 + after_ms) == {LINK: Reason.EFFICIENCY}
    request = make(made, 1_000 + after_ms)
    assert {int(one.id): one.efficiency for one in request.terminals}[1] == efficiency
    assert made.due(30_000) == {}


def test_an_efficiency_that_hardly_changes_waits_for_another_plan() -> None:
    made = planner()
    made.set_demands(LINK, efficiencies(n1=Fraction(99, 100)), 1_000)
    assert made.due(60_000) == {}


def test_the_policy_of_the_beam_is_planned_with_at_once() -> None:
    made = planner()
    made.set_demands(LINK, efficiencies(n1=Fraction(1, 4)), 1_000)
    make(made, 2_000)
    by_bits = {node: replace(terms, fair_share=FairShare.BITS) for node, terms in TERMS.items()}
    made.set_terms(LINK, CAPACITY, by_bits, 250)
    assert reason(made, 2_100) is Reason.TERMS
    request = make(made, 2_100)
    first, *others = (line.segments[0].bits for line in plan(request).lines())
    assert all(first == pytest.approx(4 * other, abs=4) for other in others)
