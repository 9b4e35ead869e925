"""The shadows that obstacles cast along lanes, away from a satellite.

From everywhere around an obstacle, a satellite stands in the same direction. So the shadow of each
of its walls is a parallelogram on the ground: the wall, moved away from the satellite by the length
of the shadow of its greatest height. An index finds the lanes that cross it. The least height at
which the wall blocks is linear along the lane, and the wall's distribution of heights gives the
probability for each metre. Of one obstacle's walls, the one that blocks most counts; obstacles are
treated as independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import shapely

from dama.sky.antenna import AntennaMask
from dama.sky.errors import SkyError
from dama.sky.ground import metres_per_degree, middle_lon
from dama.sky.heights import Heights
from dama.sky.lanes import Integers, Lane, Samples
from dama.sky.masks import Masks
from dama.sky.obstacles import Obstacle, Slabs, Walls, areas
from dama.sky.satellite import Floats, Satellite, look_angles
from dama.sky.terrain import HeightGrid

# Below this elevation a satellite counts as hidden, whatever the antenna's mask says.
LEAST_ELEVATION_DEG = 1.0
# The longest shadow that is computed.
_LONGEST_M = 5_000.0
# Walls that are processed together: bounds the memory.
_AT_ONCE = 20_000
# The distance along a lane between the places from which terrain is computed.
_TERRAIN_EVERY_M = 10
# The most by which the ground at an obstacle counts as higher than the road: it lengthens shadows.
_MOST_RISE_M = 50.0
# Blocked for certain, as a logarithm of the probability of being clear.
_CERTAIN = -50.0


def shade(
    lanes: Sequence[Lane],
    obstacles: Sequence[Obstacle],
    heights: Heights,
    satellite: Satellite,
    *,
    antenna: AntennaMask | None = None,
    terrain: HeightGrid | None = None,
) -> Masks:
    """Return where a satellite is hidden from lanes, and how probably.

    A lane is blocked where the satellite is below the horizon, or below the antenna's least
    elevation. Raises `SkyError` if it is below the horizon from all of them: then it is the wrong
    satellite.
    """
    around = middle_lon([lane.line for lane in lanes])
    samples = Samples(lanes, around)
    work = _Work(samples, obstacles, heights, satellite, antenna or AntennaMask(), terrain, around)
    work.see_antenna()
    work.see_covers()
    work.see_walls()
    work.see_areas()
    work.see_slabs()
    work.see_terrain()
    return Masks(satellite, samples, 0.0 - np.expm1(work.clear), work.unknown)


@dataclass
class _Work:
    """The state of the computation."""

    samples: Samples
    obstacles: Sequence[Obstacle]
    heights: Heights
    satellite: Satellite
    antenna: AntennaMask
    terrain: HeightGrid | None
    around: float
    # The logarithm of the probability that each sample sees the satellite; and whether the ground
    # that may hide it from there is unknown.
    clear: Floats = field(init=False)
    unknown: np.typing.NDArray[np.bool_] = field(init=False)

    def __post_init__(self) -> None:
        self.clear = np.zeros(self.samples.total)
        self.unknown = np.zeros(self.samples.total, dtype=np.bool_)
        self.tree = self.samples.tree()
        self.height = np.array([one.height for one in self.obstacles], dtype=np.int64)
        self.opacity = np.array([one.opacity for one in self.obstacles])
        self.is_green = np.array([one.is_vegetation for one in self.obstacles], dtype=np.bool_)

    def see_antenna(self) -> None:
        """Block samples where the satellite is below the horizon or hidden by the vehicle."""
        samples = self.samples
        middle = (samples.begin + samples.end) / 2.0
        azimuth, elevation = look_angles(self.satellite, middle[:, 0], middle[:, 1])
        least = self.antenna.least_elevation(azimuth - samples.heading)
        hidden = elevation < np.maximum(least, LEAST_ELEVATION_DEG)
        if hidden.size and np.all(elevation < LEAST_ELEVATION_DEG):
            raise SkyError(
                f"satellite {self.satellite.name} at {self.satellite.longitude_deg}° stands below "
                f"the horizon: at {elevation.max():.1f}° at most"
            )
        _, sample = samples.all_of(np.flatnonzero(hidden))
        self.clear[sample] = _CERTAIN

    def see_covers(self) -> None:
        """Block lanes that the map shows in tunnels or under roofs."""
        covered = np.array([lane.covered for lane in self.samples.lanes], dtype=np.bool_)
        self.clear[np.repeat(covered, self.samples.counts)] = _CERTAIN

    def see_walls(self) -> None:
        """Add the shadows of obstacles that stand on the ground."""
        walls = Walls(self.obstacles, self.around)
        for part in walls.chunks(_AT_ONCE):
            begin, end, owner = walls.begin[part], walls.end[part], walls.owner[part]
            view = _View(self.satellite, begin)
            reach = self._reach_m(owner, view)
            chosen = np.flatnonzero((reach > 0.0) & view.is_up & (view.width(end) > 0.01))
            view, end = view.of(chosen), end[chosen]
            owner, reach = owner[chosen], reach[chosen]
            away = view.degrees(-reach)
            corners = np.stack((view.origin, end, end + away, view.origin + away), axis=1)
            wall, piece = self._near(np.asarray(shapely.polygons(corners)))
            self._shade_by_walls(view.of(wall), end[wall], owner[wall], reach[wall], piece)

    def _reach_m(self, owner: Integers, view: _View) -> Floats:
        rise = _MOST_RISE_M if self.terrain is not None else 0.0
        most = self.heights.greatest_m(self.height[owner]) + rise - self.antenna.height_m
        return np.minimum(most / view.slope, _LONGEST_M)

    def _near(self, shapes: np.typing.NDArray[np.object_]) -> tuple[Integers, Integers]:
        if not len(shapes):
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        shapely.prepare(shapes)
        found = self.tree.query(shapes, predicate="intersects")
        return found[0], found[1]

    def _shade_by_walls(
        self, view: _View, end: Floats, owner: Integers, reach: Floats, piece: Integers
    ) -> None:
        """Add the shadows of walls along the pieces that they fall on, one for one."""
        samples = self.samples
        ahead, aside = view.metres(end)
        ahead_1, aside_1 = view.metres(samples.begin[piece])
        ahead_2, aside_2 = view.metres(samples.end[piece])
        # The parts of the piece, from 0 to 1, that lie behind the wall and within its reach.
        part_low, part_high = _between(
            aside_1, aside_2, np.minimum(aside, 0.0), np.maximum(aside, 0.0)
        )
        slope = ahead / aside
        away_1, away_2 = aside_1 * slope - ahead_1, aside_2 * slope - ahead_2
        low, high = _between(away_1, away_2, np.zeros_like(reach), reach)
        low, high = np.maximum(low, part_low), np.minimum(high, part_high)
        from_m, to_m = samples.from_m[piece], samples.to_m[piece]
        length = to_m - from_m
        row, sample = samples.within(piece, from_m + low * length, from_m + high * length)
        part = samples.part(piece[row], sample)
        distance = np.maximum(away_1[row] + (away_2 - away_1)[row] * part, 0.0)
        # Trees are cut back on both sides of a road.
        across = np.abs(np.sin(np.radians(view.azimuth - samples.heading[piece])))
        free = samples.clear_m[samples.lane[piece]] / np.maximum(across, 0.05)
        green = self.is_green[owner]
        distance = np.where(green[row], np.maximum(distance, free[row]), distance)
        over = self.antenna.height_m + distance * view.slope[row]
        over = over - self._rise(view.origin, piece, row, part)
        self._add(owner[row], sample, self.heights.higher_than(self.height[owner[row]], over))

    def _rise(self, base: Floats, piece: Integers, row: Integers, part: Floats) -> Floats:
        """Return how much higher the ground at obstacles is than at samples."""
        if self.terrain is None:
            return np.zeros(len(row))
        at_base = self.terrain.at(base[:, 0], base[:, 1])
        begin, end = self.samples.begin[piece], self.samples.end[piece]
        first = self.terrain.at(begin[:, 0], begin[:, 1])
        last = self.terrain.at(end[:, 0], end[:, 1])
        rise = (at_base - first)[row] - (last - first)[row] * part
        return np.clip(np.nan_to_num(rise, nan=0.0), -_MOST_RISE_M, _MOST_RISE_M)

    def see_areas(self) -> None:
        """Add areas that contain a part of a lane: a forest, or a house drawn over the road."""
        chosen, polygons = areas(self.obstacles, self.around)
        if not len(chosen):
            return
        tree = shapely.STRtree(polygons)
        samples = self.samples
        lines = shapely.linestrings(np.stack((samples.begin, samples.end), axis=1))
        piece, number = tree.query(lines, predicate="intersects")
        row, sample = samples.all_of(piece)
        part = samples.part(piece[row], sample)[:, None]
        places = samples.begin[piece][row] * (1.0 - part) + samples.end[piece][row] * part
        shapely.prepare(polygons)
        inside = shapely.contains_xy(polygons[number[row]], places[:, 0], places[:, 1])
        row, sample, places = row[inside], sample[inside], places[inside]
        owner = chosen[number[row]]
        azimuth, elevation = look_angles(self.satellite, places[:, 0], places[:, 1])
        up = elevation >= LEAST_ELEVATION_DEG
        across = np.abs(np.sin(np.radians(azimuth - samples.heading[piece[row]])))
        free = samples.clear_m[samples.lane[piece[row]]] / np.maximum(across, 0.05)
        distance = np.where(self.is_green[owner], free, 0.0)
        over = self.antenna.height_m + distance * np.tan(np.radians(elevation))
        chance = self.heights.higher_than(self.height[owner], over)
        self._add(owner[up], sample[up], chance[up])

    def see_slabs(self) -> None:
        """Add overhead obstacles: bridges, gantries, roofs."""
        slabs = Slabs(self.obstacles, self.around)
        if not len(slabs.owner):
            return
        view = _View(self.satellite, slabs.corners[:, 0])
        thickness = np.array([self.obstacles[n].thickness_m for n in slabs.owner])
        highest = self.heights.greatest_m(self.height[slabs.owner]) + thickness
        reach = np.minimum((highest - self.antenna.height_m) / view.slope, _LONGEST_M)
        chosen = np.flatnonzero((reach > 0.0) & view.is_up)
        view, corners, owner = view.of(chosen), slabs.corners[chosen], slabs.owner[chosen]
        away = view.degrees(-reach[chosen])
        swept = np.concatenate((corners, corners + away[:, None, :]), axis=1)
        hulls = shapely.convex_hull(shapely.multipoints(swept))
        slab, piece = self._near(np.asarray(hulls))
        kept = self._passes_over(owner[slab], self.samples.lane[piece])
        slab, piece = slab[kept], piece[kept]
        row, sample = self.samples.all_of(piece)
        part = self.samples.part(piece[row], sample)[:, None]
        begin, end = self.samples.begin[piece][row], self.samples.end[piece][row]
        seen = view.of(slab[row])
        entry, leave = _crossing(seen, corners[slab[row]], begin + (end - begin) * part)
        hit = leave > entry
        row, sample, entry, leave = row[hit], sample[hit], entry[hit], leave[hit]
        slope, of = seen.slope[hit], owner[slab[row]]
        low = self.antenna.height_m + entry * slope - thickness[chosen][slab[row]]
        high = self.antenna.height_m + leave * slope
        above = self.heights.higher_than(self.height[of], low)
        self._add(of, sample, above - self.heights.higher_than(self.height[of], high))

    def _passes_over(self, owner: Integers, lane: Integers) -> np.typing.NDArray[np.bool_]:
        layer = np.array([one.layer for one in self.obstacles], dtype=np.int64)
        ends = np.array([one.ends or (-3, -4) for one in self.obstacles], dtype=np.int64)
        meets = (ends[owner][:, :, None] == self.samples.ends[lane][:, None, :]).any(axis=(1, 2))
        return np.asarray((layer[owner] > self.samples.layer[lane]) & ~meets, dtype=np.bool_)

    def see_terrain(self) -> None:
        """Add the shadows of mountains."""
        if self.terrain is None:
            return
        samples = self.samples
        row, sample = samples.all_of(np.arange(len(samples.lane)))
        at_m = sample - samples.first[samples.lane[row]]
        looked = np.flatnonzero(at_m % _TERRAIN_EVERY_M == 0)
        part = samples.part(row[looked], sample[looked])[:, None]
        places = samples.begin[row[looked]] * (1.0 - part) + samples.end[row[looked]] * part
        azimuth, elevation = look_angles(self.satellite, places[:, 0], places[:, 1])
        up = elevation >= LEAST_ELEVATION_DEG
        hidden, unknown = np.zeros(len(looked)), np.zeros(len(looked), dtype=np.bool_)
        hidden[up], unknown[up] = self.terrain.hides(
            places[up, 0], places[up, 1], azimuth[up], elevation[up], self.antenna.height_m
        )
        found = np.zeros(samples.total)
        found[sample[looked]], self.unknown[sample[looked]] = hidden, unknown
        # Each result stands for the metres that follow on its lane.
        each = np.arange(samples.total) - np.repeat(samples.first, samples.counts)
        of = np.arange(samples.total) - each % _TERRAIN_EVERY_M
        self._add_all(found[of])
        self.unknown = self.unknown[of]

    def _add(self, owner: Integers, sample: Integers, chance: Floats) -> None:
        """Add the probabilities that obstacles are in the way of samples."""
        found = np.log1p(-np.clip(chance * self.opacity[owner], 0.0, 1.0 - 1e-12))
        kept = np.flatnonzero(found < -1e-4)
        owner, sample, found = owner[kept], sample[kept], found[kept]
        order = np.lexsort((found, owner, sample))
        owner, sample, found = owner[order], sample[order], found[order]
        # For each obstacle and sample only the wall that hides most counts, which comes first.
        first = np.ones(len(owner), dtype=np.bool_)
        first[1:] = (owner[1:] != owner[:-1]) | (sample[1:] != sample[:-1])
        np.add.at(self.clear, sample[first], found[first])

    def _add_all(self, chance: Floats) -> None:
        self.clear += np.log1p(-np.minimum(chance, 1.0 - 1e-12))


class _View:
    """Local axes at places: ahead towards the satellite, and aside, to the right of that."""

    def __init__(self, satellite: Satellite, origin: Floats) -> None:
        self.origin = origin
        self.azimuth, elevation = look_angles(satellite, origin[:, 0], origin[:, 1])
        self.is_up = elevation >= LEAST_ELEVATION_DEG
        self.slope: Floats = np.tan(np.radians(np.clip(elevation, LEAST_ELEVATION_DEG, 89.9)))
        self.sin, self.cos = np.sin(np.radians(self.azimuth)), np.cos(np.radians(self.azimuth))
        self.scale: Floats = np.stack(metres_per_degree(origin[:, 1]), axis=1)

    def of(self, chosen: Integers) -> _View:
        """Return the axes of some rows."""
        some = object.__new__(_View)
        for name, values in vars(self).items():
            setattr(some, name, values[chosen])
        return some

    def metres(self, places: Floats) -> tuple[Floats, Floats]:
        """Return metres ahead and aside of places, one for each origin."""
        x, y = ((places - self.origin) * self.scale).T
        return x * self.sin + y * self.cos, x * self.cos - y * self.sin

    def width(self, places: Floats) -> Floats:
        """Return how wide the line from each origin to a place looks from the satellite."""
        return np.abs(self.metres(places)[1])

    def degrees(self, ahead_m: Floats) -> Floats:
        """Return the differences in degrees to places this far ahead."""
        return np.stack((ahead_m * self.sin, ahead_m * self.cos), axis=1) / self.scale


def _between(first: Floats, last: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return from which part to which, 0 to 1, a value moving linearly is between two bounds.

    If it is nowhere between them, the first result is above the second.
    """
    step = last - first
    flat = np.abs(step) < 1e-9
    step = np.where(flat, 1.0, step)
    one, other = (low - first) / step, (high - first) / step
    begin, end = np.minimum(one, other), np.maximum(one, other)
    inside = (first >= low) & (first <= high)
    begin = np.where(flat, np.where(inside, 0.0, 1.0), begin)
    end = np.where(flat, np.where(inside, 1.0, 0.0), end)
    return np.maximum(begin, 0.0), np.minimum(end, 1.0)


