"""Obstructions by the parts of the map that they touch, at a cost that follows the answer.

Each obstruction is in a strip of latitudes, by the south side of the box around it. Strips are as
high as the least of `_SIZES` that the box fits into, so what touches a part of the map is in few
strips of each size, and in each strip between two longitudes. One index has all of that, in the
same way on both databases.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, CompoundSelect, Select, select, union_all

from underpass_control.storage.models import Obstruction as Table

# In degrees; the last holds everything. Most obstructions are some hundred metres long.
_SIZES = (0.01, 0.1, 1.0, 10.0, 360.0)
# More than there are strips of one size.
_STRIPS = 1_000_000
# The most strips that a query names; of more, all are searched that lie between the outer two.
_MOST_NAMED = 64
# More than the differences of degrees are rounded by.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Box:
    """A part of the map, in degrees."""

    west: float
    south: float
    east: float
    north: float

    @property
    def strip(self) -> int:
        """The number of its strip."""
        size = max(self.east - self.west, self.north - self.south)
        return _strip(next(n for n, most in enumerate(_SIZES) if size <= most), self.south)


def parts_of(box: Box) -> Iterator[tuple[float, Box]]:
    """Yield the parts of the map that a box covers whose longitudes may lie beyond 180 degrees.

    Each comes with the turn, in degrees, that brings longitudes of the box there.
    """
    for turn in (0.0, 360.0, -360.0):
        low, high = max(box.west + turn, -180.0), min(box.east + turn, 180.0)
        if low <= high:
            yield turn, Box(low, box.south, high, box.north)


def touches(box: Box) -> tuple[ColumnElement[bool], ...]:
    """Return the conditions that an obstruction touches a part of the map."""
    return (
        Table.west <= box.east,
        Table.east >= box.west,
        Table.south <= box.north,
        Table.north >= box.south,
    )


def touching(box: Box) -> CompoundSelect[Any]:
    """Return the query of the ids and boxes of the obstructions that touch a part of the map."""
    return union_all(*(_of_size(number, box) for number in range(len(_SIZES))))


def _of_size(number: int, box: Box) -> Select[str, float, float, float, float]:
    reach = _SIZES[number] + _ROUNDING
    first, last = _strip(number, max(box.south - reach, -90.0)), _strip(number, box.north)
    named = range(first, last + 1)
    few = len(named) <= _MOST_NAMED
    in_strips = Table.strip.in_(named) if few else Table.strip.between(first, last)
    columns = (Table.id, Table.west, Table.south, Table.east, Table.north)
    return select(*columns).where(in_strips, Table.west >= box.west - reach, *touches(box))


def _strip(number: int, south: float) -> int:
    return number * _STRIPS + math.floor((south + 90.0) / _SIZES[number])
