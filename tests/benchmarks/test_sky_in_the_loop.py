from __future__ import annotations

import pytest

from tests.benchmarks.experiments.sky_in_the_loop import measured
from tests.benchmarks.figures import FIGURES
from tests.drives.lending import Lent


def drives(*bits: tuple[int, int]) -> list[Lent]:
    return [Lent(vehicle, others, 1, 12) for vehicle, others in bits]


def test_a_gain_is_a_part_of_that_by_known_times_over_all_drives() -> None:
    found = measured(
        drives((150, 300), (90, 330)),
        drives((100, 300), (100, 300)),
        drives((180, 310), (120, 310)),
    )
    assert found["gain"] == [pytest.approx(40.0)]
    assert found["gain-of-all"] == [pytest.approx(100.0 * 70 / 120)]
    assert found["goodput-each"] == [pytest.approx(150.0), pytest.approx(90.0)]
    assert (found["debts"], found["plans"]) == ([1.0, 1.0], [12.0, 12.0])


def test_one_drive_below_what_is_sensed_misses_the_target() -> None:
    figure = FIGURES["sky-in-the-loop.goodput-each"]
    assert figure.meets(101.0, 100.0, [100.0, 101.0, 102.0])
    assert not figure.meets(101.0, 100.0, [99.0, 101.0, 102.0])


def test_where_known_times_gain_nothing_the_gain_is_none_and_misses_the_target() -> None:
    # By known times the vehicle loses, and all together neither gain nor lose.
    found = measured(drives((150, 300)), drives((100, 300)), drives((90, 310)))
    assert (found["gain"], found["gain-of-all"]) == ([0.0], [0.0])
    assert not FIGURES["sky-in-the-loop.gain"].meets(0.0, 0.0, [0.0])
