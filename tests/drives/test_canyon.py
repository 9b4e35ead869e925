"""The street canyon, and lending by the shadows that its houses cast."""

from __future__ import annotations

from itertools import pairwise
from statistics import fmean

import pytest

from dama.prediction import ObstructionMap
from dama.prediction.places import distance_m
from tests.drives.canyon import BEGIN_M, NOISE_M, PLANE, Canyon, canyon, drive_through
from tests.drives.lending import Knows, lend


@pytest.fixture(scope="module")
def street() -> Canyon:
    return canyon(1)


def test_high_houses_hide_the_satellite_and_low_ones_and_gaps_do_not(street: Canyon) -> None:
    assert len(street.houses) > 20
    for house in street.houses:
        middle_m = (house.west_m + house.east_m) / 2
        assert street.is_hidden(middle_m) == (house.top_m > 9.0)
    # The satellite is nearly in the south.
    for before, after in pairwise(street.houses):
        if after.west_m - before.east_m > 10.0:
            assert not street.is_hidden((before.east_m + after.west_m) / 2)


def test_the_map_has_shadows_where_the_satellite_is_hidden(street: Canyon) -> None:
    shadows = [one for one in street.obstructions if one.kind == "shadow"]
    assert {one.satellite for one in shadows} == {"astra"}
    told: set[int] = set()
    for shadow in shadows:
        for road in shadow.covered:
            ends = [PLANE.xy(place) for place in (road.line[0], road.line[-1])]
            # Eastwards on the street itself.
            if ends[0][0] < ends[1][0] and abs(ends[1][1]) < 1.0:
                told |= set(range(round(ends[0][0]), round(ends[1][0])))
    hidden = {int(BEGIN_M) + n // 2 for n, is_hidden in enumerate(street.hidden) if is_hidden}
    assert len(told & hidden) > 0.8 * len(hidden)
    assert len(told - hidden) < 0.2 * len(told)


def test_a_drive_has_short_blockages_and_fixes_that_err_by_3_m(street: Canyon) -> None:
    made = drive_through(street, 1)
    assert made == drive_through(street, 1)
    assert made != drive_through(street, 2)
    assert len(made.covered) > 15
    for before, after in pairwise(made.covered):
        assert before.entry_ms < before.exit_ms < after.entry_ms
    lengths_s = [(one.exit_ms - one.entry_ms) / 1000 for one in made.covered]
    assert 1.0 < fmean(lengths_s) < 10.0
    assert [after.time_ms - before.time_ms for before, after in pairwise(made.fixes)] == [1000] * (
        len(made.fixes) - 1
    )
    # The error across the street, whose lane is 1.6 m south of its middle.
    many = [fix for seed in range(20) for fix in drive_through(street, seed).fixes]
    across = [PLANE.xy(fix.place)[1] + 1.6 for fix in many]
    assert fmean(y * y for y in across) ** 0.5 == pytest.approx(NOISE_M, rel=0.25)
    assert distance_m(made.fixes[0].place, made.fixes[-1].place) > 3_000.0


def test_a_vehicle_in_a_canyon_gets_more_by_what_is_foreseen_than_by_what_is_sensed(
    street: Canyon,
) -> None:
    made = drive_through(street, 1)
    foreseen = lend(ObstructionMap(street.obstructions), made, Knows.PREDICTIONS)
    sensed = lend(ObstructionMap([]), made, Knows.PREDICTIONS)
    assert foreseen.vehicle_bits > sensed.vehicle_bits
    assert foreseen.debt_bits <= 4
