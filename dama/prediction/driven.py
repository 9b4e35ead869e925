"""Which roads a vehicle has driven, in order: what is sure of the hypotheses, without its gaps."""

from __future__ import annotations

from dama.prediction.roadmap import ObstructionMap

# A road that is seen again after no more than so many others was left by mistake, and one behind
# which the way goes on from an earlier one was a mistake itself.
_MISTAKEN = 3
# Roads that were driven between two sure ones add up to so much, and a part of the way since the
# last fix: in a road tunnel nothing is seen.
_UNSEEN_M = 150.0
_UNSEEN = 1.5


def driven_on(
    on: ObstructionMap, driven: tuple[str, ...], road_id: str, moved_m: float
) -> tuple[str, ...]:
    """Return the roads driven when a vehicle is surely on a road, `moved_m` after its last fix."""
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
    """Return the roads driven from one of them on, the last time; none where it was not driven."""
    if road_id not in driven:
        return ()
    return driven[len(driven) - 1 - driven[::-1].index(road_id) :]
