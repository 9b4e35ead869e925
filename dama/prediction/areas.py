"""The areas of a map that cut the line of sight: which ones are near, and their shapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import shapely
from shapely import affinity

from dama.prediction.boxes import Box, around, boxes_of, on_both_sides, tree_of
from dama.prediction.obstruction import Obstruction
from dama.prediction.places import Plane, Position


class Areas:
    """An index of the obstructions that have an area; all others are left out."""

    def __init__(self, obstructions: Iterable[Obstruction]) -> None:
        # By the boxes around them, of which an area across the 180th meridian has two.
        self._areas: list[Obstruction] = []
        boxes: list[Box] = []
        for obstruction in obstructions:
            if obstruction.area:
                for box in boxes_of(obstruction.area[0]):
                    self._areas.append(obstruction)
                    boxes.append(box)
        self._tree = tree_of(boxes)

    def within(self, place: Position, radius_m: float) -> Iterator[Obstruction]:
        """Yield those that may reach within so many metres of a place."""
        if self._areas:
            sides = on_both_sides(place, radius_m)
            yield from self._meeting(around(same, radius_m) for same in sides)

    def crossed(self, line: shapely.LineString) -> Iterator[Obstruction]:
        """Yield those that a line may cross.

        The line has no leap at the 180th meridian: its longitudes may lie beyond 180 degrees.
        """
        if self._areas:
            west, _, east, _ = line.bounds
            turns = (turn for turn in (0.0, 360.0, -360.0) if -180.0 - east <= turn <= 180.0 - west)
            yield from self._meeting(affinity.translate(line, turn) for turn in turns)

    def _meeting(self, shapes: Iterable[shapely.Geometry]) -> Iterator[Obstruction]:
        """Yield those whose boxes meet one of some shapes, each once."""
        found: dict[str, Obstruction] = {}
        for shape in shapes:
            for entry in self._tree.query(shape, predicate="intersects"):
                found.setdefault(self._areas[entry].id, self._areas[entry])
        yield from found.values()


def area_in_plane(obstruction: Obstruction, plane: Plane) -> shapely.Geometry:
    """Return an obstruction's area in metres around the plane's origin."""
    return area_of([plane.xy(position) for position in ring] for ring in obstruction.area)


def area_of(rings: Iterable[Sequence[Position]]) -> shapely.Geometry:
    """Return the area within an outer ring and outside of its holes.

    Rings that are drawn by hand may cross themselves or each other, and GEOS cannot intersect such
    an area. It is replaced by the areas that the rings enclose, possibly none.
    """
    shell, *holes = rings
    area = shapely.Polygon(shell, holes)
    if area.is_valid:
        return area
    return shapely.make_valid(area, method="structure", keep_collapsed=False)
