"""The obstructions as maps: all of them, and those that count for each satellite."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dama.prediction import ObstructionMap
from dama.prediction.learning import Learned


class Maps(NamedTuple):
    """All obstructions (`every`), the learned ones by id, and the maps of satellites.

    `of_satellites` has a map for each satellite that beams use, with what counts for it.
    """

    every: ObstructionMap
    learned: Mapping[str, Learned]
    of_satellites: Mapping[str, ObstructionMap]

    def of(self, satellite: str | None) -> ObstructionMap:
        """Return the map for a beam's predictions; None: its satellite is unknown."""
        if satellite is None:
            return self.every
        # For a satellite given to a beam since then, there is no map until it is read again.
        return self.of_satellites.get(satellite, self.every)


def of_satellites(every: ObstructionMap, satellites: Iterable[str]) -> Mapping[str, ObstructionMap]:
    """Return the map of each satellite; `every` itself if all of it counts.

    The map of a country takes seconds.
    """
    found: dict[str, ObstructionMap] = {}
    made: dict[frozenset[str], ObstructionMap] = {frozenset(): every}
    for satellite in satellites:
        counts = [one for one in every.obstructions.values() if one.counts_for(satellite)]
        # Satellites without known shadows share one map.
        left_out = every.obstructions.keys() - {one.id for one in counts}
        same = frozenset(left_out)
        if same not in made:
            made[same] = ObstructionMap(counts)
        found[satellite] = made[same]
    return found
