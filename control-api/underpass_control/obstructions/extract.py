"""Reads ways, traffic lights and turn restrictions from OpenStreetMap extracts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import osmium

from dama.prediction.network import Way
from dama.prediction.turns import Member, Restriction, turn_restriction

# Reports progress to the user: the step, how much of it is done, and of how much (None: unknown).
Progress = Callable[[str, int, int | None], None]


class ExtractError(Exception):
    """The extract cannot be read."""


def quiet(_step: str, _done: int, _total: int | None) -> None:
    """Report no progress."""


def way_of(way: osmium.osm.Way, tags: Mapping[str, str]) -> Way:
    """Return a way with the positions of its nodes."""
    # An extract cuts ways at its border: nodes beyond it have no position.
    placed = [(node.ref, node) for node in way.nodes if node.location.valid()]
    return Way(
        id=way.id,
        nodes=tuple(ref for ref, _ in placed),
        line=tuple((node.lon, node.lat) for _, node in placed),
        tags=tags,
    )


def with_traffic(objects: osmium.FileProcessor) -> osmium.FileProcessor:
    """Have a reading give, of nodes and relations, traffic lights and restrictions only."""
    lights = osmium.filter.TagFilter(("highway", "traffic_signals"))
    lights.enable_for(osmium.osm.NODE)
    restrictions = osmium.filter.TagFilter(("type", "restriction"))
    restrictions.enable_for(osmium.osm.RELATION)
    return objects.with_filter(lights).with_filter(restrictions)


class Traffic:
    """The traffic lights of an extract, as nodes' ids, and its turn restrictions."""

    def __init__(self) -> None:
        self.lights: set[int] = set()
        self.turns: list[Restriction] = []

    def take(self, one: object) -> None:
        """Take in an object that `with_traffic` lets pass; others are ignored."""
        if isinstance(one, osmium.osm.Node):
            self.lights.add(one.id)
        elif isinstance(one, osmium.osm.Relation):
            tags = {tag.k: tag.v for tag in one.tags}
            members = [Member(member.type, member.ref, member.role) for member in one.members]
            restriction = turn_restriction(tags, members)
            if restriction is not None:
                self.turns.append(restriction)
