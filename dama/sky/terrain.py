"""The ground itself: a grid of heights, and where it hides a satellite."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dama.prediction.places import METRES_PER_DEGREE
from dama.sky.errors import SkyError
from dama.sky.ground import metres_per_degree, unwrapped
from dama.sky.satellite import Floats

# The radius of an Earth without refraction on which the ground falls below a line of sight as much
# as it really does: refraction bends the line down by 0.13 of the Earth's curvature.
_BENT_RADIUS_M = 6_371_000.0 / (1.0 - 0.13)
_FURTHEST_M = 100_000.0
# Ground of unknown height may be this much higher than the highest that is known.
_MORE_M = 1_000.0
# Nearer than this many cells, the grid shows the road's own slope and bank, not an obstacle.
_OWN_CELLS = 1.5
# Towards a pole cells become ever narrower; steps need not become shorter than this part: beyond
# 81.3 degrees, where cells are 0.15 as wide, no geostationary satellite is above the horizon.
_NARROWEST = 0.125
_DEVIATIONS = np.linspace(-4.0, 4.0, 161)
_BELOW = np.array([0.5 * math.erfc(-one / math.sqrt(2.0)) for one in _DEVIATIONS.tolist()])


@dataclass(frozen=True, slots=True)
class HeightGrid:
    """Heights of the ground in metres, on a grid of degrees.

    `heights` has rows from north to south and columns from west to east; NaN is unknown. `west` and
    `north` are the place of its first cell's middle, `step_deg` the widths of a cell in longitude
    and latitude. `error_m` is the standard deviation of a height.
    """

    west: float
    north: float
    step_deg: tuple[float, float]
    heights: Floats
    error_m: float = 5.0

    def __post_init__(self) -> None:
        if self.heights.ndim != 2 or min(self.heights.shape) < 2:
            raise SkyError("a height grid has two rows and two columns or more")
        if not all(0.0 < step <= 1.0 for step in self.step_deg):
            raise SkyError("a height grid's cells are above 0 and up to 1 degree wide")
        if not 0.0 < self.error_m <= 1_000.0:
            raise SkyError("a height grid's error is above 0 and up to 1000 m")
        known = self.heights[np.isfinite(self.heights)]
        if not known.size or known.min() < -1_000.0 or known.max() > 10_000.0:
            raise SkyError("a height grid's heights are none on Earth")

    @property
    def highest_m(self) -> float:
        """The greatest height."""
        return float(np.nanmax(self.heights))

    @property
    def cell_m(self) -> float:
        """The width of a cell from north to south."""
        return self.step_deg[1] * METRES_PER_DEGREE

    def at(self, lon: Floats, lat: Floats) -> Floats:
        """Return the heights at places, between the cells' middles; NaN where they are unknown."""
        rows, columns = self.heights.shape
        x = unwrapped(lon - self.west, 180.0 - 1e-9) / self.step_deg[0]
        y = (self.north - lat) / self.step_deg[1]
        inside = (x >= 0.0) & (x <= columns - 1) & (y >= 0.0) & (y <= rows - 1)
        x, y = np.where(inside, x, 0.0), np.where(inside, y, 0.0)
        column = np.minimum(x.astype(np.int64), columns - 2)
        row = np.minimum(y.astype(np.int64), rows - 2)
        dx, dy = x - column, y - row
        upper = self.heights[row, column] * (1 - dx) + self.heights[row, column + 1] * dx
        lower = self.heights[row + 1, column] * (1 - dx) + self.heights[row + 1, column + 1] * dx
        return np.where(inside, upper * (1 - dy) + lower * dy, np.nan)

    def hides(
        self, lon: Floats, lat: Floats, azimuth: Floats, elevation: Floats, antenna_m: float
    ) -> tuple[Floats, npt.NDArray[np.bool_]]:
        """Return the probability that the known ground hides a satellite, from each place.

        Also return where the height of some ground that may hide it, or of the place itself, is
        unknown. All arrays have the shape (n,) and are in degrees; the elevation is above 0.
        """
        above = np.full(len(lon), -np.inf)
        slope = np.tan(np.radians(elevation))
        eye = self.at(lon, lat) + antenna_m
        east_m, north_m = metres_per_degree(lat)
        sin, cos = np.sin(np.radians(azimuth)), np.cos(np.radians(azimuth))
        # Beyond this, the line of sight is above the greatest height.
        highest = self.highest_m + (_MORE_M if np.isnan(self.heights).any() else 0.0)
        furthest = np.minimum((highest - eye) / slope, _FURTHEST_M)
        unknown = np.isnan(eye)
        width_m = max(float(np.median(east_m)), _NARROWEST * METRES_PER_DEGREE)
        step_m = min(self.cell_m, self.step_deg[0] * width_m)
        distance = _OWN_CELLS * step_m
        left = np.flatnonzero(furthest > distance)
        while left.size:
            ground = self.at(
                lon[left] + distance * sin[left] / east_m[left],
                lat[left] + distance * cos[left] / north_m[left],
            )
            ground = ground - distance**2 / (2.0 * _BENT_RADIUS_M)
            over = ground - eye[left] - distance * slope[left]
            above[left] = np.fmax(above[left], over)
            unknown[left] |= np.isnan(over)
            distance += step_m
            left = left[furthest[left] > distance]
        found = np.interp(above / self.error_m, _DEVIATIONS, _BELOW, left=0.0, right=1.0)
        return np.asarray(found, dtype=np.float64), unknown
