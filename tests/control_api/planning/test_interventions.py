"""Operators' interventions in virtual time: rates, maintenance, freezes, withdrawals."""

from __future__ import annotations

import json
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from underpass_control.demand import Demand
from underpass_control.planning.beam_planner import BeamPlanner, Reason, Terms, moved
from underpass_control.planning.interventions import Intervention, Interventions, Kind
from underpass_control.planning.wire import WirePlan
from underpass_control.prediction import Predictions
from underpass_control.prediction.withdrawn import Withdrawn
from underpass_control.settlement.period import projected, shares_of

from dama.ledger import Ledger, Usage, settle
from dama.planner import CapacityStep, FairShare, Link, Plan, plan
from dama.prediction import Announcement, Blockage, Span
from tests.control_api.planning.beam import InForce

BEAM_BPS = 8_000_000
NODES = (1, 2, 3, 4)
LINK = Link.FORWARD
CAPACITY = (CapacityStep(0, BEAM_BPS),)


def planner(
    *set_ones: Intervention, fair_share: FairShare = FairShare.SYMBOLS, minimum_bps: int = 0
) -> BeamPlanner:
    made = BeamPlanner("beam")
    for link in Link:
        terms = {node: Terms(1, minimum_bps, None, 1, fair_share) for node in NODES}
        made.set_terms(link, Interventions(set_ones).capacity(link, CAPACITY), terms, 0)
    made.intervene(Interventions(set_ones), 0)
    return made


def make(of: BeamPlanner, now_ms: int, owed: dict[int, int] | None = None) -> Plan:
    """Make all plans; return the forward link's."""
    for link in (Link.RETURN, LINK):
        request = of.request(link, now_ms, 0, owed or {})
        made = plan(request)
        of.taken(request, made)
    return made


def rates(of: Plan, at_ms: int) -> dict[int, int]:
    """Return each terminal's rate in a second, in bit/s."""
    return {int(name): bits for name, (bits, _) in of.amounts(at_ms, at_ms + 1_000).items()}


def guaranteed_bps(of: Plan) -> int:
    """Return the rate that the first terminal's node may send without a plan."""
    document = json.loads(WirePlan(of).document(1, {1}, alone=True))
    bps: int = document["lines"][0]["guaranteed_bps"]
    return bps


def rate(terminal: int, bps: int, from_ms: int = 0, until_ms: int = 60_000) -> Intervention:
    return Intervention(1, Kind.RATE, terminal, from_ms, until_ms, forward_bps=bps)


def away(terminal: int, from_ms: int = 0, until_ms: int = 60_000) -> Intervention:
    return Intervention(2, Kind.MAINTENANCE, terminal, from_ms, until_ms)


def freeze(from_ms: int = 0, until_ms: int = 600_000) -> Intervention:
    return Intervention(3, Kind.FREEZE, None, from_ms, until_ms)


def test_a_rate_begins_and_ends_with_a_plan_of_its_own() -> None:
    made = planner(rate(1, 5_000_000, 10_000, 60_000))
    assert rates(make(made, 0), 0) == dict.fromkeys(NODES, 2_000_000)
    assert made.due(9_999) == {}
    # Only on the link for which it is set.
    assert made.due(10_000) == {LINK: Reason.INTERVENTION}
    assert rates(make(made, 10_000), 10_000) == {1: 5_000_000, 2: 10**6, 3: 10**6, 4: 10**6}
    assert made.due(59_999) == {}
    assert made.due(60_000) == {LINK: Reason.INTERVENTION}
    assert rates(make(made, 60_000), 60_000) == dict.fromkeys(NODES, 2_000_000)


@pytest.mark.parametrize(
    ("fair_share", "symbols"), [(FairShare.SYMBOLS, 2_000_000), (FairShare.BITS, 4_000_000)]
)
def test_in_a_fade_a_rate_takes_more_capacity_by_bits_only(
    fair_share: FairShare, symbols: int
) -> None:
    made = planner(rate(1, 2_000_000), fair_share=fair_share)
    made.set_demands(LINK, {1: Demand(None, Fraction(1, 2))}, 0)
    assert rates(make(made, 0), 0)[1] == symbols


@pytest.mark.parametrize("owed_bits", [0, 60_000_000, -60_000_000])
def test_in_a_fade_a_rate_below_the_fair_share_takes_no_more_capacity_either(
    owed_bits: int,
) -> None:
    made = planner(rate(1, 1_000_000))
    made.set_demands(LINK, {1: Demand(None, Fraction(1, 2))}, 0)
    of = make(made, 0, {1: owed_bits, 2: -owed_bits, 3: 0, 4: 0})
    assert all(rates(of, at_ms)[1] == 1_000_000 for at_ms in range(0, 180_000, 1_000))


def test_rates_beyond_the_capacity_shrink_in_proportion() -> None:
    set_ones = [rate(1, 8_000_000), rate(2, 8_000_000)]
    assert rates(make(planner(*set_ones), 0), 0) == {1: 4_000_000, 2: 4_000_000, 3: 0, 4: 0}


