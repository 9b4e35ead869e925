"""Places on the ground: WGS 84 positions, a local plane to measure in, and directed courses."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple, TypeAlias

Position: TypeAlias = tuple[float, float]
"""Longitude and latitude in degrees, WGS 84."""

Line: TypeAlias = tuple[Position, ...]
"""Positions in the order in which they are driven."""

# Metres to a degree of latitude, for uses in which an error of one per cent does not matter.
METRES_PER_DEGREE = 111_320.0
# WGS 84: semi-major axis in metres, and the square of the first eccentricity.
_A_M = 6_378_137.0
_E2 = 6.694_379_990_14e-3


def is_on_earth(lon: float, lat: float) -> bool:
    """Tell whether the degrees are finite and in range."""
    # A comparison with NaN is false, so it needs no test of its own.
    return -180.0 <= lon <= 180.0 and -90.0 <= lat <= 90.0


class Plane:
    """Metres east and north of an origin.

    The ellipsoid's radii of curvature at the origin make distances true within 0.1 % up to
    10 km away (outside the polar caps): far less than the noise of a receiver.
    """

    __slots__ = ("_east_m", "_lat", "_lon", "_north_m")

    def __init__(self, origin: Position) -> None:
        self._lon, self._lat = origin
        latitude = math.radians(self._lat)
        curvature = 1.0 - _E2 * math.sin(latitude) ** 2
        self._north_m = math.radians(_A_M * (1.0 - _E2) / curvature**1.5)
        self._east_m = math.radians(_A_M / math.sqrt(curvature) * math.cos(latitude))

    def xy(self, position: Position) -> tuple[float, float]:
        """Return metres east and north of the origin."""
        # The shorter way round, so that places beside the 180th meridian are neighbours.
        east = (position[0] - self._lon + 540.0) % 360.0 - 180.0
        return east * self._east_m, (position[1] - self._lat) * self._north_m

    def position(self, x: float, y: float) -> Position:
        """Return the place so many metres east and north of the origin."""
        # At the pole there is no east; the least scale keeps the degrees finite.
        lon = self._lon + x / max(self._east_m, 1e-6)
        return (lon + 540.0) % 360.0 - 180.0, self._lat + y / self._north_m


def distance_m(here: Position, there: Position) -> float:
    """Return the distance of two places up to some 10 km apart."""
    return math.hypot(*Plane(here).xy(there))


def heading_deg(here: Position, there: Position) -> float:
    """Return the direction from one place to another, in degrees from true north."""
    x, y = Plane(here).xy(there)
    return math.degrees(math.atan2(x, y)) % 360.0


def turn_deg(before: float, after: float) -> float:
    """Return the angle between two headings, 0 to 180."""
    return abs((after - before + 540.0) % 360.0 - 180.0)


class Foot(NamedTuple):
    """The foot of a perpendicular on a course: how far along it is, and how far from the place.

    `right_m` is how far the place is to the right of the course's direction, below 0 to the left.
    """

    offset_m: float
    lateral_m: float
    heading_deg: float
    right_m: float


class Course:
    """A line measured along its way."""

    __slots__ = ("_at", "_headings", "_points", "_segments", "line", "plane")

    def __init__(self, line: Line) -> None:
        self.line = line
        self.plane = Plane(line[len(line) // 2])
        self._points = [self.plane.xy(position) for position in line]
        self._at = [0.0]
        self._headings: list[float] = []
        for (x0, y0), (x1, y1) in self._pairs(0, len(line) - 1):
            self._at.append(self._at[-1] + math.hypot(x1 - x0, y1 - y0))
            self._headings.append(math.degrees(math.atan2(x1 - x0, y1 - y0)) % 360.0)
        self._segments: list[tuple[float, float, float, float, float]] | None = None

    @property
    def length_m(self) -> float:
        """The length of the whole way."""
        return self._at[-1]

    def segments(self) -> Iterator[tuple[float, float]]:
        """Yield the length in metres and the heading in degrees of each segment."""
        for heading, (begins, ends) in zip(self._headings, pairwise(self._at), strict=True):
            yield ends - begins, heading

    def _pairs(
        self, first: int, last: int
    ) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
        return zip(self._points[first:last], self._points[first + 1 : last + 1], strict=True)

    def foot(self, position: Position, first: int, last: int) -> Foot:
        """Return the nearest place on the segments from vertex `first` to vertex `last`."""
        found = self.foot_within(position, first, last, math.inf)
        assert found is not None, "every place is nearer than that"
        return found

    def foot_within(self, position: Position, first: int, last: int, most_m: float) -> Foot | None:
        """Return the same, or None if it is further away than `most_m`."""
        segments = self._segments
        if segments is None:
            # Beginning, extent, and square of the length; computed late: most roads need no foot.
            segments = self._segments = [
                (x0, y0, x1 - x0, y1 - y0, (x1 - x0) ** 2 + (y1 - y0) ** 2)
                for (x0, y0), (x1, y1) in self._pairs(0, len(self._points) - 1)
            ]
        px, py = self.plane.xy(position)
        best, nearest, which = math.inf, 0.0, -1
        east = north = 0.0
        for number in range(first, last):
            x0, y0, dx, dy, square = segments[number]
            x, y = px - x0, py - y0
            along = x * dx + y * dy
            if along <= 0.0 or not square:
                part = 0.0
            else:
                part = along / square if along < square else 1.0
                x -= part * dx
                y -= part * dy
            away = x * x + y * y
            if away < best:
                best, nearest, which = away, part, number
                east, north = x, y
        lateral_m = math.sqrt(best)
        if lateral_m > most_m:
            return None
        _, _, dx, dy, square = segments[which]
        length = math.sqrt(square)
        right_m = (east * dy - north * dx) / length if length else lateral_m
        return Foot(self._at[which] + nearest * length, lateral_m, self._headings[which], right_m)

    def at(self, offset_m: float) -> tuple[Position, float]:
        """Return place and heading at a distance along the course, clamped to its ends."""
        offset_m = min(max(offset_m, 0.0), self.length_m)
        number = min(bisect_right(self._at, offset_m), len(self._at) - 1) - 1
        (x0, y0), (x1, y1) = self._points[number], self._points[number + 1]
        length = self._at[number + 1] - self._at[number]
        part = (offset_m - self._at[number]) / length if length else 0.0
        place = self.plane.position(x0 + part * (x1 - x0), y0 + part * (y1 - y0))
        return place, self._headings[number]

    def part(self, from_m: float, to_m: float) -> Line:
        """Return the part of the line from one distance along it to a greater one."""
        inner = [
            place
            for place, at_m in zip(self.line, self._at, strict=True)
            if from_m + 0.01 < at_m < to_m - 0.01
        ]
        first = self.line[0] if from_m <= 0.0 else self.at(from_m)[0]
        last = self.line[-1] if to_m >= self.length_m else self.at(to_m)[0]
        return (first, *inner, last)


def without_repeats(positions: Sequence[Position]) -> Line:
    """Drop every position that equals the one before it."""
    return tuple(
        position
        for number, position in enumerate(positions)
        if not number or position != positions[number - 1]
    )
