"""A street canyon, invented: houses hide a geostationary satellite, with gaps between them.

The satellite is in the south, and so is the row of houses. The map has their heights as maps do:
tagged with an error of 5 %, or counted in floors. Where the satellite is hidden in truth is found
by a ray to it past the true houses, from each half metre of the lane. A vehicle drives along the
street, is stopped by some of its lights, and has a receiver that errs by 3 m. Navigation satellites
stand all over the sky, so its fixes go on in the canyon.
"""

from __future__ import annotations

import math
import random
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

from underpass_control.obstructions.sky import View, import_sky

from dama.prediction import Fix, Obstruction
from dama.prediction.places import Plane
from dama.sky import AntennaMask, Satellite
from tests.control_api.drawn import Drawn, draw
from tests.dama.sky.rays import Block, Rays
from tests.drives.drive import START_MS, Covered, Drive

PLANE = Plane((15.6, 48.4))
SATELLITE = Satellite("astra", 19.2)
# From where to where the street leads, and the row of houses within it, in metres.
BEGIN_M, END_M = -1_700.0, 1_700.0
_ROW_M = (-1_200.0, 1_200.0)
# Vehicles from west to east drive so far from the road's middle: a quarter of its width.
_LANE_Y_M = -1.6
_ANTENNA_M = 2.0
_EVERY_M = 0.5
# Houses: their fronts from the road's middle, their widths and depths, and the gaps between them.
_FRONT_M, _WIDTH_M, _DEPTH_M, _GAP_M = 12.0, (12.0, 45.0), 12.0, (6.0, 40.0)
# Most houses hide the satellite from the lane, where 9 m are enough; the others are low.
_LOW_PART, _LOW_M, _HIGH_M = 0.2, (4.0, 7.0), (10.0, 24.0)
_TAGGED_ERROR, _FLOOR_M, _ROOF_M = 0.05, 3.1, 1.2
# Side streets, which few drivers take, with lights at some of them.
_SIDE_M = 300
_LIT, _STOPS, _WAITS_S = 0.5, 0.4, (4.0, 30.0)
_LIMIT_KMH = 50
_STEP_S = 0.1
_ACCELERATION, _BRAKING = 1.1, 1.6
# The receiver's error wanders with this standard deviation in each axis, for so long.
NOISE_M, _WANDERS_S = 3.0, 20.0


@dataclass(frozen=True)
class House:
    """A house as it is: from west to east, and how high, in metres."""

    west_m: float
    east_m: float
    top_m: float


@dataclass(frozen=True)
class Canyon:
    """The street: its houses, the map's obstructions, its lights, and where the sky is hidden.

    `hidden` has a value for each half metre of the lane from `BEGIN_M` on.
    """

    houses: tuple[House, ...]
    obstructions: tuple[Obstruction, ...]
    lights_m: tuple[float, ...]
    hidden: tuple[bool, ...]

    def is_hidden(self, x_m: float) -> bool:
        """Tell whether the satellite is hidden from a place of the lane."""
        return self.hidden[min(int((x_m - BEGIN_M) / _EVERY_M), len(self.hidden) - 1)]


def canyon(seed: int) -> Canyon:
    """Build the canyon of a seed, and import its map as the control service would."""
    dice = random.Random(f"canyon {seed}")
    houses = _houses(dice)
    sides_m = list(range(int(BEGIN_M) + 200, int(END_M), _SIDE_M))
    lights_m = tuple(float(x) for x in sides_m if dice.random() < _LIT)
    ways = [*_roads(sides_m), *(_drawn(dice, house) for house in houses)]
    with tempfile.TemporaryDirectory() as folder:
        path = draw(
            Path(folder) / "canyon.osm", PLANE, *ways, lights={f"{x:.0f},0" for x in lights_m}
        )
        obstructions = tuple(import_sky(path, (SATELLITE,), View(AntennaMask())))
    blocks = [Block((tuple(PLANE.position(*xy) for xy in _ring(h)),), h.top_m) for h in houses]
    rays = Rays(blocks, SATELLITE.longitude_deg, PLANE.position(0.0, 0.0))
    count = math.ceil((END_M - BEGIN_M) / _EVERY_M)
    middles = (BEGIN_M + (n + 0.5) * _EVERY_M for n in range(count))
    hidden = tuple(rays.blocked(PLANE.position(x, _LANE_Y_M), _ANTENNA_M) for x in middles)
    return Canyon(houses, obstructions, lights_m, hidden)


def _houses(dice: random.Random) -> tuple[House, ...]:
    found = []
    west_m = _ROW_M[0]
    while (east_m := west_m + dice.uniform(*_WIDTH_M)) < _ROW_M[1]:
        bounds = _LOW_M if dice.random() < _LOW_PART else _HIGH_M
        found.append(House(west_m, east_m, dice.uniform(*bounds)))
        west_m = east_m + dice.uniform(*_GAP_M)
    return tuple(found)


