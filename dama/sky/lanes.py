"""The lanes of roads; for each metre of them the view of the sky is computed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import shapely

from dama.prediction.places import Line
from dama.sky.errors import SkyError
from dama.sky.ground import check_line, metres_per_degree, unwrapped
from dama.sky.satellite import Floats

Integers = npt.NDArray[np.int64]

# The longest piece of a straight road, so that each is near to the obstacles that may shade it.
_PIECE_M = 200.0
# The most metres of one call; each takes some 8 bytes, and as much again during the computation.
MAX_METRES = 200_000_000


@dataclass(frozen=True, slots=True)
class Lane:
    """A side of a road in one direction of driving.

    `line` is the road's middle in the direction of driving, `offset_m` the distance of the lane to
    the right of it. `clear_m` is the distance from the road's middle at which trees begin.
    `covered` says that the map has a roof over all of it. `ends` are the ids of the junctions at
    its ends: a bridge that begins there does not pass over it.
    """

    id: str
    line: Line
    offset_m: float = 0.0
    clear_m: float = 6.0
    layer: int = 0
    covered: bool = False
    ends: tuple[int, int] | None = None

    def __post_init__(self) -> None:
        check_line(self.line, 2, f"lane {self.id}")
        if not abs(self.offset_m) <= 50.0 or not 0.0 <= self.clear_m <= 100.0:
            raise SkyError(f"lane {self.id}: no road is so wide")


class Samples:
    """All metres of some lanes, as arrays.

    A *piece* is a straight part of a lane; a *sample* is the middle of a metre, so that sample k of
    a lane is k + 0.5 m from its beginning. The last one stands for the rest of a metre.
    """

    def __init__(self, lanes: Sequence[Lane], around: float) -> None:
        self.lanes = tuple(lanes)
        counts = np.array([len(lane.line) for lane in lanes], dtype=np.int64)
        places = np.array([place for lane in lanes for place in lane.line], dtype=np.float64)
        places = places.reshape(-1, 2)
        places[:, 0] = unwrapped(places[:, 0], around)
        owner = np.repeat(np.arange(len(lanes)), counts)
        same = owner[1:] == owner[:-1]
        begin, end, lane = places[:-1][same], places[1:][same], owner[:-1][same]
        # A road that crosses the border of the unwrapped map goes the short way.
        end[:, 0] = begin[:, 0] + (end[:, 0] - begin[:, 0] + 540.0) % 360.0 - 180.0
        east_m, north_m = metres_per_degree((begin[:, 1] + end[:, 1]) / 2.0)
        dx, dy = (end[:, 0] - begin[:, 0]) * east_m, (end[:, 1] - begin[:, 1]) * north_m
        length = np.hypot(dx, dy)
        lengths: Floats = np.bincount(lane, length, len(lanes)).astype(np.float64)
        if lengths.sum() > MAX_METRES:
            raise SkyError(f"more than {MAX_METRES // 1000} km of lanes: take the map in parts")
        run = np.cumsum(length) - length
        first = np.searchsorted(lane, np.arange(len(lanes)))
        from_m = run - run[np.minimum(first, max(len(run) - 1, 0))][lane]
        offset = np.array([one.offset_m for one in lanes])[lane] / np.maximum(length, 1e-9)
        aside: Floats = np.stack((dy * offset / east_m, -dx * offset / north_m), axis=1)
        begin, end = begin + aside, end + aside

        parts = np.maximum(np.ceil(length / _PIECE_M), 1.0).astype(np.int64)
        of: Integers = np.repeat(np.arange(len(length)), parts)
        number = np.arange(len(of)) - np.repeat(np.cumsum(parts) - parts, parts)
        low, high = number / parts[of], (number + 1) / parts[of]
        step = (end - begin)[of]
        self.begin: Floats = begin[of] + step * low[:, None]
        self.end: Floats = begin[of] + step * high[:, None]
        self.lane: Integers = lane[of]
        self.from_m: Floats = from_m[of] + length[of] * low
        self.to_m: Floats = from_m[of] + length[of] * high
        self.heading: Floats = np.degrees(np.arctan2(dx, dy))[of]

        self.lengths: Floats = lengths
        self.counts: Integers = np.maximum(np.ceil(lengths), 1.0).astype(np.int64)
        self.first: Integers = np.cumsum(self.counts) - self.counts
        self.total = int(self.counts.sum())
        self.layer: Integers = np.array([one.layer for one in lanes], dtype=np.int64)
        self.clear_m: Floats = np.array([one.clear_m for one in lanes])
        self.ends: Integers = np.array(
            [one.ends or (-1, -2) for one in lanes], dtype=np.int64
        ).reshape(-1, 2)

    def tree(self) -> shapely.STRtree:
        """Return an index of the pieces by place, in degrees."""
        return shapely.STRtree(shapely.linestrings(np.stack((self.begin, self.end), axis=1)))

    def within(self, piece: Integers, from_m: Floats, to_m: Floats) -> tuple[Integers, Integers]:
        """Return the samples of each piece from one distance along its lane to another.

        The result is two arrays: the index of the given row, and the sample's number among all.
        """
        count = self.counts[self.lane[piece]]
        # Each sample belongs to one piece; the last of a lane may stand for under half a metre.
        last = self.to_m[piece] >= self.lengths[self.lane[piece]] - 1e-9
        low = np.ceil(np.maximum(from_m, self.from_m[piece]) - 0.5).astype(np.int64)
        high = np.ceil(np.minimum(to_m, self.to_m[piece]) - 0.5).astype(np.int64)
        high = np.where(last & (to_m >= self.to_m[piece]), count, high)
        low = np.clip(low, 0, count)
        many = np.maximum(np.minimum(high, count) - low, 0)
        row = np.repeat(np.arange(len(piece)), many)
        number = np.arange(len(row)) - np.repeat(np.cumsum(many) - many, many)
        return row, self.first[self.lane[piece]][row] + low[row] + number

    def all_of(self, piece: Integers) -> tuple[Integers, Integers]:
        """Return all samples of some pieces, as `within` does."""
        return self.within(piece, self.from_m[piece], self.to_m[piece])

    def part(self, piece: Integers, sample: Integers) -> Floats:
        """Return how far along their pieces samples are, 0 to 1."""
        at_m = sample - self.first[self.lane[piece]] + 0.5
        length = np.maximum(self.to_m[piece] - self.from_m[piece], 1e-9)
        return np.clip((at_m - self.from_m[piece]) / length, 0.0, 1.0)
