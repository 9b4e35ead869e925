"""Plans, links and measurements together: plans follow fades, but not their own effects."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from underpass_control.fades import BELIEVED_AFTER_MS, LEAST_EFFICIENCY, MOST_PAUSE_MS
from underpass_control.planning.beam_planner import Reason
from underpass_control.storage.links import LinkState

from dama.formulas import jain_index
from dama.planner import FairShare
from dama.prediction import Blockage
from tests.control_api.fades.loop import (
    BEAM_BPS,
    STEP_MS,
    Carries,
    Loop,
    faded,
    senders,
)
from tests.control_api.planning.beam import in_force

COUNT = 8
# From a fade's beginning until plans take it into account.
_FOUND_MS = BELIEVED_AFTER_MS + 3_000
FAIR_BPS = BEAM_BPS // COUNT
IN_FADE = (7, 8)
# A road tunnel of the first terminal, foreseen at the second time.
ENTRY_MS, EXIT_MS, FORESEEN_MS = 180_000, 240_000, 90_000


def efficiency(loop: Loop, node: int, at_ms: int) -> Fraction:
    return loop.efficiencies[node][at_ms // STEP_MS]


def rates(loop: Loop, node: int) -> list[Fraction]:
    """Return a terminal's fair rate by each plan, in bit/s of capacity."""
    found = []
    for made, _ in loop.plans:
        _, fair_bits = made.line(str(node)).amounts(made.start_ms, made.end_ms)
        found.append(Fraction(1000 * fair_bits, made.end_ms - made.start_ms))
    return found