def _ring(house: House) -> list[tuple[float, float]]:
    north, south = -_FRONT_M, -_FRONT_M - _DEPTH_M
    west, east = house.west_m, house.east_m
    return [(west, south), (east, south), (east, north), (west, north), (west, south)]


def _drawn(dice: random.Random, house: House) -> Drawn:
    """Return a house as the map has it."""
    ring = " ".join(f"{x:.2f},{y:.2f}" for x, y in _ring(house))
    if dice.random() < 0.5:
        told = house.top_m * math.exp(dice.gauss(0.0, _TAGGED_ERROR))
        return ring, {"building": "yes", "height": f"{told:.1f}"}
    floors = max(round((house.top_m - _ROOF_M) / _FLOOR_M), 1)
    return ring, {"building": "yes", "building:levels": str(floors)}


def _roads(sides_m: Sequence[float]) -> list[Drawn]:
    """Return the street, and side streets to the north."""
    street = {"highway": "secondary", "maxspeed": str(_LIMIT_KMH), "name": "Long Street"}
    places = [BEGIN_M, *sides_m, END_M]
    found: list[Drawn] = [(" ".join(f"{x:.0f},0" for x in places), street)]
    for number, x in enumerate(sides_m):
        side = {"highway": "residential", "maxspeed": "30", "name": f"Side Street {number}"}
        found.append((f"{x:.0f},0 {x:.0f},250", side))
    return found


def drive_through(street: Canyon, seed: int) -> Drive:
    """Drive along a canyon's street from west to east."""
    dice = random.Random(f"drive {seed}")
    way_m = _motion(dice, street.lights_m)
    fixes = tuple(_fixes(dice, way_m))
    covered = []
    number = 0
    for hidden, run in groupby(way_m, street.is_hidden):
        count = len(list(run))
        begin_s, end_s = number * _STEP_S, (number + count) * _STEP_S
        if hidden:
            last_fix_ms = START_MS + 1000 * int(begin_s)
            covered.append(
                Covered(
                    0, START_MS + round(1000 * begin_s), START_MS + round(1000 * end_s), last_fix_ms
                )
            )
        number += count
    route = ((BEGIN_M, 0.0), (END_M, 0.0))
    return Drive(seed, fixes, tuple(covered), (), route, u_turned=False)


def _motion(dice: random.Random, lights_m: Sequence[float]) -> list[float]:
    """Return where the vehicle is in each tenth of a second, until shortly before the end."""
    habit, mood = dice.uniform(0.8, 1.05), 0.0
    stops_m = [x for x in lights_m if dice.random() < _STOPS]
    x, speed, waits_s = BEGIN_M + 50.0, 8.0, 0.0
    way_m = []
    while x < END_M - 50.0:
        way_m.append(x)
        if waits_s > 0.0:
            waits_s -= _STEP_S
            continue
        # Attention and traffic: a speed that wanders by some 7 % over half a kilometre.
        mood = 0.9975 * mood + dice.gauss(0.0, 0.005)
        wanted = _LIMIT_KMH / 3.6 * (habit + mood)
        if stops_m:
            left_m = stops_m[0] - 3.0 - x
            if left_m <= 0.5:
                stops_m.pop(0)
                waits_s, speed = dice.uniform(*_WAITS_S), 0.0
                continue
            wanted = min(wanted, math.sqrt(2.0 * _BRAKING * left_m))
        change = min(max(wanted - speed, -2.0 * _BRAKING * _STEP_S), _ACCELERATION * _STEP_S)
        speed += change
        x += speed * _STEP_S
    return way_m


def _fixes(dice: random.Random, way_m: Sequence[float]) -> list[Fix]:
    keep = math.exp(-1.0 / _WANDERS_S)
    east, north = dice.gauss(0.0, NOISE_M), dice.gauss(0.0, NOISE_M)
    found = []
    in_a_second = round(1.0 / _STEP_S)
    for number in range(0, len(way_m) - 1, in_a_second):
        spread = NOISE_M * math.sqrt(1.0 - keep * keep)
        east = keep * east + dice.gauss(0.0, spread)
        north = keep * north + dice.gauss(0.0, spread)
        speed = (way_m[number + 1] - way_m[number]) / _STEP_S
        lon, lat = PLANE.position(way_m[number] + east, _LANE_Y_M + north)
        measured = max(speed + dice.gauss(0.0, 0.15), 0.0)
        heading = (90.0 + dice.gauss(0.0, 2.0)) % 360.0 if measured > 1.0 else None
        time_ms = START_MS + 1000 * (number // in_a_second)
        found.append(Fix(time_ms, lon, lat, measured, heading))
    return found
