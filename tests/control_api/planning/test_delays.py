from __future__ import annotations

from underpass_control.planning.delays import DEFAULT_MS, Delays

from dama.planner import Link

HUB, TERMINALS = 1, (10, 11, 12, 13)


def test_a_plan_starts_as_far_ahead_as_those_who_follow_have_needed() -> None:
    delays = Delays()
    delays.one_way_ms = 250
    assert delays.of(Link.FORWARD) == DEFAULT_MS
    assert delays.of(Link.RETURN) == DEFAULT_MS + 250
    for _ in range(10):
        delays.acknowledged(Link.FORWARD, HUB, 30, by_terminal=False)
        for terminal in TERMINALS:
            delays.acknowledged(Link.RETURN, terminal, 340, by_terminal=True)
            # Who does not send on a link says nothing of it.
            delays.acknowledged(Link.FORWARD, terminal, 2_000, by_terminal=True)
    assert 30 <= delays.of(Link.FORWARD) < 100
    assert 340 <= delays.of(Link.RETURN) < 400


def test_the_first_plan_of_a_node_tells_nothing_of_the_way() -> None:
    delays = Delays()
    for terminal in TERMINALS:
        delays.acknowledged(Link.RETURN, terminal, 2_000, by_terminal=True)
    for _ in range(3):
        for terminal in TERMINALS:
            delays.acknowledged(Link.RETURN, terminal, 340, by_terminal=True)
    assert delays.of(Link.RETURN) < 400
