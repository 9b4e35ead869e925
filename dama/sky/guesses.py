"""Estimates of missing building heights, from the heights that the map has.

Near buildings of similar use and ground plan have similar heights; houses of one series have the
same plan and the same height. So the height of a building without one is a mixture of the known
heights nearby, weighted by likeness, and of the usual height of such buildings elsewhere. How much
nearness, ground plan and use tell differs from town to town. It is fitted so that each known height
is estimated best from the others.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import shapely

from dama.prediction.places import Line
from dama.sky.ground import metres_per_degree, unwrapped
from dama.sky.heights import Belief, Heights
from dama.sky.lanes import Integers
from dama.sky.obstacles import Obstacle
from dama.sky.satellite import Floats

# Each building is compared with known ones within a reach of these bounds, at most this many.
_REACH_M, _LEAST_REACH_M, _COMPARED = 1_500.0, 150.0, 40
# Buildings that are processed together: bounds the memory.
_AT_ONCE = 256
# The most known heights used in the fit, whose cost grows with their square.
_FITTED = 400
# Fewer known heights than this are too few to fit the likeness.
_FEW = 8


@dataclass(frozen=True, slots=True)
class Footprint:
    """A building's use, ground plan and height: usual for its kind, and known by its tags or None.

    `number` is its place among the obstacles.
    """

    number: int
    use: str
    ring: Line
    usual: Belief
    known: Belief | None
    is_part: bool = False


@dataclass(frozen=True, slots=True)
class _Likeness:
    """How much two buildings are alike.

    Likeness halves at `near_m` metres, halves again where size and outline differ by `ground` (the
    logarithm of a factor), and is multiplied by `other_use` where the use differs. The usual height
    counts as much as `usual` buildings of full likeness. `differs` is the least spread of a known
    height.
    """

    near_m: float = 120.0
    ground: float = 0.7
    other_use: float = 0.5
    usual: float = 0.2
    differs: float = 0.15

    def weights(self, away_m: Floats, ground: Floats, same_use: Floats) -> Floats:
        """Return the weights of buildings by distance, difference in ground, and use (0 or 1)."""
        alike = 1.0 / (1.0 + (ground / self.ground) ** 2) / (1.0 + (away_m / self.near_m) ** 2)
        return np.asarray(alike * np.where(same_use > 0.0, 1.0, self.other_use))


_CHOICES = [
    _Likeness(*one)
    for one in itertools.product(
        (30.0, 60.0, 120.0, 250.0, 1_000.0),
        (0.03, 0.1, 0.3, 1.0),
        (0.1, 0.5, 1.0),
        (0.01, 0.05, 0.2, 1.0),
        (0.08, 0.15, 0.3),
    )
]


class _Known:
    """Buildings as arrays: middles in metres, logarithms of size, uses, and known heights."""

    def __init__(
        self, footprints: Sequence[Footprint], around: float, scale: Floats, uses: dict[str, int]
    ) -> None:
        self.places, self.ground = _measured(footprints, around, scale)
        self.use: Integers = np.array(
            [uses.setdefault(one.use, len(uses)) for one in footprints], dtype=np.int64
        )
        self.known = [one.known for one in footprints if one.known is not None]

    def rows(self, differs: float) -> Floats:
        """Return the survival functions of the known heights, with at least this spread."""
        return np.array(
            [replace(one, spread=max(one.spread, differs)).survival() for one in self.known]
        )


def guess(obstacles: list[Obstacle], heights: Heights, footprints: Sequence[Footprint]) -> None:
    """Give each building of unknown height a mixture of the known heights.

    The obstacles are replaced in their places.
    """
    of_known = [one for one in footprints if one.known is not None]
    others = [one for one in footprints if one.known is None]
    if len(of_known) < _FEW or not others:
        return
    around = footprints[0].ring[0][0]
    scale = np.concatenate(metres_per_degree(np.array([footprints[0].ring[0][1]])))
    uses: dict[str, int] = {}
    known = _Known(of_known, around, scale, uses)
    asked = _Known(others, around, scale, uses)
    shift = _shift(of_known)
    likeness = _fitted(known, [_moved(one.usual, shift) for one in of_known])
    rows = known.rows(likeness.differs)
    usual = {one.usual: _moved(one.usual, shift).survival() for one in others}
    for number, near, away in _nearest(known.places, asked.places):
        one = others[number]
        weights = likeness.weights(
            away,
            np.hypot(*(known.ground[near] - asked.ground[number]).T),
            (known.use[near] == asked.use[number]).astype(np.float64),
        )
        parts = np.concatenate((rows[near], [usual[one.usual]]))
        height = heights.add_mixture(parts, np.append(weights, likeness.usual))
        obstacles[one.number] = replace(obstacles[one.number], height=height)


def _shift(known: Sequence[Footprint]) -> float:
    """Return the logarithm of the factor by which buildings here are higher than usual."""
    off = [math.log(one.known.median_m / one.usual.median_m) for one in known if one.known]
    return math.fsum(off) / (len(off) + _FEW)


def _moved(usual: Belief, shift: float) -> Belief:
    return replace(usual, median_m=min(usual.median_m * math.exp(shift), 300.0))


def _fitted(known: _Known, usual: Sequence[Belief]) -> _Likeness:
    """Return the likeness by which each known height is estimated best from the others."""
    some = np.linspace(0, len(usual) - 1, min(len(usual), _FITTED)).astype(np.int64)
    places, ground, use = known.places[some], known.ground[some], known.use[some]
    away = np.hypot(*(places[:, None, :] - places[None, :, :]).transpose(2, 0, 1))
    apart = np.hypot(*(ground[:, None, :] - ground[None, :, :]).transpose(2, 0, 1))
    same = (use[:, None] == use[None, :]).astype(np.float64)
    logs = np.log([known.known[n].median_m for n in some])
    expected = np.array([_density(usual[n], logs[k]) for k, n in enumerate(some)])
    spreads = np.array([known.known[n].spread for n in some])
    best, most = _Likeness(), -math.inf
    between: dict[float, Floats] = {}
    for choice in _CHOICES:
        if choice.differs not in between:
            spread = np.maximum(spreads, choice.differs)[None, :]
            off = (logs[:, None] - logs[None, :]) / spread
            between[choice.differs] = np.exp(-0.5 * off**2) / spread
        weights = choice.weights(away, apart, same)
        np.fill_diagonal(weights, 0.0)
        guessed = (weights * between[choice.differs]).sum(axis=1) + choice.usual * expected
        likely = float(np.log(guessed / (weights.sum(axis=1) + choice.usual) + 1e-9).sum())
        if likely > most:
            best, most = choice, likely
    return best


def _density(belief: Belief, log_m: float) -> float:
    """Return a belief's density at the logarithm of a height, up to a constant factor."""
    off = (log_m - math.log(belief.median_m)) / belief.spread
    return math.exp(-0.5 * off**2) / belief.spread


