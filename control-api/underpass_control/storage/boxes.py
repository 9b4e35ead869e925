"""Obstructions by the parts of the map that they touch, at a cost that follows the answer.

Each obstruction is in a strip of latitudes, by the south side of the box around it. Strips are as
high as the least of `_SIZES` that the box fits into, so what touches a part of the map is in few
strips of each size, and in each strip between two longitudes. One index has all of that, in the
same way on both databases.

The 180th meridian is no border: the box around what crosses it goes on to the east of 180 degrees,
and a part of the map is searched by all longitudes that its places may have.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Select, and_, or_, select, union_all

from dama.prediction.places import Position
from underpass_control.storage.models import Obstruction as Table

# In degrees; the last holds everything. Most obstructions are some hundred metres long.
_SIZES = (0.01, 0.1, 1.0, 10.0, 360.0)
# More than there are strips of one size.
_STRIPS = 1_000_000
# The most strips that a query names; of more, all are searched that lie between the outer two.
_MOST_NAMED = 64
# More than the differences of degrees are rounded by.
_ROUNDING = 1e-9
# The differences, in degrees, between the longitudes that a place may have.
_TURNS = (0.0, 360.0, -360.0)
_HALF_ROUND = 180.0


@dataclass(frozen=True)
class Box:
    """A part of the map, in degrees; its longitudes may lie beyond 180 degrees."""

    west: float
    south: float
    east: float
    north: float

    @property
    def strip(self) -> int:
        """The number of its strip."""
        size = max(self.east - self.west, self.north - self.south)
        return _strip(next(n for n, most in enumerate(_SIZES) if size <= most), self.south)


def box_of(places: Sequence[Position], *, is_area: bool) -> Box:
    """Return the box around places, by the shorter way round; they may be an area's border."""
    lons, lats = zip(*places, strict=True)
    west, east = min(lons), max(lons)
    if east - west > _HALF_ROUND:
        beyond = [lon % 360.0 for lon in lons]
        low, high = min(beyond), max(beyond)
        # An area from -180 to 180 degrees is all around, and so is what surrounds a pole.
        is_across = high - low < _HALF_ROUND and (high > low or not is_area)
        west, east = (low, high) if is_across else (-_HALF_ROUND, _HALF_ROUND)
    return Box(west, min(lats), east, max(lats))


def touches(box: Box) -> ColumnElement[bool]:
    """Return the condition that an obstruction touches a part of the map."""
    return or_(*(and_(*_touches(box, turn)) for turn in _turns(box, _HALF_ROUND)))


def touching(box: Box) -> CompoundSelect[Any]:
    """Return the query of the ids and boxes of the obstructions that touch a part of the map.

    The longitudes are those nearest to the part's. One that reaches around the earth may be found
    twice.
    """
    return union_all(
        *(
            _of_size(number, box, turn)
            for number, size in enumerate(_SIZES)
            for turn in _turns(box, min(size, _HALF_ROUND))
        )
    )


def _turns(box: Box, size: float) -> list[float]:
    """Return the turns that bring a box to where obstructions of up to a size are.

    They begin at -180 to 180 degrees, and may end beyond 180 degrees.
    """
    return [
        turn
        for turn in _TURNS
        if box.west + turn <= _HALF_ROUND + size + _ROUNDING and box.east + turn >= -_HALF_ROUND
    ]


def _touches(box: Box, turn: float) -> tuple[ColumnElement[bool], ...]:
    return (
        Table.west <= box.east + turn,
        Table.east >= box.west + turn,
        Table.south <= box.north,
        Table.north >= box.south,
    )


def _of_size(number: int, box: Box, turn: float) -> Select[str, float, float, float, float]:
    reach = _SIZES[number] + _ROUNDING
    first, last = _strip(number, max(box.south - reach, -90.0)), _strip(number, box.north)
    named = range(first, last + 1)
    few = len(named) <= _MOST_NAMED
    in_strips = Table.strip.in_(named) if few else Table.strip.between(first, last)
    west, east = (Table.west - turn).label("west"), (Table.east - turn).label("east")
    found = select(Table.id, west, Table.south, east, Table.north)
    return found.where(in_strips, Table.west >= box.west + turn - reach, *_touches(box, turn))


def _strip(number: int, south: float) -> int:
    return number * _STRIPS + math.floor((south + 90.0) / _SIZES[number])
