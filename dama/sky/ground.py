"""Places as arrays, in degrees and in metres."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dama.prediction.places import Line, is_on_earth
from dama.sky.errors import SkyError
from dama.sky.satellite import Floats

_A_M = 6_378_137.0
_E2 = 6.694_379_990_14e-3


def metres_per_degree(lat: Floats) -> tuple[Floats, Floats]:
    """Return metres to a degree of longitude and of latitude, at latitudes in degrees (WGS 84)."""
    north = np.radians(lat)
    curvature = 1.0 - _E2 * np.sin(north) ** 2
    east_m = np.radians(_A_M / np.sqrt(curvature) * np.cos(north))
    return np.maximum(east_m, 1e-3), np.radians(_A_M * (1.0 - _E2) / curvature**1.5)


def unwrapped(lon: Floats, around: float) -> Floats:
    """Return longitudes within 180 degrees of `around`, so that the 180th meridian is no border."""
    return around + (lon - around + 540.0) % 360.0 - 180.0


def middle_lon(lines: Sequence[Line]) -> float:
    """Return the longitude around which those of all lines are unwrapped: the first one."""
    return lines[0][0][0] if lines else 0.0


def check_line(line: Line, least: int, what: str) -> None:
    """Raise `SkyError` for a line that is too short or leaves the Earth."""
    if len(line) < least:
        raise SkyError(f"{what}: a line of {len(line)} positions, of {least} needed")
    if not all(is_on_earth(*position) for position in line):
        raise SkyError(f"{what}: a position is not on Earth")
