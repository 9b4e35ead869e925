"""Where a geostationary satellite is hidden from roads: shadows of the objects beside them."""

from dama.sky.antenna import AntennaMask
from dama.sky.errors import SkyError
from dama.sky.heights import Belief, Heights
from dama.sky.lanes import Lane
from dama.sky.masks import Interval, Masks, State
from dama.sky.obstacles import Obstacle
from dama.sky.satellite import Satellite, look_angles
from dama.sky.shadows import shade
from dama.sky.terrain import HeightGrid

__all__ = [
    "AntennaMask",
    "Belief",
    "HeightGrid",
    "Heights",
    "Interval",
    "Lane",
    "Masks",
    "Obstacle",
    "Satellite",
    "SkyError",
    "State",
    "look_angles",
    "shade",
]
