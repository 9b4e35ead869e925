"""Which obstructions count for which beam."""

from __future__ import annotations

from dataclasses import replace

from underpass_control.planning.maps import Maps, of_satellites

from dama.prediction import ObstructionMap
from tests.dama.prediction.test_laws import MAP

(TUNNEL,) = [one for one in MAP.obstructions.values() if one.roads][:1]


def named(name: str, satellite: str | None) -> ObstructionMap:
    roads = tuple(
        replace(road, id=f"{name}/{road.id}", covered_by=road.covered_by and name, onward=())
        for road in TUNNEL.roads
    )
    return ObstructionMap([replace(TUNNEL, id=name, roads=roads, satellite=satellite)])


def joined(*maps: ObstructionMap) -> ObstructionMap:
    return ObstructionMap(one for each in maps for one in each.obstructions.values())


EVERY = joined(named("tunnel", None), named("a", "astra"), named("b", "west"))


def ids(of: ObstructionMap) -> set[str]:
    return set(of.obstructions)


def test_a_beam_meets_what_is_of_its_satellite_or_of_none() -> None:
    maps = Maps(EVERY, {}, of_satellites(EVERY, ["astra", "west", "else"]))
    assert ids(maps.of("astra")) == {"tunnel", "a"}
    assert ids(maps.of("west")) == {"tunnel", "b"}
    assert ids(maps.of("else")) == {"tunnel"}


def test_a_beam_of_no_satellite_meets_all() -> None:
    maps = Maps(EVERY, {}, of_satellites(EVERY, ["astra"]))
    assert maps.of(None) is EVERY
    # The same for a beam that has not been read yet.
    assert maps.of("west") is EVERY


def test_where_nothing_is_told_apart_there_is_one_map() -> None:
    only = joined(named("tunnel", None), named("a", "astra"))
    assert of_satellites(only, ["astra"])["astra"] is only
    others = of_satellites(EVERY, ["x", "y"])
    assert others["x"] is others["y"]
