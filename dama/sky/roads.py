"""The lanes of a road network."""

from __future__ import annotations

from dama.prediction.network import Edge, Network, is_covered
from dama.sky import tags
from dama.sky.lanes import Lane

# From the edge of the carriageway to the first trees.
_VERGE_M = 3.0
SIDES = ("left", "right")


def lanes_of(network: Network, *, left_hand: bool = False) -> list[Lane]:
    """Return the lanes of all edges, each a quarter of the carriageway's width off its middle.

    A road for both directions has one lane in each, on the right unless traffic is `left_hand`; a
    one-way road has two, one on each side. Their ids are `lane_ids`.
    """
    made = []
    for edge in network.edges.values():
        if edge.same_as is not None:
            continue
        width = tags.width_m(edge.way.tags)
        for lane_id in lane_ids(network, edge, left_hand=left_hand):
            side = 1.0 if lane_id.endswith(SIDES[1]) else -1.0
            made.append(
                Lane(
                    lane_id,
                    edge.line,
                    offset_m=side * width / 4.0,
                    clear_m=width / 2.0 + _VERGE_M,
                    layer=tags.layer(edge.way.tags),
                    covered=is_covered(edge.way.tags),
                    ends=(edge.begins, edge.ends),
                )
            )
    return made


def lane_ids(network: Network, edge: Edge, *, left_hand: bool = False) -> tuple[str, ...]:
    """Return the ids of an edge's lanes: its own, and the side.

    Edges that differ only in the way by which vehicles came have the same lanes.
    """
    both = any(back.is_reverse_of(edge) for back in network.leaving.get(edge.ends, ()))
    sides = SIDES if not both else (SIDES[0 if left_hand else 1],)
    return tuple(f"{edge.same_as or edge.id}/{side}" for side in sides)
