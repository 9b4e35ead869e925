"""Shaded stretches of road as obstructions, for the prediction of blockages."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np

from dama.prediction.boxes import LineIndex
from dama.prediction.cover import BESIDE_M, leading
from dama.prediction.network import Edge, Network, is_covered, limit_mps, usual_mps
from dama.prediction.obstruction import MAX_POSITIONS, MAX_ROADS, Obstruction, Road, short_name
from dama.prediction.places import METRES_PER_DEGREE
from dama.sky.masks import Masks
from dama.sky.roads import lane_ids
from dama.sky.satellite import Floats

# Less probable shadows are not reported: plans are made for blockages of at least half.
LEAST = 0.5
# A vehicle passes a shorter stretch in a fraction of a second; a shorter gap between two stretches
# is too brief to send in.
MIN_LENGTH_M = 5.0
_GAP_M = 8.0
# Short blockages matter only to near vehicles: roads are followed back half as far as for tunnels.
_REACH_M, _REACH_S = 700.0, 45.0
# The most edges of one obstruction: a town in the shade of a mountain becomes several.
_MOST_EDGES = 1_000


def cut_shaded(network: Network, masks: Sequence[Masks], *, left_hand: bool = False) -> int:
    """Cut the edges of a network where satellites are hidden; return the number of stretches.

    All satellites' shadows cut the same network, so that their roads are the same pieces. For a
    one-way road the mean of its two sides counts: the lane of a vehicle is unknown. `left_hand` is
    the same as for the lanes.
    """
    count = 0
    for edge in list(network.edges.values()):
        if is_covered(edge.way.tags):
            # A covered way is an obstruction of its own.
            continue
        lanes = lane_ids(network, edge, left_hand=left_hand)
        found = {
            of.satellite.name: stretches(np.mean([of.metres_of(lane) for lane in lanes], axis=0))
            for of in masks
        }
        number = sum(map(len, found.values()))
        if number:
            count += number
            network.cut(edge, _pieces(found))
    return count


def _pieces(
    found: Mapping[str, Sequence[tuple[float, float, float]]],
) -> list[tuple[float, float, tuple[tuple[str, float], ...]]]:
    """Return satellites' stretches of an edge as pieces, each with the probabilities by satellite.

    They are in order and without overlap.
    """
    ends = {at_m for of in found.values() for stretch in of for at_m in stretch[:2]}
    pieces = []
    for from_m, until_m in pairwise(sorted(ends)):
        hidden = tuple(
            (name, probability)
            for name, of in found.items()
            for begin, end, probability in of
            if begin <= from_m and until_m <= end
        )
        if hidden:
            pieces.append((from_m, until_m, hidden))
    return pieces


def stretches(blocked: Floats) -> list[tuple[float, float, float]]:
    """Return the stretches that are more probably blocked than not.

    `blocked` has a probability for each metre. Each stretch has its begin and end in metres, and
    the mean probability. Short gaps are included.
    """
    padded = np.concatenate(([False], blocked >= LEAST, [False]))
    begins, ends = (
        np.flatnonzero(np.diff(padded.astype(np.int8)) == 1),
        np.flatnonzero(np.diff(padded.astype(np.int8)) == -1),
    )
    found: list[tuple[int, int]] = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        if found and begin - found[-1][1] < _GAP_M:
            found[-1] = found[-1][0], end
        else:
            found.append((begin, end))
    return [
        (float(begin), float(end), float(blocked[begin:end].mean()))
        for begin, end in found
        # A short stretch at an end of the edge may continue beyond the junction.
        if end - begin >= MIN_LENGTH_M or begin == 0 or end == len(blocked)
    ]


def shadows_of(network: Network, satellite: str) -> list[Obstruction]:
    """Return a satellite's shadows on a network as obstructions, with the roads that lead there.

    Shaded edges that touch are one obstruction; its certainty is the mean over their metres.
    Each road is kept with the first of the obstructions that need it, so that a town full of
    shadows is stored once, not once for each of them.
    """
    groups = {
        name: edges
        for name, edges in _groups(network, satellite).items()
        if math.fsum(edge.length_m for edge in edges) >= MIN_LENGTH_M
    }
    covers = {edge.id: name for name, edges in groups.items() for edge in edges}
    owners: dict[str, str] = dict(covers)
    for name, edges in sorted(groups.items()):
        for edge_id in leading(network, edges, _REACH_M, _REACH_S):
            owners.setdefault(edge_id, name)
    _own_beside(network, owners)
    shelves = {name: _Shelf() for name in sorted(groups)}
    spare = iter(shelves.values())
    more = next(spare, None)
    for edge_id, name in owners.items():
        edge = network.edges[edge_id]
        road = Road(
            id=edge.id,
            line=edge.line,
            covered_by=covers.get(edge.id),
            limit_mps=limit_mps(edge.way.tags),
            usual_mps=usual_mps(edge.way.tags),
            light_m=edge.light_m,
            onward=network.onward_within(edge, owners),
        )
        if not shelves[name].put(road):
            # A road may be kept with any obstruction.
            while more is not None and not more.put(road):
                more = next(spare, None)
    return [
        Obstruction(
            id=name,
            name=_name(edges),
            kind="shadow",
            roads=tuple(shelves[name].roads),
            certainty=_certainty(edges, satellite),
            satellite=satellite,
        )
        for name, edges in sorted(groups.items())
    ]


class _Shelf:
    """The roads that are kept with an obstruction, within its bounds."""

    def __init__(self) -> None:
        self.roads: list[Road] = []
        self._positions = 0

    def put(self, road: Road) -> bool:
        """Keep a road if there is room; tell whether there was."""
        positions = self._positions + len(road.line)
        if len(self.roads) == MAX_ROADS or positions > MAX_POSITIONS:
            return False
        self.roads.append(road)
        self._positions = positions
        return True


def _groups(network: Network, satellite: str) -> dict[str, list[Edge]]:
    """Return the shaded edges, joined where one leads on to the other."""
    groups = network.joined(
        lambda edge: edge.shadow_of(satellite) is not None,
        most_edges=_MOST_EDGES,
        most_positions=MAX_POSITIONS // 2,
    )
    return {
        f"sky:{satellite}:{min(edge.id for edge in group).removeprefix('osm:')}": group
        for group in groups
    }


def _own_beside(network: Network, owners: dict[str, str]) -> None:
    """Add the edges near those that are kept, each to the obstruction of the nearest kept one."""
    others = [edge for edge in network.edges.values() if edge.id not in owners]
    kept = [network.edges[edge_id] for edge_id in owners]
    if not others or not kept:
        return
    # A degree of latitude is the same everywhere; one of longitude shrinks towards the poles.
    north = max(abs(edge.line[0][1]) for edge in kept)
    margin = BESIDE_M / METRES_PER_DEGREE / max(math.cos(math.radians(north)), 0.05)
    index = LineIndex([edge.line for edge in kept])
    found = index.nearest([edge.line for edge in others], margin)
    for number, near in found.items():
        owners[others[number].id] = owners[kept[near].id]


def _certainty(edges: Iterable[Edge], satellite: str) -> float:
    parts = [(edge.length_m, edge.shadow_of(satellite) or 0.0) for edge in edges]
    whole = math.fsum(length for length, _ in parts)
    return round(min(math.fsum(m * p for m, p in parts) / whole, 1.0), 3)


def _name(edges: Iterable[Edge]) -> str:
    longest = max(edges, key=lambda edge: (edge.length_m, edge.id)).way.tags
    return short_name(longest.get("name") or longest.get("ref") or "")