def _crossing(view: _View, corners: Floats, places: Floats) -> tuple[Floats, Floats]:
    """Return the metres to where lines of sight enter and leave the space over convex quadrangles.

    If a line misses, or the quadrangle is behind the place, the exit is before the entry.
    """
    ahead, aside = view.metres(places)
    entry, leave = np.zeros(len(places)), np.full(len(places), np.inf)
    axes = [view.metres(corners[:, n]) for n in range(4)]
    for (ahead_1, aside_1), (ahead_2, aside_2) in zip(axes, axes[1:] + axes[:1], strict=True):
        # Quadrangles may be drawn in either sense: the middle tells which side is the inner one.
        inner_ahead = sum(axis[0] for axis in axes) / 4.0
        inner_aside = sum(axis[1] for axis in axes) / 4.0
        across, along = aside_2 - aside_1, ahead_2 - ahead_1
        turn = np.sign((inner_ahead - ahead_1) * across - (inner_aside - aside_1) * along)
        # Inside where start + distance * across * turn is above 0.
        start = turn * ((ahead - ahead_1) * across - (aside - aside_1) * along)
        step = turn * across
        flat = np.abs(step) < 1e-9
        at = -start / np.where(flat, 1.0, step)
        entry = np.where(~flat & (step > 0.0), np.maximum(entry, at), entry)
        leave = np.where(~flat & (step < 0.0), np.minimum(leave, at), leave)
        leave = np.where(flat & (start < 0.0), -1.0, leave)
    return entry, leave
