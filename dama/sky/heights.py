"""The height of something, as a distribution of what is believed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dama.sky.errors import SkyError
from dama.sky.satellite import Floats

# No height above this is believed: the highest building on Earth has 828 m.
MAX_HEIGHT_M = 900.0
_LEAST_M = 0.25
# Distributions are sampled at these heights, each 4 % above the one before.
_STEP = 0.04
_LOGS = np.arange(math.log(_LEAST_M), math.log(MAX_HEIGHT_M) + _STEP, _STEP)
# The shadow of a height that is exceeded with less probability is not worth computing.
_NEGLIGIBLE = 0.005
_MOST_SPREAD = 2.0


@dataclass(frozen=True, slots=True)
class Belief:
    """A log-normal height: median in metres, and the standard deviation of its logarithm."""

    median_m: float
    spread: float

    def __post_init__(self) -> None:
        if not 0.0 < self.median_m <= MAX_HEIGHT_M:
            raise SkyError(f"a height of {self.median_m} m is not in (0, {MAX_HEIGHT_M:.0f}]")
        if not 0.0 < self.spread <= _MOST_SPREAD:
            raise SkyError(f"a spread of {self.spread} is not in (0, {_MOST_SPREAD:.0f}]")

    def survival(self) -> Floats:
        """Return the probabilities of exceeding each of the sampled heights."""
        deviations = (_LOGS - math.log(self.median_m)) / (self.spread * math.sqrt(2.0))
        return np.array([0.5 * math.erfc(one) for one in deviations.tolist()])


class Heights:
    """Distributions of heights, by number; equal beliefs share one."""

    def __init__(self) -> None:
        self._rows: list[Floats] = []
        self._numbers: dict[Belief, int] = {}
        self._table: Floats | None = None
        self._greatest: Floats | None = None

    def add(self, belief: Belief) -> int:
        """Return the number of a belief."""
        if belief not in self._numbers:
            self._numbers[belief] = self._append(belief.survival())
        return self._numbers[belief]

    def add_mixture(self, parts: Floats, weights: Floats) -> int:
        """Return the number of a new mixture.

        `parts` has the survival functions to mix, shape (n, heights), `weights` their weights,
        shape (n,).
        """
        whole = float(weights.sum())
        if not whole > 0.0:
            raise SkyError("the weights of a mixture sum to nothing")
        return self._append(weights @ parts / whole)

    def _append(self, row: Floats) -> int:
        self._rows.append(row)
        self._table = self._greatest = None
        return len(self._rows) - 1

    def _ready(self) -> Floats:
        if self._table is None:
            self._table = np.array(self._rows).reshape(-1, len(_LOGS))
        return self._table

    def greatest_m(self, numbers: np.typing.NDArray[np.int64]) -> Floats:
        """Return the heights that are exceeded only with negligible probability."""
        table = self._ready()
        if self._greatest is None:
            above = (table > _NEGLIGIBLE).sum(axis=1)
            self._greatest = np.exp(_LOGS[np.minimum(above, len(_LOGS) - 1)])
        return self._greatest[numbers]

    def higher_than(self, numbers: np.typing.NDArray[np.int64], height_m: Floats) -> Floats:
        """Return the probabilities that heights exceed others, one for one.

        Below the least sampled height it is 1, as at the ground.
        """
        table = self._ready()
        place = (np.log(np.maximum(height_m, _LEAST_M)) - _LOGS[0]) / _STEP
        place = np.minimum(place, len(_LOGS) - 1.001)
        first = place.astype(np.int64)
        part = place - first
        found = table[numbers, first] * (1.0 - part) + table[numbers, first + 1] * part
        return np.where(height_m <= _LEAST_M, 1.0, found)
