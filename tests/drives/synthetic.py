"""The synthetic drives with their map, and what comes of predicting along them."""

from __future__ import annotations

from collections.abc import Iterator

from underpass_control.obstructions.osm import import_osm

from dama.prediction import ObstructionMap
from tests.drives.drive import Drive, Receiver, drive, passage
from tests.drives.evaluation import Entry, Score, score
from tests.drives.island import ISLAND_OSM, island
from tests.drives.roads import Roads


def island_map() -> ObstructionMap:
    """Return the map as the control service would import it."""
    return ObstructionMap(import_osm(ISLAND_OSM))


def entries_of(made: Drive, obstructions: ObstructionMap) -> list[Entry]:
    """Return a drive's true entries, by the obstructions that cover its ways."""
    covers = {
        int(road.id.split("/")[1]): obstruction.id
        for obstruction in obstructions.obstructions.values()
        for road in obstruction.covered
    }
    return [Entry(covers[stay.way_id], stay.last_fix_ms) for stay in made.covered]


def drives(count: int, first_seed: int = 0) -> Iterator[Drive]:
    """Make so many drives."""
    roads = Roads(island())
    for seed in range(first_seed, first_seed + count):
        yield drive(roads, seed)


def passage_of(
    name: str, *, lead_m: float, tail_m: float, receiver: Receiver | None = None, seed: int = 0
) -> Drive:
    """Make a drive through the first road tunnel of a road, and not much more."""
    roads = Roads(island())
    return passage(roads, name, lead_m=lead_m, tail_m=tail_m, receiver=receiver, seed=seed)


def score_drives(count: int) -> Score:
    """Predict along so many drives."""
    obstructions = island_map()
    total = Score()
    for made in drives(count):
        total.add(score(obstructions, made.fixes, entries_of(made, obstructions)))
    return total
