"""Where a satellite is hidden from roads: the cost, a check by rays, and the predicted chances.

- Cost: a hundred random towns of a thousand houses and a hundred kilometres of road each.
- Rays: one dense random town with known heights; a ray from each of many places on its roads.
- Predicted chances: a real town, with half the known heights removed from the map.
"""

from __future__ import annotations

import math
import random
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import numpy.typing as npt
import osmium
from underpass_control.obstructions.extract import quiet
from underpass_control.obstructions.surroundings import Surroundings, read_surroundings

from dama.prediction.network import Network
from dama.prediction.places import Line, Plane, Position
from dama.sky import Belief, Heights, Lane, Obstacle, Satellite, shade, tags
from dama.sky.roads import lanes_of
from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.dama.sky.rays import Block, Rays
from tests.drives import field

MOSCOW = "moscow.osm.gz"
_RUNS = 3
_TOWNS, _HOUSES = 100, 1_000
_POINTS = 100_000
_SPLITS = 24
_SATELLITES = (Satellite("low", -5.0), Satellite("west", 19.2), Satellite("east", 75.0))
# Streets of a random town: how many each way, and how far apart.
_STREETS, _BLOCK_M = 23, 100.0
_KNOWN = 0.004
# Places where a hidden height might matter.
_MATTERS = 0.02


def run(settings: Settings) -> Result:
    """Measure all three."""
    result = Result("sky")
    result.told["underpass"] = "the map"
    _measure_cost(result, settings.runs or _RUNS, settings.seed)
    _measure_against_rays(result, settings.seed)
    if not result.left_out(field.missing(MOSCOW)):
        _measure_told(result, settings.seed)
    return result


def _keep(result: Result, figure: str, values: list[float]) -> None:
    made = record(figure, "underpass", values)
    result.records.append(made)
    say(f"{made.id}: {made.median:.4g} {made.unit}")


