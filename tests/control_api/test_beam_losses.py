"""Which losses of link are of one place, and which of the whole beam."""

from __future__ import annotations

import random

import pytest
from underpass_control.prediction.beam_losses import BeamLosses

from dama.prediction.places import Position
from tests.dama.prediction.test_laws import START_MS, at

HOUR_MS = 3_600_000


def anywhere(chance: random.Random) -> Position:
    return at(chance.uniform(-50_000.0, 50_000.0), chance.uniform(-50_000.0, 50_000.0))


def fleet(vehicles: int, apart_s: float, chance: random.Random) -> tuple[BeamLosses, list[int]]:
    """Return an hour of independent losses of some vehicles, each so often; and their times."""
    losses, times = BeamLosses(), []
    now_ms = 0.0
    while now_ms < HOUR_MS:
        now_ms += 1000.0 * chance.expovariate(vehicles / apart_s)
        times.append(START_MS + round(now_ms))
        losses.add(chance.randrange(vehicles), times[-1], anywhere(chance))
    return losses, times


@pytest.mark.parametrize("vehicles", [2, 10, 100, 1_000])
def test_losses_that_coincide_by_chance_are_not_shared(vehicles: int) -> None:
    chance = random.Random(vehicles)
    losses, times = fleet(vehicles, 600.0, chance)
    late = [one for one in times if one > START_MS + HOUR_MS // 2]
    # The vehicle whose loss it is is not counted: number -1 has no other loss.
    shared = sum(losses.are_shared(-1, one + 4_000, anywhere(chance)) for one in late[:500])
    assert shared <= 0.15 * len(late[:500]) + 1


@pytest.mark.parametrize("restarted", [50, 1_000])
def test_all_losses_of_an_outage_are_shared_however_large_the_fleet(restarted: int) -> None:
    chance = random.Random(restarted)
    losses, _ = fleet(1_000, 600.0, chance)
    out_ms = START_MS + HOUR_MS
    found = []
    for vehicle in chance.sample(range(1_000), restarted):
        found.append((vehicle, out_ms + chance.randrange(3_000), anywhere(chance)))
        # Both ends of the link report it.
        losses.add(*found[-1])
        losses.add(vehicle, found[-1][1] + 200, found[-1][2])
    assert all(losses.are_shared(*one) for one in found)


def test_a_terminal_that_invents_losses_does_not_hide_an_outage() -> None:
    losses = BeamLosses()
    for at_ms in range(0, HOUR_MS, 100):
        losses.add(0, START_MS + at_ms, at(0.0))
    for vehicle in range(1, 12):
        losses.add(vehicle, START_MS + HOUR_MS, at(5_000.0 * vehicle))
    assert losses.are_shared(1, START_MS + HOUR_MS, at(5_000.0))


def test_where_a_terminal_is_unknown_its_loss_may_be_anywhere() -> None:
    losses = BeamLosses()
    losses.add(1, START_MS, at(0.0))
    assert not losses.are_shared(1, START_MS, at(0.0))
    losses.add(2, START_MS + 1_000, None)
    assert losses.are_shared(1, START_MS, at(0.0))
    assert not losses.are_shared(1, START_MS + 4_001, at(0.0))


def test_a_terminal_that_invents_losses_fills_no_memory() -> None:
    losses = BeamLosses()
    losses.add(1, START_MS, at(0.0))
    for number in range(1_000):
        losses.add(0, START_MS - 4_000 * number, at(0.0))
        losses.add(0, START_MS + 4_000 * number, at(0.0))
    assert [loss.terminal for loss in losses._losses].count(0) == 256
    # The latest ones are kept, and those of others.
    assert losses._losses[-1].time_ms == START_MS + 3_996_000
    assert losses._losses[0].terminal == 1


def test_a_loss_dated_back_does_not_make_the_time_counted_longer() -> None:
    losses = BeamLosses()
    for second in range(600):
        losses.add(second, START_MS + 1_000 * second, at(5_000.0 * (1 + second % 20)))
    late_ms = START_MS + 590_000
    # One each second: that seven coincide is what is to be expected.
    assert not losses.are_shared(-1, late_ms, at(0.0))
    losses.add(1_000, START_MS - HOUR_MS, at(0.0))
    assert not losses.are_shared(-1, late_ms, at(0.0))


def test_losses_of_hours_ago_are_not_kept_and_say_nothing() -> None:
    losses = BeamLosses()
    losses.add(1, START_MS, at(0.0))
    losses.add(2, START_MS + 2 * HOUR_MS + 1, at(0.0))
    assert [loss.terminal for loss in losses._losses] == [2]
    losses.add(3, START_MS, at(0.0))
    assert [loss.terminal for loss in losses._losses] == [2]
    # Whether others lost their links then is not known.
    assert losses.are_shared(3, START_MS, at(0.0))
    assert not losses.are_shared(2, START_MS + 2 * HOUR_MS + 1, at(0.0))
