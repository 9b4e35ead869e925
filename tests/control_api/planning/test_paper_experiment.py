"""The paper's experiment with predictions that change each time."""

from __future__ import annotations

from collections import Counter
from fractions import Fraction

import pytest
from underpass_control.planning.beam_planner import Reason

from tests.control_api.planning.beam import BEAM_BPS, Beam, Tunnel, jittering

PAPER = Tunnel(entry_ms=180_000, exit_ms=240_000, foreseen_ms=60_000)


def run(sessions: int, by_ms: int, seed: int = 1, end_ms: int = 300_000) -> Beam:
    beam = Beam(sessions, PAPER, jittering(PAPER, by_ms, seed))
    beam.run(end_ms)
    return beam


@pytest.mark.parametrize("sessions", [2, 4, 8])
def test_predictions_that_jitter_by_a_second_leave_the_beam_fair(sessions: int) -> None:
    beam = run(sessions, 1_000)
    assert beam.jain >= Fraction(9999, 10_000)
    assert sum(beam.sent.values()) == BEAM_BPS * 300
    assert sum(beam.ledger.balances().values()) == 0


def test_a_plan_is_not_made_anew_for_each_prediction() -> None:
    made = Counter(reason for _, reason in run(4, 1_000).plans)
    assert made[Reason.MOVED] <= 8
    assert made.total() <= 16


def test_exact_predictions_need_no_further_plan_but_for_the_horizon() -> None:
    beam = run(4, 0)
    made = Counter(reason for _, reason in beam.plans)
    assert made[Reason.MOVED] == made[Reason.BALANCES] == 0
    assert beam.jain >= 1 - Fraction(1, 10**6)
    assert all(abs(bits) < 1_000_000 for bits in beam.ledger.balances().values())


def test_the_plan_in_force_always_outlasts_a_minute_without_control() -> None:
    beam = run(4, 1_000, end_ms=600_000)
    starts = [made.start_ms for made, _ in beam.plans] + [600_000]
    for (made, _), replaced_ms in zip(beam.plans, starts[1:], strict=True):
        assert made.end_ms - replaced_ms >= 60_000