def test_a_rate_is_kept_whatever_is_owed_and_guaranteed_no_longer_than_it_lasts() -> None:
    made = planner(rate(1, 1_000_000), minimum_bps=500_000)
    owed = {1: 60_000_000, 2: -60_000_000, 3: 0, 4: 0}
    of = make(made, 0, owed)
    assert all(rates(of, at_ms)[1] == 1_000_000 for at_ms in range(0, 180_000, 1_000))
    # It is repaid afterwards.
    assert moved(of, 60_000)[1] == 60_000_000
    assert guaranteed_bps(of) == 500_000
    assert made.due(60_000)[LINK] is Reason.INTERVENTION
    after = make(made, 60_000, owed)
    assert after.amounts(60_000, 120_000)["1"] == (60 * 2_000_000 + 60_000_000, 60 * 2_000_000)


def test_a_terminal_that_is_away_leaves_its_share_to_others_and_keeps_its_guarantee() -> None:
    made = planner(away(1), minimum_bps=500_000)
    of = make(made, 0)
    assert rates(of, 0) == {1: 0, 2: 2_666_666, 3: 2_666_667, 4: 2_666_667}
    assert guaranteed_bps(of) == 500_000
    assert set(moved(of, 60_000).values()) == {0}


def tunnel(entry_ms: int, name: str = "tunnel") -> Blockage:
    return Blockage(name, entry_ms, entry_ms + 30_000, 1.0, 0)


def borrowed(of: Plan, terminal: int) -> int:
    return sum(segment.borrowed_bits for segment in of.line(str(terminal)).segments)


def blocked_ms(of: Plan, terminal: int) -> int:
    segments = of.line(str(terminal)).segments
    return sum(one.end_ms - one.start_ms for one in segments if one.blocked)


def test_a_freeze_keeps_what_is_lent_and_lends_nothing_more_until_it_ends() -> None:
    made = planner(freeze(10_000, 40_000))
    made.expect(1, [tunnel(60_000)], 5_000)
    assert borrowed(make(made, 5_000), 1) > 0
    assert set(made.due(10_000).values()) == {Reason.INTERVENTION}
    made.expect(2, [tunnel(90_000, "other")], 10_500)
    of = make(made, 11_000)
    assert borrowed(of, 1) > 0
    assert borrowed(of, 2) == 0
    assert blocked_ms(of, 2) == 30_000
    for now_ms in range(12_000, 40_000, 1_000):
        made.expect(1, [tunnel(60_000)], now_ms)
        made.expect(2, [tunnel(90_000, "other")], now_ms)
        assert made.due(now_ms) == {}
    assert set(made.due(40_000).values()) == {Reason.INTERVENTION}
    assert borrowed(make(made, 40_000), 2) > 0


def test_what_a_frozen_terminal_could_not_use_is_owed_to_it_to_the_bit() -> None:
    made = planner(freeze())
    made.expect(1, [tunnel(20_000)], 0)
    of = make(made, 0)
    owed = moved(of, 50_000)
    assert owed[1] == 30 * 2_000_000
    assert sum(owed.values()) == 0
    # The next plan repays it.
    made.expect(1, [], 50_000)
    after = make(made, 50_000, owed)
    assert moved(after, after.end_ms)[1] == 0


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.sampled_from([Kind.RATE, Kind.MAINTENANCE, Kind.FREEZE]),
            st.sampled_from(NODES),
            st.integers(0, 50),
            st.integers(1, 60),
            st.integers(0, 6_000_000),
        ),
        max_size=6,
    ),
    st.lists(st.tuples(st.sampled_from(NODES), st.integers(5, 90)), max_size=3),
)
def test_the_ledger_stays_exact_whatever_is_set(
    drawn: list[tuple[Kind, int, int, int, int]], tunnels: list[tuple[int, int]]
) -> None:
    set_ones = [
        Intervention(
            number,
            kind,
            None if kind is Kind.FREEZE else node,
            1_000 * begin,
            1_000 * (begin + lasts),
            forward_bps=bps if kind is Kind.RATE else None,
        )
        for number, (kind, node, begin, lasts, bps) in enumerate(drawn)
    ]
    made = planner(*set_ones)
    ledger = Ledger()
    of: Plan | None = None
    for now_ms in range(0, 120_000, 10_000):
        for node in NODES:
            ahead = [
                tunnel(1_000 * entry, f"{node} {entry}")
                for who, entry in tunnels
                if who == node and now_ms < 1_000 * entry + 30_000
            ]
            made.expect(node, ahead, now_ms)
        if LINK in made.due(now_ms):
            owed = projected(ledger, {})
            assert sum(owed.values()) == 0
            of = make(made, now_ms, owed)
        assert of is not None
        for begin_ms in range(now_ms, now_ms + 10_000, 1_000):
            assert sum(rates(of, begin_ms).values()) <= BEAM_BPS + len(NODES)
        shares = shares_of([InForce(now_ms, now_ms + 10_000, of)])
        usages = [
            Usage(str(node), share.fair_bits, share.planned_bits, share.planned_bits)
            for node, share in shares.items()
        ]
        settle(ledger, now_ms, now_ms + 10_000, usages)
    assert sum(projected(ledger, {}).values()) == 0


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(0, 9)), max_size=5),
    st.lists(st.tuples(st.integers(0, 90), st.integers(1, 30), st.integers(0, 9)), max_size=4),
)
def test_maintenance_leaves_the_least_that_is_set_at_any_time(
    steps: list[tuple[int, int]], windows: list[tuple[int, int, int]]
) -> None:
    by_time = {0: 8} | dict(steps)
    set_steps = tuple(CapacityStep(at, bps) for at, bps in sorted(by_time.items()))
    set_ones = [
        Intervention(1, Kind.MAINTENANCE, None, begin, begin + lasts, return_bps=bps)
        for begin, lasts, bps in windows
    ]
    found = Interventions(set_ones).capacity(Link.RETURN, set_steps)
    for at in range(130):
        base = [step.rate_bps for step in set_steps if step.from_ms <= at][-1]
        left = [bps for begin, lasts, bps in windows if begin <= at < begin + lasts]
        assert [step.rate_bps for step in found if step.from_ms <= at][-1] == min([base, *left])
    assert Interventions(set_ones).capacity(Link.FORWARD, set_steps) == set_steps


