"""The part of the sky that a vehicle's antenna cannot see."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from dama.sky.errors import SkyError
from dama.sky.satellite import Floats

_MOST_POINTS = 360


@dataclass(frozen=True, slots=True)
class AntennaMask:
    """The least elevation at which an antenna sees, by azimuth.

    `points` are pairs of azimuth, in degrees clockwise from the vehicle's nose, and least elevation
    in degrees; between them it is linear. A single pair holds all around. `height_m` is the height
    of the antenna above the road.
    """

    points: tuple[tuple[float, float], ...] = ((0.0, 5.0),)
    height_m: float = 2.0

    def __post_init__(self) -> None:
        if not 1 <= len(self.points) <= _MOST_POINTS:
            raise SkyError(f"an antenna mask has 1 to {_MOST_POINTS} points")
        if any(not (0.0 <= a < 360.0 and 0.0 <= e <= 90.0) for a, e in self.points):
            raise SkyError("an antenna mask's azimuths are in [0, 360), its elevations in [0, 90]")
        azimuths = [azimuth for azimuth, _ in self.points]
        if any(after <= before for before, after in pairwise(azimuths)):
            raise SkyError("an antenna mask's azimuths rise from point to point")
        if not 0.0 < self.height_m <= 10.0:
            raise SkyError("an antenna is above 0 and up to 10 m above the road")

    def least_elevation(self, azimuth_deg: Floats) -> Floats:
        """Return the least elevation it sees, for azimuths from the nose in degrees."""
        azimuths, elevations = zip(*self.points, strict=True)
        found = np.interp(azimuth_deg % 360.0, azimuths, elevations, period=360.0)
        return np.asarray(found, dtype=np.float64)
