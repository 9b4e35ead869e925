"""The obstructions of a road network: covered ways, with the roads that lead into them."""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Iterable, Mapping

import shapely

from dama.prediction.boxes import LineIndex
from dama.prediction.network import Edge, Network, is_covered, limit_mps, usual_mps
from dama.prediction.obstruction import MAX_POSITIONS, MAX_ROADS, Obstruction, Road, short_name
from dama.prediction.places import METRES_PER_DEGREE, Line, Plane

# Roads are followed back from each portal this far, or this long at their limit (the usual speed
# where none is posted) if that is further.
REACH_M = 1_500.0
REACH_S = 90.0
# Roads this near to one that leads to a portal are kept, to recognise the vehicles on them.
BESIDE_M = 60.0
# A road is an approach if at least this part of its traffic reaches the portal.
_LEAST = 0.03
# A vehicle passes a shorter cover before its link is found lost.
MIN_LENGTH_M = 20.0


def obstructions_of(
    network: Network,
    *,
    min_length_m: float = MIN_LENGTH_M,
    progress: Callable[[int, int], None] = lambda _done, _total: None,
) -> list[Obstruction]:
    """Return the covered ways of a network as obstructions, ordered by id.

    Covered ways that touch are one obstruction, named after the least of their ids, so the same
    map gives the same obstructions. `progress` is called with the numbers done and in all.
    """
    groups = {
        name: edges for name, edges in _groups(network).items() if _length_m(edges) >= min_length_m
    }
    covers = {edge.id: name for name, edges in groups.items() for edge in edges}
    lines = list(network.edges.values())
    index = LineIndex([edge.line for edge in lines])
    found = []
    for done, (name, edges) in enumerate(sorted(groups.items()), 1):
        kept = leading(network, edges)
        positions = _positions(kept)
        for edge in _beside(kept, lines, index):
            if len(kept) >= MAX_ROADS:
                break
            if positions + len(edge.line) <= MAX_POSITIONS:
                positions += len(edge.line)
                kept[edge.id] = edge
        roads = tuple(
            Road(
                id=edge.id,
                line=edge.line,
                covered_by=covers.get(edge.id),
                limit_mps=limit_mps(edge.way.tags),
                usual_mps=usual_mps(edge.way.tags),
                light_m=edge.light_m,
                onward=network.onward_within(edge, kept),
            )
            for edge in kept.values()
        )
        found.append(_obstruction(name, edges, roads))
        progress(done, len(groups))
    return found


def _groups(network: Network) -> dict[str, list[Edge]]:
    """Return the covered edges, joined where they touch, by the group's id."""
    groups = network.joined(lambda edge: is_covered(edge.way.tags))
    return {f"osm:way/{min(edge.way.id for edge in group)}": group for group in groups}


def _length_m(edges: Iterable[Edge]) -> float:
    """Return the covered length, each piece counted once."""
    pieces = {min(edge.line, edge.line[::-1]): edge for edge in edges}
    return math.fsum(edge.length_m for edge in pieces.values())


def leading(
    network: Network,
    inside: list[Edge],
    reach_m: float = REACH_M,
    reach_s: float = REACH_S,
) -> dict[str, Edge]:
    """Return the covered edges, and those by which traffic reaches them, by network distance.

    They are followed back for `reach_m`, or for `reach_s` at their limit or usual speed if that is
    further, within the bounds of one obstruction.
    """
    kept = {edge.id: edge for edge in inside}
    positions = _positions(kept)
    queue: list[tuple[float, str, float]] = []

    def before(edge: Edge, distance: float, probability: float) -> None:
        for step in network.arriving.get(edge.begins, ()):
            if step.id not in kept:
                taken = {after.id: p for after, p in network.onward(step)}.get(edge.id, 0.0)
                if probability * taken >= _LEAST:
                    heapq.heappush(queue, (distance, step.id, probability * taken))

    for edge in inside:
        before(edge, 0.0, 1.0)
    while queue and len(kept) < MAX_ROADS:
        distance, edge_id, probability = heapq.heappop(queue)
        edge = network.edges[edge_id]
        tags = edge.way.tags
        most_m = max(reach_m, reach_s * (limit_mps(tags) or usual_mps(tags)))
        if edge_id in kept or distance >= most_m or positions + len(edge.line) > MAX_POSITIONS:
            continue
        positions += len(edge.line)
        kept[edge_id] = edge
        before(edge, distance + edge.length_m, probability)
    return kept


def _positions(kept: Mapping[str, Edge]) -> int:
    return sum(len(edge.line) for edge in kept.values())


def _beside(kept: dict[str, Edge], lines: list[Edge], index: LineIndex) -> list[Edge]:
    """Return the edges near the kept ones, the nearest to them first."""
    leading = list(kept.values())
    plane = Plane(leading[0].line[0])
    middle = shapely.MultiLineString([_metres(edge.line, plane) for edge in leading])
    # A degree of latitude is the same everywhere; one of longitude shrinks towards the poles.
    margin = BESIDE_M / METRES_PER_DEGREE / max(math.cos(math.radians(leading[0].line[0][1])), 0.05)
    shapely.prepare(middle)
    near: list[tuple[float, str, Edge]] = []
    for entry in index.beside([edge.line for edge in leading], margin):
        edge = lines[entry]
        if edge.id not in kept:
            away = middle.distance(shapely.LineString(_metres(edge.line, plane)))
            if away <= BESIDE_M:
                near.append((away, edge.id, edge))
    return [edge for _, _, edge in sorted(near, key=lambda item: item[:2])]


def _metres(line: Line, plane: Plane) -> list[tuple[float, float]]:
    return [plane.xy(position) for position in line]


def _obstruction(name: str, edges: list[Edge], roads: tuple[Road, ...]) -> Obstruction:
    longest = max(edges, key=lambda edge: (edge.length_m, edge.id)).way.tags
    tunnel = longest.get("tunnel", "no")
    said = longest.get("tunnel:name") or longest.get("name") or longest.get("ref") or ""
    return Obstruction(
        id=name,
        name=short_name(said),
        kind={"yes": "tunnel", "no": "covered"}.get(tunnel, tunnel),
        roads=roads,
        layer=_layer(longest.get("layer", "")),
    )


def _layer(text: str) -> int:
    digits = text.removeprefix("-")
    return int(text) if digits.isdecimal() and len(digits) < 3 else 0
