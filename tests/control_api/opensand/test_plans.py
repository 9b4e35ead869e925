"""A plan of the return link, and the requests to the NCC that follow from it."""

from __future__ import annotations

from underpass_control.opensand.allocation import Allocation
from underpass_control.opensand.plans import version_of

from dama.planner import Blockage, CapacityStep, Link, Request, Terminal, plan

T = 1_900_000_000_000
WAY_MS = 300
CAPACITY_BPS = 2_000_000


def test_a_blockage_is_lent_for_and_repaid_at_the_ncc_a_way_ahead_of_the_terminals() -> None:
    nodes = (10, 11, 12, 13)
    made = plan(
        Request(
            beam="east",
            link=Link.RETURN,
            now_ms=T,
            end_ms=T + 120_000,
            capacity=(CapacityStep(0, CAPACITY_BPS),),
            terminals=tuple(Terminal(str(node)) for node in nodes),
            blockages=(Blockage("10", T + 40_000, T + 60_000),),
        )
    )
    allocation = Allocation()
    st_ids = {node: node + 100 for node in nodes}
    allocation.follow(version_of(made, 1, st_ids, WAY_MS))
    at_ms, rates, changes = T - WAY_MS, {}, {}
    while at_ms < T + 100_000:
        for one in allocation.poll(at_ms):
            rates[one.st_id] = one.cra_kbps
        changes[at_ms - T] = (rates[110], rates[111])
        # The sum is below the capacity at any time; the blocked terminal has its least rate.
        assert sum(rates.values()) <= CAPACITY_BPS // 1000 + 1
        at_ms = allocation.next_ms(at_ms)
    # T_r = 40 s, T_t = 20 s: three lend 500 · 20 / (40 · 3) kbit/s each, and are repaid 500 / 3.
    assert changes[-WAY_MS] == (750, 416)
    assert changes[40_000 - WAY_MS] == (1, 666)
    assert changes[60_000 - WAY_MS] == (500, 500)


def test_terminals_that_are_none_of_the_nccs_are_left_out() -> None:
    made = plan(
        Request(
            beam="east",
            link=Link.RETURN,
            now_ms=T,
            end_ms=T + 10_000,
            capacity=(CapacityStep(0, CAPACITY_BPS),),
            terminals=(Terminal("10"), Terminal("11", minimum_bps=64_000)),
        )
    )
    version = version_of(made, 7, {11: 3}, 0)
    assert version.profiles.keys() == {3}
    assert version.profiles[3].guaranteed_bps == 64_000
