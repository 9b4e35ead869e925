"""Boxes on both sides of the 180th meridian."""

from __future__ import annotations

import pytest

from dama.prediction.boxes import boxes_of


@pytest.mark.parametrize(
    ("lons", "spans"),
    [
        ([10.0, 20.0], [(10.0, 20.0)]),
        ([-90.0, 90.0], [(-90.0, 90.0)]),
        ([179.5, -179.5], [(-180.0, -179.5), (179.5, 180.0)]),
        ([179.5, 180.0], [(179.5, 180.0)]),
        ([179.5, -180.0], [(-180.0, -180.0), (179.5, 180.0)]),
        ([-120.0, 0.0, 120.0], [(-180.0, 180.0)]),
        ([-180.0, -90.0, 0.0, 90.0], [(-180.0, 180.0)]),
    ],
)
def test_across_the_180th_meridian_are_two_boxes_and_around_a_pole_is_one(
    lons: list[float], spans: list[tuple[float, float]]
) -> None:
    boxes = boxes_of([(lon, 89.0) for lon in lons])
    assert list(boxes) == [(west, 89.0, east, 89.0) for west, east in spans]
