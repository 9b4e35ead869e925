"""The local plane against the ellipsoid, and courses."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyproj import Geod

from dama.prediction.places import Course, Plane, distance_m, heading_deg, turn_deg
from tests.dama.prediction.test_laws import line

GEOD = Geod(ellps="WGS84")


@given(
    st.floats(-180.0, 180.0), st.floats(-75.0, 75.0), st.floats(0.0, 359.0), st.floats(1.0, 10e3)
)
def test_distances_are_the_ellipsoids_within_a_part_in_500(
    lon: float, lat: float, azimuth: float, away_m: float
) -> None:
    there_lon, there_lat, _ = GEOD.fwd(lon, lat, azimuth, away_m)
    there = (there_lon, there_lat)
    assert distance_m((lon, lat), there) == pytest.approx(away_m, rel=2e-3)
    assert turn_deg(heading_deg((lon, lat), there), azimuth) < 0.3


@given(st.floats(-180.0, 180.0), st.floats(-85.0, 85.0), st.floats(-1e4, 1e4), st.floats(-1e4, 1e4))
def test_a_place_in_the_plane_comes_back(lon: float, lat: float, x: float, y: float) -> None:
    plane = Plane((lon, lat))
    back_x, back_y = plane.xy(plane.position(x, y))
    assert math.hypot(back_x - x, back_y - y) < 1e-3


def test_a_foot_is_the_nearest_place_and_knows_the_direction() -> None:
    course = Course(line((0, 0), (100, 0), (100, 50)))
    assert course.length_m == pytest.approx(150.0, rel=1e-4)
    foot = course.foot(line((104, 30))[0], 0, 2)
    assert foot.offset_m == pytest.approx(130.0, abs=0.1)
    assert foot.lateral_m == pytest.approx(4.0, abs=0.01)
    assert foot.heading_deg == pytest.approx(0.0, abs=0.01)
    place, heading = course.at(130.0)
    assert distance_m(place, line((100, 30))[0]) < 0.1
    assert heading == foot.heading_deg


@given(st.floats(0.0, 360.0), st.floats(0.0, 360.0))
def test_a_turn_is_the_smaller_angle(one: float, other: float) -> None:
    assert 0.0 <= turn_deg(one, other) <= 180.0
    assert turn_deg(one, other) == pytest.approx(turn_deg(other, one), abs=1e-9)
