"""Where a geostationary satellite stands, seen from the ground."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dama.sky.errors import SkyError

Floats = npt.NDArray[np.float64]

# WGS 84: semi-major axis in metres, and the square of the first eccentricity.
_A_M = 6_378_137.0
_E2 = 6.694_379_990_14e-3
# The radius of the orbit whose period is a sidereal day, in metres.
_ORBIT_M = 42_164_170.0


@dataclass(frozen=True, slots=True)
class Satellite:
    """A geostationary satellite: its name, and its longitude in degrees east (WGS 84)."""

    name: str
    longitude_deg: float

    def __post_init__(self) -> None:
        if not self.name:
            raise SkyError("a satellite needs a name")
        if not (math.isfinite(self.longitude_deg) and abs(self.longitude_deg) <= 180.0):
            raise SkyError(f"satellite {self.name}: its longitude is not in [-180, 180] degrees")


def look_angles(satellite: Satellite, lon: Floats, lat: Floats) -> tuple[Floats, Floats]:
    """Return azimuth, from true north, and elevation in degrees, from places on the ellipsoid.

    Both are those of the straight line, without refraction (0.03° at an elevation of 25°). The
    elevation is negative if the satellite is below the horizon. `lon` and `lat` are in degrees, of
    the same shape.
    """
    east, north = np.radians(satellite.longitude_deg - lon), np.radians(lat)
    sin, cos = np.sin(north), np.cos(north)
    curvature = _A_M / np.sqrt(1.0 - _E2 * sin**2)
    # In the plane of the equator, turned so that the place has the longitude 0.
    x = _ORBIT_M * np.cos(east) - curvature * cos
    y = _ORBIT_M * np.sin(east)
    z = -curvature * (1.0 - _E2) * sin
    to_north = z * cos - x * sin
    to_zenith = x * cos + z * sin
    azimuth = np.degrees(np.arctan2(y, to_north)) % 360.0
    elevation = np.degrees(np.arctan2(to_zenith, np.hypot(y, to_north)))
    return azimuth, elevation
