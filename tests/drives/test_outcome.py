"""What is said of told blockages, where what came of them is known."""

from __future__ import annotations

import random

import pytest

from tests.drives.road_ahead import Outcome, Told


def test_reliability_is_by_tenths_of_confidence() -> None:
    told = [Told(0.94, came=True, chance=0.8), Told(0.96, came=False, chance=0.9)]
    outcome = Outcome(told=told, told_early=[Told(0.3, came=True, chance=0.25)])
    low, high = outcome.reliability()
    assert tuple(low) == (0.3, 1.0, 0.25, 1)
    assert tuple(high) == pytest.approx((0.95, 0.5, 0.85, 2))
    assert outcome.unreliability() == pytest.approx((0.7 + 2 * 0.45) / 3)
    assert outcome.miscalibration() == pytest.approx((0.05 + 2 * 0.1) / 3)


@pytest.mark.parametrize("confidence", [0.35, 0.95])
def test_what_chance_makes_of_few_blockages_is_what_it_is_on_average(confidence: float) -> None:
    dice = random.Random(1)
    outcomes = [
        Outcome(told=[Told(confidence, dice.random() < confidence, confidence) for _ in range(30)])
        for _ in range(400)
    ]
    mean = sum(outcome.unreliability() for outcome in outcomes) / len(outcomes)
    assert outcomes[0].unreliability_by_chance() == pytest.approx(mean, rel=0.15)
    assert outcomes[0].miscalibration() == pytest.approx(0.0)
