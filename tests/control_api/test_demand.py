"""The demand that terminals are assumed to have."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
from underpass_control.demand import FLOOR_BPS, Demands
from underpass_control.storage.links import LinkState

from dama.planner import Link

NODE = 10
START_MS = 1_800_000_000_000
# Enough that the floor has its greatest value.
CAPACITY_BPS = 10_000_000


def state(
    second: float, sent_bytes: int, backlogged_bytes: int = 0, **members: object
) -> LinkState:
    uptime_ms = round(1000 * second)
    made = LinkState(
        terminal=NODE,
        link="return",
        node=NODE,
        incarnation=1,
        uptime_ms=uptime_ms,
        time_ms=START_MS + uptime_ms,
        received_ms=START_MS + uptime_ms,
        gateway=1,
        path="satellite",
        state="up",
        offered_bytes=sent_bytes + backlogged_bytes,
        sent_bytes=sent_bytes,
        backlogged_bytes=backlogged_bytes,
        streams=1,
    )
    return replace(made, **members)  # type: ignore[arg-type]


def demands(*states: LinkState) -> Demands:
    made = Demands()
    for one in states:
        made.take(NODE, Link(one.link), one)
    return made


def wanted(made: Demands, second: float) -> int | None:
    now_ms = START_MS + round(1000 * second)
    return made.of_link(Link.RETURN, [NODE], CAPACITY_BPS, now_ms)[NODE].demand_bps


def steady(seconds: int, bytes_per_s: int = 100_000, **members: object) -> list[LinkState]:
    return [state(n, n * bytes_per_s, **members) for n in range(1, seconds + 1)]  # type: ignore[arg-type]


def test_who_never_reported_takes_a_fair_share() -> None:
    assert wanted(Demands(), 0) is None
    assert Demands().efficiency(NODE, Link.RETURN) == 1


def test_who_has_nothing_waiting_wants_a_quarter_more_than_its_recent_rate() -> None:
    rate = wanted(demands(*steady(8)), 8)
    assert rate is not None
    assert 1.25 * 800_000 <= rate <= 1.25 * 800_000 * 1.125


def test_the_recent_rate_is_that_of_the_last_seconds() -> None:
    slowed = [*steady(20), *(state(20 + n, 20 * 100_000 + n * 10_000) for n in range(1, 7))]
    rate = wanted(demands(*slowed), 26)
    assert rate is not None
    assert 1.25 * 80_000 <= rate <= 1.25 * 80_000 * 1.125


def test_who_has_a_backlog_is_greedy_and_who_has_it_in_passing_is_not() -> None:
    kept = steady(8, backlogged_bytes=200_000)
    assert wanted(demands(*kept), 8) is None
    assert wanted(demands(*steady(8, backlogged_bytes=4_000)), 8) is not None
    cleared = replace(kept[-1], rate_bps=50_000_000)
    assert wanted(demands(*steady(7), cleared), 8) is not None


def test_the_first_report_tells_no_rate() -> None:
    assert wanted(demands(state(1, 5_000_000)), 1) is None


def test_who_is_blocked_wants_what_it_did_before() -> None:
    before = steady(8)
    dark = [state(8 + n, 800_000, state="blocked") for n in range(1, 60)]
    assert wanted(demands(*before, *dark), 67) == wanted(demands(*before), 8)
    waiting = [replace(one, backlogged_bytes=1) for one in dark]
    assert wanted(demands(*before, *waiting), 67) is None


def test_after_a_blockage_the_rate_is_measured_anew() -> None:
    before = steady(8)
    dark = [state(8 + n, 800_000, state="blocked") for n in range(1, 60)]
    again = [state(68 + n, 800_000 + n * 100_000) for n in range(3)]
    assert wanted(demands(*before, *dark, *again), 70) == wanted(demands(*before), 8)


def test_who_is_away_wants_enough_to_say_that_it_is_back() -> None:
    greedy = demands(*steady(8, backlogged_bytes=10**6))
    assert wanted(greedy, 300) is None
    assert wanted(greedy, 309) == FLOOR_BPS
    greedy.take(NODE, Link.RETURN, state(400, 900_000, 10**6))
    assert wanted(greedy, 400) is None


def test_who_is_idle_can_still_report() -> None:
    assert wanted(demands(*(state(n, 1_000) for n in range(8))), 8) == FLOOR_BPS


def test_reports_that_come_in_bursts_are_no_demand_and_a_slow_stream_is() -> None:
    def among_many(*states: LinkState) -> int | None:
        terminals = range(NODE, NODE + 1_000)
        made = demands(*states).of_link(Link.RETURN, terminals, CAPACITY_BPS, START_MS + 10_000)
        return made[NODE].demand_bps

    floor_bps = CAPACITY_BPS // 16 // 1_000
    # Of the last plan's news and each ten seconds' own: 2,500 bytes within four seconds.
    assert among_many(state(0, 0), state(2, 1_000), state(4, 2_500)) == floor_bps
    rate = among_many(*steady(8, 1_000))
    assert rate is not None
    assert rate >= 1.25 * 8_000


def test_a_node_started_anew_counts_from_nothing() -> None:
    again = [state(n, n * 100_000, incarnation=2, time_ms=START_MS + 9_000) for n in range(1, 9)]
    rate = wanted(demands(*steady(8, 1_000_000), *again), 12)
    assert rate is not None
    assert rate < 1_200_000


@given(st.permutations(steady(6, backlogged_bytes=0)))
def test_late_reports_change_nothing(shuffled: list[LinkState]) -> None:
    made = demands(*shuffled)
    rate = wanted(made, 6)
    newest = shuffled.index(max(shuffled, key=lambda one: one.uptime_ms))
    assert wanted(demands(*shuffled[: newest + 1]), 6) == rate


@given(st.integers(0, 10**9))
def test_demand_is_never_less_than_the_headroom(rate_bytes: int) -> None:
    rate = wanted(demands(*steady(6, rate_bytes)), 6)
    assert rate is not None
    assert 10 * rate_bytes <= max(rate, FLOOR_BPS) <= max(12 * rate_bytes, FLOOR_BPS)


def test_efficiency_is_the_newest_reports() -> None:
    told = [state(n, 0, efficiency=e, efficiency_told=True) for n, e in ((1, 2.5), (2, 1.3))]
    made = demands(*told)
    assert made.efficiency(NODE, Link.RETURN) == Fraction(13, 10)
    made.forget(NODE)
    assert made.efficiency(NODE, Link.RETURN) == 1


def test_all_floors_together_leave_the_beam_to_those_who_use_it() -> None:
    made = demands(state(1, 1_000), state(2, 1_000))
    for count in (2, 20, 200, 10_000):
        found = made.of_link(Link.RETURN, range(NODE, NODE + count), CAPACITY_BPS, START_MS)
        wanted_bps = [one.demand_bps for one in found.values()]
        assert min(bps or 0 for bps in wanted_bps) > 0
        assert sum(bps or 0 for bps in wanted_bps) <= CAPACITY_BPS / 16


def test_the_floor_is_one_of_capacity_whatever_the_modcod() -> None:
    told = [state(n, 0, efficiency=0.5, efficiency_told=True) for n in (1, 2)]
    made = demands(*told)
    found = made.of_link(Link.RETURN, range(NODE, NODE + 100), CAPACITY_BPS, START_MS)
    assert (found[NODE].demand_bps, found[NODE + 1].demand_bps) == (3_125, 6_250)


def test_who_is_not_heard_wants_the_floor_where_others_are() -> None:
    made = demands(state(1, 1_000))
    found = made.of_link(Link.RETURN, [NODE, NODE + 1], CAPACITY_BPS, START_MS)
    assert found[NODE + 1].demand_bps == FLOOR_BPS
    assert made.of_link(Link.FORWARD, [NODE], CAPACITY_BPS, START_MS)[NODE].demand_bps is None


def test_reports_that_come_each_ten_seconds_tell_a_rate_too() -> None:
    rate = wanted(demands(*(state(10 * n, 100_000 * n) for n in range(1, 5))), 45)
    assert rate is not None
    assert 1.25 * 80_000 <= rate <= 1.25 * 80_000 * 1.125


def test_a_report_that_waits_on_a_slow_link_is_no_backlog() -> None:
    slow = [state(10 * n, 1_000 * n, 600, rate_bps=3_000) for n in range(1, 5)]
    assert wanted(demands(*slow), 40) == FLOOR_BPS
    more = state(40.2, 4_000, 2_000, rate_bps=3_000)
    assert wanted(demands(*slow, more), 41) is None
