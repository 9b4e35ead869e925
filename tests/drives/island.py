"""The roads of an invented island, as OpenStreetMap would hold them.

A motorway with a long tunnel in two bores and a short one, a country road that runs beside it,
climbs over the long tunnel along its axis and has a tunnel of its own, a town whose main street
dives under a square with side streets beside the ramps, and a mountain road with two tunnels and
an avalanche gallery. `python -m tests.drives.island` writes it to `island.osm`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from xml.sax.saxutils import quoteattr

from dama.prediction.places import Plane, Position

ISLAND_OSM = Path(__file__).parent / "island.osm"
# The open Atlantic: whatever is drawn here is nowhere else.
PLANE = Plane((-30.0, 46.0))

Metres = tuple[float, float]


@dataclass(frozen=True)
class Way:
    """A way as drawn: points in metres around the island's middle."""

    id: int
    points: tuple[Metres, ...]
    tags: Mapping[str, str]

    @property
    def covered(self) -> bool:
        """Whether the sky is hidden."""
        return "tunnel" in self.tags or "covered" in self.tags

    @property
    def oneway(self) -> bool:
        """Whether it is driven as drawn only."""
        return self.tags.get("oneway") == "yes"

    @property
    def limit_mps(self) -> float:
        """The posted limit."""
        return float(self.tags["maxspeed"]) / 3.6


@dataclass
class _Drawing:
    ways: list[Way] = field(default_factory=list)
    signals: set[Metres] = field(default_factory=set)

    def way(self, points: Iterable[Metres], road: str, name: str, speed: int, **tags: str) -> None:
        rounded = tuple((round(x, 1), round(y, 1)) for x, y in points)
        ways_tags = {"highway": road, "name": name, "maxspeed": str(speed)} | tags
        self.ways.append(Way(1001 + len(self.ways), rounded, ways_tags))


@dataclass(frozen=True)
class Island:
    """All ways, and the points where traffic lights stand."""

    ways: tuple[Way, ...]
    signals: frozenset[Metres]


def island() -> Island:
    """Draw the island."""
    drawing = _Drawing()
    _motorway(drawing)
    _country_road(drawing)
    _town(drawing)
    _mountain_road(drawing)
    return Island(tuple(drawing.ways), frozenset(drawing.signals))


def _bend(x: float) -> float:
    """Return how far north the motorway's middle runs."""
    return 300.0 * math.sin(x / 2500.0) + 60.0 * math.sin(x / 700.0)


def _along(first: float, last: float, offset: float = 0.0, step: float = 50.0) -> list[Metres]:
    count = max(round(abs(last - first) / step), 1)
    places = (first + (last - first) * number / count for number in range(count + 1))
    return [(x, _bend(x) + offset) for x in places]


def _motorway(drawing: _Drawing) -> None:
    cuts = [-9000, -1200, 2000, 3600, 5200, 8000, 8350, 11000]
    covered = {2000, 8000}
    for side, offset in (("east", -10.0), ("west", 10.0)):
        for first, last in pairwise(cuts):
            points = _along(first, last, offset)
            extra = {"oneway": "yes", "ref": "A1"}
            if first in covered:
                extra |= {"tunnel": "yes", "layer": "-1"}
            drawing.way(
                points if side == "east" else points[::-1], "motorway", f"A1 {side}", 100, **extra
            )
    # Slip roads to the country road: 3.2 km and 1.6 km before the long tunnel's portals.
    for join, leave in ((-1200.0, -1000.0), (5200.0, 5000.0)):
        for offset in (-10.0, 10.0):
            start = (join, _bend(join) + offset)
            end = (leave, _bend(leave) + 60.0)
            middle = ((join + leave) / 2, _bend(join) + offset + (25 if offset > 0 else 12))
            ends = [start, middle, end] if (offset < 0) == (join < leave) else [end, middle, start]
            drawing.way(ends, "motorway_link", "", 50, oneway="yes")


def _country_road(drawing: _Drawing) -> None:
    def beside(first: float, last: float, offset: float = 60.0) -> list[Metres]:
        return _along(first, last, offset)

    # It comes within 25 m of the motorway and crosses over its tunnel along the axis.
    over = [
        *beside(-1000, 1200),
        *((x, _bend(x) + 60.0 - 35.0 * min((x - 1200) / 400, 1.0)) for x in range(1250, 1900, 50)),
        *((x, _bend(x) + 25.0 - 25.0 * min((x - 1900) / 400, 1.0)) for x in range(1900, 2700, 50)),
        *((x, _bend(x) + 30.0 * min((x - 2640) / 600, 2.0)) for x in range(2700, 3900, 50)),
        *beside(3900, 5000),
    ]
    name = "Ridge Road"
    drawing.way(beside(-9000, -6000), "secondary", name, 80)
    drawing.way(beside(-6000, -1000), "secondary", name, 80)
    drawing.way(over, "secondary", name, 80)
    drawing.way(beside(5000, 6750), "secondary", name, 80)
    drawing.way(beside(6750, 7000), "secondary", name, 80)
    drawing.way(beside(7000, 7240), "secondary", name, 80, tunnel="yes", layer="-1")
    drawing.way(beside(7240, 9000), "secondary", name, 80)
    drawing.way(beside(9000, 11000), "secondary", name, 80)
    # A farm track and a village street that leave 250 m before the tunnel, and beyond it.
    for x in (6750.0, 9000.0):
        start = (x, _bend(x) + 60.0)
        drawing.way([start, (x + 80, start[1] + 90), (x + 90, start[1] + 900)], "tertiary", "", 50)
    drawing.signals.add((9000.0, round(_bend(9000.0) + 60.0, 1)))