@pytest.mark.parametrize("fair_share", FairShare)
def test_a_fade_is_followed_within_seconds_stays_found_and_ends(fair_share: FairShare) -> None:
    begins_ms, ends_ms = 30_000, 330_000
    loop = Loop(senders(COUNT, {1: faded(0.25, begins_ms, ends_ms)}), fair_share)
    loop.run(480_000)
    assert efficiency(loop, 1, begins_ms + _FOUND_MS) == pytest.approx(0.25, rel=0.1)
    lasting = loop.efficiencies[1][(begins_ms + _FOUND_MS) // STEP_MS : ends_ms // STEP_MS]
    # Apart from noise, never below what the fade leaves; at times above it for a step.
    assert min(lasting) >= 0.25 * 0.95
    assert max(lasting) <= 0.25 * 1.25 * 1.1
    assert sum(map(float, lasting)) / len(lasting) < 0.25 * 1.1
    # One plan for each step up and one for its end: no plan causes another.
    assert len(loop.plans) < 20
    assert {reason for _, reason in loop.plans} <= {
        Reason.FIRST,
        Reason.EFFICIENCY,
        Reason.DEMAND,
        Reason.HORIZON,
    }
    clear_ms = ends_ms + MOST_PAUSE_MS + 40_000
    assert efficiency(loop, 1, clear_ms) == 1
    assert all(one == 1 for node in range(2, COUNT + 1) for one in loop.efficiencies[node])
    assert loop.ledger.balances() == {}


def test_a_fade_of_half_a_decibel_a_second_is_followed_down_and_up() -> None:
    def carries(now_ms: int, capacity_bps: float) -> float:
        second = now_ms / 1000
        depth_db = max(0.0, min(9.0, (second - 30) / 2, (150 - second) / 2))
        return float(capacity_bps * 10 ** (-depth_db / 10))

    loop = Loop(senders(COUNT, {1: carries}))
    loop.run(260_000)
    # The best value of a window counts, so a deeper fade shows once better values have left it.
    deepest_ms = 48_000
    found_ms = deepest_ms + BELIEVED_AFTER_MS + 4_000
    assert efficiency(loop, 1, found_ms) == pytest.approx(10**-0.9, rel=0.2)
    for at_ms in range(60_000, 260_000, STEP_MS):
        assert efficiency(loop, 1, at_ms) >= 10**-0.9 * 0.9, at_ms
    assert efficiency(loop, 1, 230_000) == 1


def test_by_symbols_a_fade_costs_the_others_nothing() -> None:
    loop = Loop(senders(COUNT, {node: faded(0.25, 30_000) for node in IN_FADE}))
    loop.run(300_000)
    for node in range(1, COUNT + 1):
        assert set(rates(loop, node)) == {FAIR_BPS}
    for node in IN_FADE:
        assert loop.bits_of(node, 60_000, 300_000) == pytest.approx(0.25 * FAIR_BPS * 240, rel=0.03)


def test_by_bits_all_bear_a_fade_alike() -> None:
    loop = Loop(senders(COUNT, {node: faded(0.25, 30_000) for node in IN_FADE}), FairShare.BITS)
    loop.run(300_000)
    # Six, and two that take four times the capacity.
    level_bps = BEAM_BPS / (6 + 2 * 4)
    for node in range(1, COUNT + 1):
        assert loop.bits_of(node, 90_000, 300_000) == pytest.approx(level_bps * 210, rel=0.05)


def test_by_bits_what_more_capacity_does_not_help_is_not_given_ever_more() -> None:
    def behind_a_slow_line(_now_ms: int, capacity_bps: float) -> float:
        return min(capacity_bps, FAIR_BPS / 4)

    loop = Loop(senders(COUNT, {1: behind_a_slow_line}), FairShare.BITS)
    loop.run(600_000)
    assert min(loop.efficiencies[1]) >= 0.25 * 0.9
    for node in range(2, COUNT + 1):
        assert min(rates(loop, node)) >= BEAM_BPS / (7 + 4) * 0.9


def test_a_link_at_its_plan_is_in_no_fade_whatever_the_plans_do() -> None:
    # Blockages come and go, so that plans give more and less all the time.
    def says(now_ms: int) -> dict[int, tuple[Blockage, ...]]:
        node, turn = now_ms // 60_000 % COUNT + 1, now_ms // 60_000 * 60_000
        return {node: (Blockage("t", turn + 30_000, turn + 50_000, 0.9, turn),)}

    def inside(node: int, now_ms: int) -> bool:
        return node == now_ms // 60_000 % COUNT + 1 and 30_000 <= now_ms % 60_000 < 50_000

    links: dict[int, Carries] = {
        # Their senders know a capacity, limited by an earlier plan.
        2: lambda _, capacity_bps: capacity_bps * 1.01,
    }
    loop = Loop(senders(COUNT, links), says=says, inside=inside)
    for sender in loop.senders.values():
        sender.found_bps, sender.reason = 200_000.0, "limit"
    loop.run(900_000)
    # Probes raise the senders' initial capacity before it counts.
    for node, course in loop.efficiencies.items():
        assert min(course) == 1, node


@pytest.mark.parametrize("fair_share", FairShare)
def test_a_terminal_that_lies_harms_itself(fair_share: FairShare) -> None:
    noise = random.Random(3)

    def lie(state: LinkState) -> LinkState:
        return replace(
            state,
            capacity_bps=noise.choice([1, 10**12, 10**6, None, 50_000]),
            capacity_reason=noise.choice(["limit", "limit", "probe", "hint", "nonsense"]),
            backlogged_bytes=noise.choice([0, 10**15]),
            sent_bytes=noise.choice([0, state.sent_bytes, 2**62]),
            plan=noise.choice([None, 1, state.plan, state.plan, 10**9]),
        )

    def claim_nothing(state: LinkState) -> LinkState:
        return replace(state, capacity_bps=1, capacity_reason="limit", sent_bytes=0)

    loop = Loop(senders(COUNT), fair_share, lies={1: lie, 2: claim_nothing})
    loop.run(200_000)
    assert all(one == 1 for node in range(3, COUNT + 1) for one in loop.efficiencies[node])
    for node in (1, 2):
        assert all(LEAST_EFFICIENCY * Fraction(99, 100) <= e <= 1 for e in loop.efficiencies[node])
    assert min(loop.efficiencies[2]) < Fraction(1, 10)
    for node in range(3, COUNT + 1):
        least_bps = min(rates(loop, node))
        if fair_share is FairShare.SYMBOLS:
            assert least_bps == pytest.approx(FAIR_BPS, rel=0.001)
        else:
            # By bits, a terminal's own report counts, up to the greatest cost of a fade.
            assert least_bps >= BEAM_BPS / (6 + 2 / float(LEAST_EFFICIENCY)) * 0.98
    for made, _ in loop.plans:
        given = made.amounts(made.start_ms, made.end_ms)
        whole = sum(bits for bits, _ in given.values())
        assert whole <= BEAM_BPS * (made.end_ms - made.start_ms) // 1000


def says_tunnel(now_ms: int) -> dict[int, tuple[Blockage, ...]]:
    if not FORESEEN_MS <= now_ms < EXIT_MS:
        return {}
    return {1: (Blockage("tunnel", ENTRY_MS, EXIT_MS, 1.0, now_ms),)}


def in_tunnel(node: int, now_ms: int) -> bool:
    return node == 1 and ENTRY_MS <= now_ms < EXIT_MS


def eight_with_a_tunnel(fair_share: FairShare, used_part: float, *, fades: bool) -> Loop:
    links = {node: faded(0.25, 30_000) for node in IN_FADE} if fades else {}
    loop = Loop(senders(COUNT, links), fair_share, says_tunnel, in_tunnel)
    for sender in loop.senders.values():
        sender.used_part = used_part
    loop.run(420_000)
    return loop


@pytest.mark.parametrize(("used_part", "apart"), [(1.0, 1e-6), (0.985, 2e-3)])
def test_eight_terminals_two_in_a_fade_one_borrows_and_repays_by_symbols(
    used_part: float, apart: float
) -> None:
    clear = eight_with_a_tunnel(FairShare.SYMBOLS, used_part, fades=False)
    loop = eight_with_a_tunnel(FairShare.SYMBOLS, used_part, fades=True)
    others = [node for node in range(1, COUNT + 1) if node not in IN_FADE]
    for node in others:
        # The same as without any fade.
        assert loop.bits_of(node) == pytest.approx(clear.bits_of(node), rel=apart)
        assert loop.efficiencies[node] == clear.efficiencies[node]
        assert set(rates(loop, node)) == {FAIR_BPS}
    for equals in (others, IN_FADE):
        assert jain_index([round(loop.bits_of(node)) for node in equals]) >= 0.999
    lent, borrowed = lent_and_borrowed(loop)
    # The unused part of a loan is lent again.
    unused = 1 - used_part
    owed_bits = FAIR_BPS * (EXIT_MS - ENTRY_MS) // 1000
    assert borrowed == pytest.approx(owed_bits, rel=2 * unused + apart)
    # Those in a fade lend the same capacity as the others.
    assert max(lent.values()) - min(lent.values()) <= COUNT + unused * borrowed
    # Everything is repaid, except for rounding and unused capacity in the last periods.
    assert sum(loop.ledger.balances().values()) == 0
    assert all(abs(bits) <= COUNT + unused * FAIR_BPS for bits in loop.ledger.balances().values())


def test_eight_terminals_two_in_a_fade_one_borrows_and_repays_by_bits() -> None:
    loop = eight_with_a_tunnel(FairShare.BITS, 1.0, fades=True)
    others = [node for node in range(1, COUNT + 1) if node not in IN_FADE]
    level_bps = BEAM_BPS / (len(others) + len(IN_FADE) * 4)
    for node in range(1, COUNT + 1):
        assert loop.bits_of(node, 60_000) == pytest.approx(level_bps * 360, rel=0.05)
    assert jain_index([round(loop.bits_of(node)) for node in others]) >= 0.999
    assert jain_index([round(loop.bits_of(node, 60_000)) for node in loop.senders]) >= 0.999
    lent, borrowed = lent_and_borrowed(loop)
    # Capacity is lent: those in a fade have four times as much, and lend four times as much.
    assert sum(lent.values()) == pytest.approx(borrowed, abs=COUNT)
    assert lent[7] / lent[2] == pytest.approx(4, rel=0.1)
    assert sum(loop.ledger.balances().values()) == 0
    assert all(abs(bits) <= borrowed / 500 for bits in loop.ledger.balances().values())


def lent_and_borrowed(loop: Loop) -> tuple[dict[int, int], int]:
    """Return what each lent and the first borrowed before the tunnel, by the plans in force."""
    moved = dict.fromkeys(range(1, COUNT + 1), 0)
    for begin_ms in range(FORESEEN_MS, ENTRY_MS, STEP_MS):
        for piece in in_force(loop.plans, begin_ms, begin_ms + STEP_MS):
            for name, (given, fair) in piece.plan.amounts(piece.from_ms, piece.to_ms).items():
                moved[int(name)] += given - fair
    return {node: -bits for node, bits in moved.items() if node != 1}, moved[1]