def _measured(
    footprints: Sequence[Footprint], around: float, scale: Floats
) -> tuple[Floats, Floats]:
    """Return middles in metres, and the logarithms of the areas and of the squared outlines."""
    counts = [len(one.ring) for one in footprints]
    places = np.array([place for one in footprints for place in one.ring], dtype=np.float64)
    places[:, 0] = unwrapped(places[:, 0], around)
    # Only near buildings are compared, so metres need to be right within a town only.
    places *= scale
    of = np.repeat(np.arange(len(counts)), counts)
    rings = shapely.polygons(shapely.linearrings(places, indices=of))
    middles = shapely.get_coordinates(shapely.centroid(rings))
    area, length = shapely.area(rings), shapely.length(rings)
    size = np.stack((area, length**2), axis=1)
    return middles, np.log(np.maximum(size, 1.0))


def _nearest(known: Floats, asked: Floats) -> Iterator[tuple[int, Integers, Floats]]:
    """Yield, for each place, the nearest known ones and how many metres away they are."""
    tree = shapely.STRtree(shapely.points(known))
    # All known ones within the reach are compared, so it is shorter where they are denser.
    area = max(float(np.prod(np.ptp(known, axis=0))), 1.0)
    reach = math.sqrt(4 * _COMPARED * area / (math.pi * len(known)))
    reach = min(max(reach, _LEAST_REACH_M), _REACH_M)
    for first in range(0, len(asked), _AT_ONCE):
        places = asked[first : first + _AT_ONCE]
        row, number = tree.query(shapely.points(places), predicate="dwithin", distance=reach)
        begins = np.searchsorted(row, np.arange(len(places) + 1))
        for one, place in enumerate(places):
            near = number[begins[one] : begins[one + 1]]
            if len(near):
                away = np.hypot(*(known[near] - place).T)
                chosen = np.argsort(away, kind="stable")[:_COMPARED]
                yield first + one, near[chosen], away[chosen]
