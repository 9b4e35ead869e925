"""Which roads a vehicle has driven, in order: the sure hypotheses, with the gaps filled."""

from __future__ import annotations

from dama.prediction.roadmap import ObstructionMap

# If a road is seen again after at most this many others, these were mistakes. If the way continues
# from an earlier road instead of the last ones, at most this many of the last were mistakes.
_MISTAKEN = 3
# The roads between two sure ones are at most this long in all, plus this multiple of the distance
# since the last match: in a road tunnel there are no fixes.
_UNSEEN_M = 150.0
_UNSEEN = 1.5


def driven_on(
    on: ObstructionMap, driven: tuple[str, ...], road_id: str, moved_m: float
) -> tuple[str, ...]:
    """Return the roads driven up to a sure one, `moved_m` from the place of the last sure one."""
    if driven and driven[-1] == road_id:
        return driven
    if road_id in driven[-1 - _MISTAKEN :]:
        return driven[: len(driven) - driven[::-1].index(road_id)]
    for back in range(1, min(len(driven), 1 + _MISTAKEN) + 1):
        between = on.between(driven[-back], road_id, _UNSEEN_M + _UNSEEN * moved_m)
        if between is not None:
            return (*driven[: len(driven) - back + 1], *between, road_id)
    return (*driven, road_id)


def driven_since(driven: tuple[str, ...], road_id: str) -> tuple[str, ...]:
    """Return the roads driven since a road was last driven, that one first; empty if it was not."""
    if road_id not in driven:
        return ()
    return driven[len(driven) - 1 - driven[::-1].index(road_id) :]