def _measure_cost(result: Result, runs: int, seed: int) -> None:
    draw = random.Random(seed)
    heights = Heights()
    lanes: list[Lane] = []
    obstacles: list[Obstacle] = []
    for number in range(_TOWNS):
        plane = Plane((10.0 + number % 10 * 0.15, 47.0 + number // 10 * 0.1))
        lanes += [
            Lane(f"{number}/{n}/{side}", line[::side], offset_m=1.6)
            for n, line in enumerate(_streets(plane))
            for side in (1, -1)
        ]
        for n in range(_HOUSES):
            belief = Belief(draw.choice((6.0, 9.0, 12.0, 20.0)), draw.choice((0.1, 0.3, 0.6)))
            rings = (_house(draw, plane),)
            obstacles.append(Obstacle(f"{number}/{n}", rings, heights.add(belief)))
    taken = []
    for _ in range(runs):
        began = time.process_time()
        masks = shade(lanes, obstacles, heights, _SATELLITES[1])
        taken.append(time.process_time() - began)
    _keep(result, "sky.cost", taken)
    result.notes["cost: buildings, lanes, metres of lane, intervals"] = [
        len(obstacles),
        len(lanes),
        len(masks.blocked),
        len(masks),
    ]


def _streets(plane: Plane) -> list[Line]:
    """Draw a grid of streets, each a little bent."""
    at = [_BLOCK_M * n - _BLOCK_M * (_STREETS - 1) / 2 for n in range(_STREETS)]
    return [
        tuple(plane.position(*(place if along else place[::-1])) for place in bent)
        for along in (True, False)
        for y in at
        for bent in [[(x, y + 8.0 * math.sin(x / 90.0)) for x in at]]
    ]


def _house(draw: random.Random, plane: Plane) -> Line:
    """Draw an L-shaped house beside the streets."""
    half = _BLOCK_M * (_STREETS - 1) / 2
    x, y = (_BLOCK_M * draw.randrange(_STREETS - 1) - half for _ in range(2))
    x, y = x + draw.uniform(14, 72), y + draw.uniform(20, 68)
    width, depth, wing = draw.uniform(8, 20), draw.uniform(8, 16), draw.uniform(2, 8)
    corners = [
        (x, y),
        (x + width, y),
        (x + width, y + depth),
        (x + width / 2, y + depth),
        (x + width / 2, y + depth + wing),
        (x, y + depth + wing),
        (x, y),
    ]
    return tuple(plane.position(*corner) for corner in corners)


def _measure_against_rays(result: Result, seed: int) -> None:
    draw = random.Random(seed)
    middle: Position = (37.6, 55.75)
    plane = Plane(middle)
    heights = Heights()
    blocks = [Block((_house(draw, plane),), draw.uniform(5.0, 45.0)) for _ in range(2_500)]
    obstacles = [
        Obstacle(str(n), block.rings, heights.add(Belief(block.top_m, _KNOWN)))
        for n, block in enumerate(blocks)
    ]
    streets = _streets(plane)
    lanes = [Lane(str(n), line) for n, line in enumerate(streets)]
    satellite = _SATELLITES[1]
    masks = shade(lanes, obstacles, heights, satellite)
    rays = Rays(blocks, satellite.longitude_deg, middle)
    right = missed = invented = 0
    for _ in range(_POINTS):
        n = draw.randrange(len(streets))
        told = masks.metres_of(str(n))
        run_m = draw.uniform(0.0, len(told) - 1.0)
        place = _along(plane, streets[n], run_m)
        blocked = rays.blocked(place, 2.0)
        said = bool(told[int(run_m)] >= 0.5)
        right += blocked and said
        missed += blocked and not said
        invented += said and not blocked
    _keep(result, "sky.precision", [100.0 * right / (right + invented)])
    _keep(result, "sky.recall", [100.0 * right / (right + missed)])
    result.notes["rays: places, blocked"] = [_POINTS, right + missed]


def _along(plane: Plane, line: Line, run_m: float) -> Position:
    """Return the place at `run_m` along a line, in metres of the town's own plane."""
    points = [plane.xy(place) for place in line]
    for begin, end in pairwise(points):
        length = math.dist(begin, end)
        if run_m <= length:
            part = run_m / length
            return plane.position(
                begin[0] + part * (end[0] - begin[0]), begin[1] + part * (end[1] - begin[1])
            )
        run_m -= length
    return line[-1]


def _measure_told(result: Result, seed: int) -> None:
    """Hide half of the known heights; compare the predictions with those from the true heights."""
    path = field.FIELD / MOSCOW
    true = read_surroundings(path, quiet)
    names = {one.id for one in true.obstacles if not one.is_overhead}
    known = sorted(_with_heights(path) & names)
    lanes = lanes_of(Network(true.ways))
    draw = random.Random(seed)
    told: list[npt.NDArray[np.float64]] = []
    came: list[npt.NDArray[np.bool_]] = []
    with tempfile.TemporaryDirectory() as folder:
        for number in range(_SPLITS):
            hidden = set(draw.sample(known, len(known) // 2))
            copy = Path(folder) / f"{number}.osm.pbf"
            _without_heights(path, copy, hidden)
            guessed = read_surroundings(copy, quiet)
            satellite = _SATELLITES[number % len(_SATELLITES)]
            chance = _blocked(lanes, guessed, hidden, satellite)
            matters = chance > _MATTERS
            told.append(chance[matters])
            came.append(_blocked(lanes, true, hidden, satellite)[matters] >= 0.5)
    chances, blocked = np.concatenate(told), np.concatenate(came)
    tenth = np.minimum((10 * chances).astype(int), 9)
    metres = np.bincount(tenth, minlength=10)
    said = np.bincount(tenth, chances, 10) / metres
    were = np.bincount(tenth, blocked, 10) / metres
    apart = np.abs(said - were)
    _keep(result, "sky.told-worst", [float(apart.max())])
    _keep(result, "sky.told-mean", [float((apart * metres).sum() / metres.sum())])
    result.notes["told: known heights, half of them hidden; draws"] = [len(known), _SPLITS]
    result.notes["told: by tenths, the mean told"] = np.round(said, 3).tolist()
    result.notes["told: by tenths, the part that was blocked"] = np.round(were, 3).tolist()
    result.notes["told: by tenths, metres of lane"] = metres.tolist()


def _blocked(
    lanes: list[Lane], found: Surroundings, ids: set[str], satellite: Satellite
) -> npt.NDArray[np.float64]:
    """Return the probability that these buildings alone block each metre."""
    some = [one for one in found.obstacles if one.id in ids]
    return shade(lanes, some, found.heights, satellite).blocked


def _with_heights(path: Path) -> set[str]:
    """Return the ids of an extract's buildings whose tags give a height."""
    found = set()
    for one in osmium.FileProcessor(str(path)).with_filter(osmium.filter.KeyFilter("building")):
        of = {tag.k: tag.v for tag in one.tags}
        if tags.known_height(of) is not None and isinstance(one, osmium.osm.Way):
            found.add(f"osm:way/{one.id}")
    return found


def _without_heights(path: Path, to: Path, ids: set[str]) -> None:
    """Copy an extract without the heights of some of its buildings."""
    heights = ("height", "building:levels", "roof:levels")
    with osmium.SimpleWriter(str(to)) as writer:
        for one in osmium.FileProcessor(str(path)):
            if isinstance(one, osmium.osm.Way) and f"osm:way/{one.id}" in ids:
                kept = {tag.k: tag.v for tag in one.tags if tag.k not in heights}
                writer.add(one.replace(tags=kept))
            else:
                writer.add(one)