def _town(drawing: _Drawing) -> None:
    """A grid whose main street runs under the middle two blocks."""
    west, south, block, count = -6000.0, _bend(-6000.0) + 1400.0, 120.0, 9
    xs = [west + block * number for number in range(count)]
    ys = [south + block * number for number in range(count)]
    main = 4
    for number, x in enumerate(xs):
        for low, high in pairwise(ys):
            drawing.way([(x, low), (x, high)], "residential", f"Street {number}", 30)
    for number, y in enumerate(ys):
        if number == main:
            continue
        for left, right in pairwise(xs):
            drawing.way([(left, y), (right, y)], "residential", f"Row {number}", 30)
    y, name = ys[main], "Main Street"
    _main_street(drawing, xs, y, name)
    out = [(xs[-1], y), (xs[-1] + 300, y - 20), (xs[-1] + 700, y - 30)]
    drawing.way(out, "primary", name, 50)
    # Down to the country road, and up to the mountain.
    drawing.way(
        [(west, south), (west - 10, south - 700), (-6000.0, _bend(-6000.0) + 60.0)],
        "tertiary",
        "Gate Road",
        50,
    )


def _main_street(drawing: _Drawing, xs: list[float], y: float, name: str) -> None:
    for left, right in pairwise(xs[:3]):
        drawing.way([(left, y), (right, y)], "primary", name, 50)
    for left, right in pairwise(xs[6:]):
        drawing.way([(left, y), (right, y)], "primary", name, 50)
    # From the third crossing to the seventh the street passes below; side lanes stay above.
    start, end = xs[2], xs[6]
    drawing.way([(start, y), (start + 90, y)], "primary", name, 50)
    drawing.way([(start + 90, y), (end - 90, y)], "primary", name, 50, tunnel="yes", layer="-1")
    drawing.way([(end - 90, y), (end, y)], "primary", name, 50)
    for lane in (-14.0, 14.0):
        points = [(start, y), (start + 15, y + lane), (end - 15, y + lane), (end, y)]
        drawing.way(points, "residential", "Lane", 30)
    drawing.signals |= {(x, y) for x in (xs[1], xs[2], xs[6], xs[7])}


def _mountain_road(drawing: _Drawing) -> None:
    """From the town's end eastwards and up: bends, two tunnels and a gallery."""
    x0, y0 = -6000.0 + 960.0 + 700.0, _bend(-6000.0) + 1400.0 + 480.0 - 30.0

    def winding(first: float, last: float) -> list[Metres]:
        count = max(round((last - first) / 30.0), 1)
        at = (first + (last - first) * number / count for number in range(count + 1))
        return [(x0 + s, y0 + 150.0 * math.sin(s / 260.0) + 0.15 * s) for s in at]

    name = "Pass Road"
    pieces = [
        (0, 1100, {}),
        (1100, 1550, {"tunnel": "yes", "layer": "-1"}),
        (1550, 2900, {}),
        (2900, 3060, {"tunnel": "avalanche_protector"}),
        (3060, 3130, {"tunnel": "avalanche_protector"}),
        (3130, 3500, {}),
        (3500, 3900, {"tunnel": "yes", "layer": "-1"}),
        (3900, 6000, {}),
    ]
    for first, last, extra in pieces:
        drawing.way(winding(first, last), "secondary", name, 70, **extra)
    # The old road around the first tunnel, closed to nobody.
    around = [winding(900, 1100)[0], *((x + 10, y + 70) for x, y in winding(1000, 1650)[::3])]
    drawing.ways[-len(pieces)] = _with(drawing.ways[-len(pieces)], winding(900, 1100)[0])
    drawing.ways[-len(pieces) + 2] = _with(drawing.ways[-len(pieces) + 2], winding(1750, 1750)[0])
    drawing.way([*around, winding(1750, 1750)[0]], "unclassified", "Old Pass Road", 50)


def _with(way: Way, point: Metres) -> Way:
    """Add a junction to a way drawn from west to east."""
    exact = (round(point[0], 1), round(point[1], 1))
    return Way(way.id, tuple(sorted({*way.points, exact})), way.tags)


def position(point: Metres) -> Position:
    """Return the place of a point, as exactly as the file gives it."""
    lon, lat = PLANE.position(*point)
    return round(lon, 7), round(lat, 7)


def as_osm(drawn: Island) -> str:
    """Return the island as an OpenStreetMap file."""
    numbers: dict[Metres, int] = {}
    for way in drawn.ways:
        for point in way.points:
            numbers.setdefault(point, 1 + len(numbers))
    lines = ["<?xml version='1.0' encoding='UTF-8'?>", '<osm version="0.6" generator="underpass">']
    for point, number in numbers.items():
        lon, lat = position(point)
        head = f'<node id="{number}" version="1" lon="{lon:.7f}" lat="{lat:.7f}"'
        signal = '><tag k="highway" v="traffic_signals"/></node>'
        lines.append(head + (signal if point in drawn.signals else "/>"))
    for way in drawn.ways:
        refs = "".join(f'<nd ref="{numbers[point]}"/>' for point in way.points)
        tags = "".join(
            f"<tag k={quoteattr(key)} v={quoteattr(value)}/>"
            for key, value in way.tags.items()
            if value
        )
        lines.append(f'<way id="{way.id}" version="1">{refs}{tags}</way>')
    return "\n".join([*lines, "</osm>", ""])


if __name__ == "__main__":
    ISLAND_OSM.write_text(as_osm(island()))
