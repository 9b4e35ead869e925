"""Reads ways, traffic lights and turn restrictions from OpenStreetMap extracts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

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


def traffic_lights(path: Path) -> Iterator[int]:
    """Yield the ids of an extract's nodes that have traffic lights."""
    nodes = osmium.FileProcessor(str(path), osmium.osm.NODE)
    for node in nodes.with_filter(osmium.filter.TagFilter(("highway", "traffic_signals"))):
        if isinstance(node, osmium.osm.Node):
            yield node.id


def turn_restrictions(path: Path) -> Iterator[Restriction]:
    """Yield an extract's turn restrictions, at junctions and by way of roads."""
    relations = osmium.FileProcessor(str(path), osmium.osm.RELATION)
    for relation in relations.with_filter(osmium.filter.TagFilter(("type", "restriction"))):
        if isinstance(relation, osmium.osm.Relation):
            tags = {tag.k: tag.v for tag in relation.tags}
            members = [Member(one.type, one.ref, one.role) for one in relation.members]
            restriction = turn_restriction(tags, members)
            if restriction is not None:
                yield restriction
