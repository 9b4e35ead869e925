"""The roads of an OpenStreetMap extract, and the objects beside them that may hide the sky."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import osmium

from dama.prediction.network import MOST_NODES, Way, is_road
from dama.prediction.places import Line, without_repeats
from dama.prediction.turns import Restriction
from dama.sky import Heights, Obstacle, tags
from dama.sky.guesses import Footprint, guess
from dama.sky.parts import drawn_in_parts
from underpass_control.obstructions.extract import (
    ExtractError,
    Progress,
    Traffic,
    way_of,
    with_traffic,
)

# Objects with one of `_KEYS` are read; those with one of `_AREAS` may be areas.
_AREAS = ("building", "building:part", "natural", "landuse")
_KEYS = (*_AREAS, "barrier", "highway", "railway", "man_made")
_REPORT_EVERY = 10_000
# A layer above all others: a roof covers everything drawn below it.
_ABOVE_ALL = 100
# The most positions of an area: a forest has some ten thousand.
_MOST_POSITIONS = 200_000


@dataclass(slots=True)
class Surroundings:
    """The roads of an extract with their turn restrictions, and its obstacles with their heights.

    `without_shape` counts the objects that are left out because of their shape: a wall of one node,
    an area of fewer than three corners, a wall of a hundred thousand nodes. Roads are never left
    out: one of too many nodes is an error of `Network`.
    """

    ways: list[Way] = field(default_factory=list)
    turns: list[Restriction] = field(default_factory=list)
    lights: set[int] = field(default_factory=set)
    obstacles: list[Obstacle] = field(default_factory=list)
    heights: Heights = field(default_factory=Heights)
    without_shape: int = 0


def read_surroundings(path: Path, progress: Progress) -> Surroundings:
    """Read roads, buildings, trees, walls and bridges. Raises `ExtractError`."""
    if not path.is_file():
        raise ExtractError(f"{path}: no such file")
    reader, traffic = _Reader(), Traffic()
    try:
        for number, (of, lines, name, way) in enumerate(_objects(path, traffic), 1):
            reader.take(of, lines, name, way)
            if number % _REPORT_EVERY == 0:
                progress("surroundings", number, None)
    except (RuntimeError, OSError) as error:
        raise ExtractError(f"{path}: {error}") from error
    reader.found.turns = traffic.turns
    reader.found.lights = traffic.lights.intersection(
        node for way in reader.found.ways for node in way.nodes
    )
    reader.finish()
    progress("surroundings", len(reader.found.obstacles), len(reader.found.obstacles))
    return reader.found


_Object = tuple[Mapping[str, str], tuple[Line, ...], str, Way | None]


def _objects(path: Path, traffic: Traffic) -> Iterator[_Object]:
    """Yield each object's tags, lines (an area's rings), name, and the way if it is one.

    Traffic lights and turn restrictions are taken in meanwhile.
    """
    read = osmium.filter.KeyFilter(*_KEYS)
    read.enable_for(osmium.osm.WAY | osmium.osm.AREA)
    objects = (
        osmium.FileProcessor(str(path))
        .with_locations()
        .with_areas(osmium.filter.KeyFilter(*_AREAS))
        .with_filter(read)
    )
    for one in with_traffic(objects):
        of = {tag.k: tag.v for tag in one.tags}
        if isinstance(one, osmium.osm.Area):
            kind = "way" if one.from_way() else "relation"
            name = f"osm:{kind}/{one.orig_id()}"
            for number, outer in enumerate(one.outer_rings()):
                rings = (outer, *one.inner_rings(outer))
                lines = tuple(tuple((node.lon, node.lat) for node in ring) for ring in rings)
                yield of, lines, f"{name}/{number}" if number else name, None
        elif isinstance(one, osmium.osm.Way):
            way = way_of(one, of)
            yield of, (way.line,), f"osm:way/{way.id}", way
        else:
            traffic.take(one)


class _Reader:
    """Turns objects into obstacles."""

    def __init__(self) -> None:
        self.found = Surroundings()
        self._footprints: list[Footprint] = []
        self._parts: list[Line] = []

    def take(
        self, of: Mapping[str, str], lines: tuple[Line, ...], name: str, way: Way | None
    ) -> None:
        """Take in an object: an area if `way` is None."""
        if way is not None and is_road(of):
            self.found.ways.append(way)
        if sum(map(len, lines)) > (_MOST_POSITIONS if way is None else MOST_NODES):
            self.found.without_shape += 1
        elif way is None:
            self._take_area(of, tuple(map(without_repeats, lines)), name)
        else:
            self._take_way(of, way, name)

    def _take_area(self, of: Mapping[str, str], rings: tuple[Line, ...], name: str) -> None:
        rings = tuple(ring for ring in rings if len(ring) > 3)
        if tags.is_building(of):
            if rings:
                self._take_building(of, rings, name)
            else:
                self.found.without_shape += 1
        elif tags.is_forest(of) and rings:
            self._add(
                Obstacle(
                    name,
                    rings,
                    self.found.heights.add(tags.trees(of, tags.FOREST)),
                    opacity=tags.FOREST_OPACITY,
                    is_vegetation=True,
                )
            )

    def _take_building(self, of: Mapping[str, str], rings: tuple[Line, ...], name: str) -> None:
        known, underside = tags.known_height(of), tags.underside(of)
        if tags.is_part(of):
            self._parts.append(rings[0])
        if underside is not None:
            top = known.median_m if known is not None else 0.0
            roof = tags.ROOF_M if tags.is_roof(of) else 3.0
            thickness = max(top - underside.median_m, roof)
            height = self.found.heights.add(underside)
            self._add(
                Obstacle(
                    name, rings, height, is_overhead=True, thickness_m=thickness, layer=_ABOVE_ALL
                )
            )
            return
        number = len(self.found.obstacles)
        usual = tags.height_by_kind(of)
        kind = of.get("building", of.get("building:part", "yes"))
        self._footprints.append(Footprint(number, kind, rings[0], usual, known, tags.is_part(of)))
        self._add(Obstacle(name, rings, self.found.heights.add(known or usual)))

    def _take_way(self, of: Mapping[str, str], way: Way, name: str) -> None:
        line = without_repeats(way.line)
        overhead = self._overhead_m(of)
        if overhead is None and of.get("natural") != "tree_row" and tags.wall(of) is None:
            return
        if len(line) < 2:
            self.found.without_shape += 1
            return
        heights = self.found.heights
        if overhead is not None:
            width, thickness = overhead
            self._add(
                Obstacle(
                    name,
                    (line,),
                    heights.add(tags.UNDERSIDE),
                    is_area=False,
                    is_overhead=True,
                    width_m=width,
                    thickness_m=thickness,
                    layer=max(tags.layer(of), 1),
                    ends=(way.nodes[0], way.nodes[-1]),
                )
            )
        elif (wall := tags.wall(of)) is not None:
            self._add(Obstacle(name, (line,), heights.add(wall), is_area=False))
        else:
            self._add(
                Obstacle(
                    name,
                    (line,),
                    heights.add(tags.trees(of, tags.TREES)),
                    opacity=tags.TREES_OPACITY,
                    is_area=False,
                    is_vegetation=True,
                )
            )

    @staticmethod
    def _overhead_m(of: Mapping[str, str]) -> tuple[float, float] | None:
        """Return width and thickness of a way that passes overhead; None for other ways."""
        if of.get("man_made") == "gantry":
            return 1.0, tags.GANTRY_M
        if of.get("bridge", "no") != "no" and ("highway" in of or "railway" in of):
            return tags.width_m(of) + 2.0, tags.BRIDGE_M
        return None

    def _add(self, obstacle: Obstacle) -> None:
        self.found.obstacles.append(obstacle)

    def finish(self) -> None:
        """Guess unknown heights from known ones; drop buildings that are drawn in parts."""
        found = self.found
        guess(found.obstacles, found.heights, self._footprints)
        wholes = [one for one in self._footprints if not one.is_part]
        doubles = drawn_in_parts([one.ring for one in wholes], self._parts)
        dropped = {wholes[n].number for n in doubles}
        found.obstacles = [one for n, one in enumerate(found.obstacles) if n not in dropped]