def test_a_withdrawn_blockage_stays_so_however_long_the_vehicle_is_held_up() -> None:
    withdrawn = Withdrawn()
    assert withdrawn.set({1: {7: Span("tunnel", 60_000, 90_000)}}) == {1}
    for now_ms in range(0, 600_000, 1_000):
        # The entry is always a minute away.
        assert withdrawn.left(1, (tunnel(now_ms + 60_000),), now_ms) == ()
    assert withdrawn.moved() == {7: Span("tunnel", 659_000, 689_000)}
    withdrawn.stored(withdrawn.moved())
    assert withdrawn.moved() == {}
    # Any other change makes the stored withdrawals be read again, which changes nothing.
    assert withdrawn.set({1: {7: Span("tunnel", 650_000, 680_000)}}) == set()
    assert withdrawn.left(1, (tunnel(662_000),), 600_000) == ()


def test_only_one_passage_is_withdrawn() -> None:
    withdrawn = Withdrawn()
    withdrawn.set({1: {7: Span("tunnel", 60_000, 90_000)}})
    there, back = tunnel(61_000), tunnel(400_000)
    assert withdrawn.left(1, (there, back), 1_000) == (back,)
    assert withdrawn.left(2, (there,), 1_000) == (there,)
    other = tunnel(61_000, "gallery")
    assert withdrawn.left(1, (other, there), 2_000) == (other,)
    # That passage is over; the next one is another blockage.
    assert withdrawn.left(1, (back,), 200_000) == (back,)


def test_of_two_passages_each_is_withdrawn_by_itself_however_long_the_vehicle_is_held_up() -> None:
    withdrawn = Withdrawn()
    first, second = tunnel(60_000), tunnel(300_000)
    withdrawn.set({1: {7: second.span}})
    assert withdrawn.left(1, (first, second), 0) == (first,)
    # The delay is so long that the first passage now has the second one's former time.
    first, second = tunnel(300_000), tunnel(540_000)
    assert withdrawn.left(1, (first, second), 50_000) == (first,)
    assert withdrawn.moved() == {7: second.span}
    # The first is withdrawn too; then the second one's withdrawal is released.
    withdrawn.set({1: {7: second.span, 8: first.span}})
    assert withdrawn.left(1, (first, second), 110_000) == ()
    withdrawn.set({1: {8: first.span}})
    assert withdrawn.left(1, (first, second), 120_000) == (second,)
    # The first one is over; only the second is ahead, which is not withdrawn.
    assert withdrawn.left(1, (second,), 480_000) == (second,)


def test_a_withdrawn_blockage_that_comes_all_the_same_is_observed() -> None:
    predictions = Predictions()
    predictions.announce(1, Announcement(0, 60_000, 30_000, 1.0, None))
    (said,) = predictions.blockages_of(1, 1_000)
    assert predictions.withdraw({1: {7: said.span}}) == {1}
    assert predictions.blockages_of(1, 2_000) == ()
    predictions.observe(1, 61_000, None)
    (present,) = predictions.blockages_of(1, 62_000)
    assert (present.entry_ms, present.exit_ms, present.confidence) == (61_000, 91_000, 1.0)
    predictions.observe(1, 61_000, 80_000)
    assert predictions.blockages_of(1, 81_000) == ()
    assert predictions.withdraw({}) == {1}
