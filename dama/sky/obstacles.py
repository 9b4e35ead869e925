"""Obstacles between roads and a satellite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import shapely

from dama.prediction.places import Line
from dama.sky.errors import SkyError
from dama.sky.ground import check_line, metres_per_degree, unwrapped
from dama.sky.lanes import Integers
from dama.sky.satellite import Floats


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Something that hides the sky behind it.

    - `lines` are the rings of an area, the outer one first, each closed; or one line: a wall, a row
      of trees, or the axis of an overhead obstacle that is `width_m` wide.
    - `height` is the number of its distribution of heights above the ground, `opacity` the
      probability that it blocks when it is in the way.
    - An overhead obstacle does not stand on the ground: its `height` is that of its underside, and
      `thickness_m` is its thickness above that. It covers roads of lower layers, except those that
      meet it at `ends`.
    - `is_vegetation` says that it is cut back beside roads.
    """

    id: str
    lines: tuple[Line, ...]
    height: int
    opacity: float = 1.0
    is_area: bool = True
    is_vegetation: bool = False
    is_overhead: bool = False
    thickness_m: float = 0.0
    width_m: float = 0.0
    layer: int = 0
    ends: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        if not self.lines:
            raise SkyError(f"{self.id}: it has no line")
        for line in self.lines:
            check_line(line, 4 if self.is_area else 2, self.id)
            if self.is_area and line[0] != line[-1]:
                raise SkyError(f"{self.id}: a ring is not closed")
        if not 0.0 < self.opacity <= 1.0:
            raise SkyError(f"{self.id}: an opacity of {self.opacity} is not in (0, 1]")
        if not 0.0 <= self.thickness_m <= 1_000.0 or not 0.0 <= self.width_m <= 1_000.0:
            raise SkyError(f"{self.id}: it is thicker or wider than anything that is built")


class Walls:
    """The walls of obstacles on the ground, as arrays: ends in degrees, and their owners."""

    def __init__(self, obstacles: Sequence[Obstacle], around: float) -> None:
        standing = [(n, one) for n, one in enumerate(obstacles) if not one.is_overhead]
        lines = [(n, line) for n, one in standing for line in one.lines]
        counts = np.array([len(line) for _, line in lines], dtype=np.int64)
        places = np.array([p for _, line in lines for p in line], dtype=np.float64).reshape(-1, 2)
        places[:, 0] = unwrapped(places[:, 0], around)
        self.places = places
        ring = np.repeat(np.arange(len(lines)), counts)
        same = ring[1:] == ring[:-1]
        owner = np.array([n for n, _ in lines], dtype=np.int64)
        self.begin: Floats = places[:-1][same]
        self.end: Floats = places[1:][same]
        self.end[:, 0] = unwrapped(self.end[:, 0] - self.begin[:, 0], 0.0) + self.begin[:, 0]
        self.owner: Integers = owner[ring[:-1][same]]

    def chunks(self, size: int) -> list[slice]:
        """Return slices of about so many walls that keep each obstacle's together."""
        if not len(self.owner):
            return []
        starts = np.flatnonzero(np.diff(self.owner, prepend=-1))
        cuts = starts[np.searchsorted(starts, np.arange(0, len(self.owner), size))[1:] - 1]
        bounds = np.unique(np.concatenate(([0], cuts, [len(self.owner)])))
        return [slice(a, b) for a, b in pairwise(bounds.tolist())]


def areas(
    obstacles: Sequence[Obstacle], around: float
) -> tuple[Integers, np.typing.NDArray[np.object_]]:
    """Return which obstacles are areas on the ground, and their polygons in degrees."""
    chosen = [n for n, one in enumerate(obstacles) if one.is_area and not one.is_overhead]
    rings = [(k, line) for k, n in enumerate(chosen) for line in obstacles[n].lines]
    if not rings:
        return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.object_)
    places = np.array([p for _, line in rings for p in line], dtype=np.float64)
    places[:, 0] = unwrapped(places[:, 0], around)
    of = np.repeat(np.arange(len(rings)), [len(line) for _, line in rings])
    made = shapely.linearrings(places, indices=of)
    owner = np.array([k for k, _ in rings], dtype=np.int64)
    return np.array(chosen, dtype=np.int64), shapely.polygons(made, indices=owner)


class Slabs:
    """Overhead obstacles as quadrangles: corners in degrees, shape (n, 4, 2), and their owners."""

    def __init__(self, obstacles: Sequence[Obstacle], around: float) -> None:
        corners: list[Floats] = []
        owner: list[int] = []
        for number, one in enumerate(obstacles):
            if one.is_overhead:
                found = _quadrangles(one, around)
                corners += found
                owner += [number] * len(found)
        self.corners: Floats = np.array(corners).reshape(-1, 4, 2)
        self.owner: Integers = np.array(owner, dtype=np.int64)


def _quadrangles(obstacle: Obstacle, around: float) -> list[Floats]:
    line = np.array(obstacle.lines[0], dtype=np.float64)
    line[:, 0] = unwrapped(line[:, 0], around)
    line[:, 0] = line[0, 0] + unwrapped(line[:, 0] - line[0, 0], 0.0)
    scale = np.stack(metres_per_degree(line[:1, 1]), axis=1)
    metres = (line - line[0]) * scale
    if obstacle.is_area:
        # Roofs are small and mostly rectangular: the least rectangle around one is good enough.
        around_it = shapely.oriented_envelope(shapely.Polygon(metres))
        if around_it.geom_type != "Polygon":
            return []
        return [np.asarray(around_it.exterior.coords)[:4] / scale + line[0]]
    step = np.diff(metres, axis=0)
    length = np.hypot(step[:, 0], step[:, 1])
    kept = length > 0.01
    aside = np.stack((step[:, 1], -step[:, 0]), axis=1)[kept] * (
        obstacle.width_m / 2.0 / length[kept, None]
    )
    begin, end = metres[:-1][kept], metres[1:][kept]
    quads = np.stack((begin + aside, end + aside, end - aside, begin - aside), axis=1)
    return list(quads / scale + line[0])
