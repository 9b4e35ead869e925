"""The obstructions as maps: all of them, and those that each satellite's terminals meet."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from dama.prediction import ObstructionMap
from dama.prediction.learning import Learned


class Maps(NamedTuple):
    """What is known of obstructions.

    `every` has all of them, `learned` those that were learned, by id. `of_satellites` has by
    satellite, of all that beams use, what counts for it.
    """

    every: ObstructionMap
    learned: Mapping[str, Learned]
    of_satellites: Mapping[str, ObstructionMap]

    def of(self, satellite: str | None) -> ObstructionMap:
        """Return the map to predict with for a beam; None: nobody has said its satellite."""
        if satellite is None:
            return self.every
        # A beam that has been given another satellite since has to wait until the map is read.
        return self.of_satellites.get(satellite, self.every)


def of_satellites(every: ObstructionMap, satellites: Iterable[str]) -> Mapping[str, ObstructionMap]:
    """Return for each satellite what counts for it; `every` itself where that is all of it.

    A map of a country takes seconds.
    """
    found: dict[str, ObstructionMap] = {}
    made: dict[frozenset[str], ObstructionMap] = {frozenset(): every}
    for satellite in satellites:
        counts = [one for one in every.obstructions.values() if one.counts_for(satellite)]
        # Satellites that no shadow is known of have the same map.
        left_out = every.obstructions.keys() - {one.id for one in counts}
        same = frozenset(left_out)
        if same not in made:
            made[same] = ObstructionMap(counts)
        found[satellite] = made[same]
    return found
