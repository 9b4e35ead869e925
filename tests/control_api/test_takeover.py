"""How predictions take over reported positions."""

from __future__ import annotations

import pytest
from underpass_control.storage.positions import Position
from underpass_control.takeover import fix_of


def position(speed_mps: float | None) -> Position:
    return Position(
        terminal=10,
        time_ms=1_900_000_000_000,
        longitude=7.0,
        latitude=46.0,
        speed_mps=speed_mps,
        heading_deg=90.0,
        received_ms=1_900_000_000_500,
    )


@pytest.mark.parametrize("speed_mps", [150.1, 250.0, 400.0])
def test_a_speed_that_is_stored_and_no_road_vehicle_has_costs_that_alone(speed_mps: float) -> None:
    fix = fix_of(position(speed_mps))
    assert fix is not None
    assert (fix.lon, fix.lat, fix.heading_deg, fix.speed_mps) == (7.0, 46.0, 90.0, None)
    usual = fix_of(position(150.0))
    assert usual is not None
    assert usual.speed_mps == 150.0
