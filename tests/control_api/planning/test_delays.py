from __future__ import annotations

from underpass_control.planning.delays import DEFAULT_MS, Delays
from underpass_control.settlement.evidence import _MAY_BEGIN_MS

from dama.planner import Link

HUB, TERMINALS = 1, (10, 11, 12, 13)


def test_a_plan_starts_as_far_ahead_as_those_who_follow_have_needed() -> None:
    delays = Delays()
    delays.one_way_ms = 250
    assert delays.of(Link.FORWARD) == DEFAULT_MS
    assert delays.of(Link.RETURN) == DEFAULT_MS + 250
    for version in range(10):
        for link in Link:
            delays.made(link, version, 0)
        delays.acknowledged(Link.FORWARD, HUB, version, 30, by_terminal=False)
        for terminal in TERMINALS:
            delays.acknowledged(Link.RETURN, terminal, version, 340, by_terminal=True)
            # Acknowledgements of a node that does not send on a link do not count for it.
            delays.acknowledged(Link.FORWARD, terminal, version, 2_000, by_terminal=True)
    assert 30 <= delays.of(Link.FORWARD) < 100
    assert 340 <= delays.of(Link.RETURN) < 400


def test_the_first_plan_of_a_node_tells_nothing_of_the_way() -> None:
    delays = Delays()
    delays.made(Link.RETURN, 1, 0)
    for terminal in TERMINALS:
        delays.acknowledged(Link.RETURN, terminal, 1, 2_000, by_terminal=True)
    for _ in range(3):
        for terminal in TERMINALS:
            delays.acknowledged(Link.RETURN, terminal, 1, 340, by_terminal=True)
    assert delays.of(Link.RETURN) < 400


def test_a_plan_that_takes_long_to_make_starts_when_it_can_have_arrived() -> None:
    delays = Delays()
    delays.made(Link.FORWARD, 1, 6_000)
    # This holds even before anything is known of the way.
    assert delays.of(Link.FORWARD) == DEFAULT_MS + 6_000
    for version in range(2, 12):
        delays.made(Link.FORWARD, version, 6_000)
        # That is later than the bound for lateness on the way.
        delays.acknowledged(Link.FORWARD, HUB, version, 6_030, by_terminal=False)
    assert 6_030 <= delays.of(Link.FORWARD) < 6_100
    assert delays.of(Link.RETURN) == DEFAULT_MS


def test_quick_plans_after_slow_ones_soon_start_soon() -> None:
    delays = Delays()
    for version, making_ms in enumerate((6_000, 6_000, 40, 50, 40)):
        delays.made(Link.FORWARD, version, making_ms)
    assert delays.of(Link.FORWARD) == DEFAULT_MS + 50


def test_no_plan_starts_later_than_settlement_expects() -> None:
    delays = Delays()
    for version in range(10):
        delays.made(Link.FORWARD, version, 60_000)
        delays.acknowledged(Link.FORWARD, HUB, version, 64_900, by_terminal=False)
    assert delays.of(Link.FORWARD) == _MAY_BEGIN_MS


def test_plans_of_another_process_say_nothing_of_the_way() -> None:
    delays = Delays()
    delays.made(Link.FORWARD, 100, 0)
    for version in range(80, 101):
        delays.acknowledged(Link.FORWARD, HUB, version, 4_000, by_terminal=False)
    assert delays.of(Link.FORWARD) == DEFAULT_MS


def test_a_plan_that_would_arrive_late_starts_later_by_so_much() -> None:
    delays = Delays()
    start_ms = 1_000_000
    assert delays.late_ms(Link.FORWARD, start_ms, start_ms - DEFAULT_MS) == 0
    assert delays.late_ms(Link.FORWARD, start_ms, start_ms + 5_000) == 5_000 + DEFAULT_MS
    delays.one_way_ms = 250
    late_ms = delays.late_ms(Link.RETURN, start_ms, start_ms + 5_000)
    assert late_ms == 5_000 + DEFAULT_MS + 250
    # A delay that affects no node causes no work.
    assert delays.late_ms(Link.FORWARD, start_ms, start_ms - DEFAULT_MS + 50) == 0


def test_no_plan_has_its_start_behind_it() -> None:
    delays = Delays()
    for version in range(10):
        delays.made(Link.FORWARD, version, 0)
        delays.acknowledged(Link.FORWARD, HUB, version, 1, by_terminal=False)
    # The way is so short that the plan would be only slightly late.
    assert delays.late_ms(Link.FORWARD, 1_000, 999) == 0
    assert delays.late_ms(Link.FORWARD, 1_000, 1_000) > 0


def test_plans_that_take_longer_than_ten_seconds_start_once_they_have_arrived() -> None:
    delays = Delays()
    delays.made(Link.FORWARD, 1, 15_000)
    assert delays.of(Link.FORWARD) == 15_000 + DEFAULT_MS
