"""OpenStreetMap extracts: the obstructions made from them, and the roads of these."""

from __future__ import annotations

import math
from itertools import pairwise
from pathlib import Path
from typing import Any

import osmium
import pytest
from pyproj import Geod
from underpass_control.obstructions import osm
from underpass_control.obstructions.extract import ExtractError
from underpass_control.obstructions.geojson import import_geojson
from underpass_control.obstructions.osm import import_osm

from dama.prediction import Obstruction, ObstructionMap
from dama.prediction.cover import REACH_M
from dama.prediction.geojson import GeoJsonError, from_geojson, to_geojson
from dama.prediction.network import MOST_NODES
from dama.prediction.obstruction import MAX_NAME
from dama.prediction.places import Course, Plane, Position
from tests.control_api.drawn import Drawn, Restricted, draw
from tests.drives import field
from tests.drives.island import ISLAND_OSM, PLANE, as_osm, island

NO_ANDORRA = field.missing(field.ANDORRA)


def extract(path: Path, *ways: Drawn) -> list[Obstruction]:
    """Import ways drawn in metres."""
    return import_osm(draw(path, PLANE, *ways))


def road(**tags: str) -> dict[str, str]:
    return {"highway": "secondary"} | tags


def test_the_committed_island_is_the_one_that_is_drawn() -> None:
    assert ISLAND_OSM.read_text() == as_osm(island())


def test_the_same_extract_gives_the_same_obstructions() -> None:
    first, second = import_osm(ISLAND_OSM), import_osm(ISLAND_OSM)
    assert first == second
    assert len({obstruction.id for obstruction in first}) == len(first) == 9
    assert from_geojson(to_geojson(first)) == first


def test_roads_lead_into_each_portal_for_at_least_the_reach() -> None:
    for obstruction in import_osm(ISLAND_OSM):
        longest = _longest_way_in(obstruction)
        # The mountain road's far end and the town are nearer than that.
        assert longest >= REACH_M - 100.0, obstruction.id


@pytest.mark.parametrize(("posted", "mps"), [({}, 110 / 3.6), ({"maxspeed": "130"}, 130 / 3.6)])
def test_roads_lead_into_a_portal_for_90_s_at_the_speed_driven(
    tmp_path: Path, posted: dict[str, str], mps: float
) -> None:
    pieces = [f"{x},0 {x + 100},0" for x in range(-5_000, 0, 100)]
    motorway = {"highway": "motorway", **posted}
    ways = [(piece, motorway) for piece in pieces]
    (made,) = extract(tmp_path / "x.osm", *ways, ("0,0 500,0", motorway | {"tunnel": "yes"}))
    # Pieces of 100 m are kept whole, and the next one touches them.
    assert 90.0 * mps <= _longest_way_in(made) <= 90.0 * mps + 200.0


def _longest_way_in(obstruction: Obstruction) -> float:
    """Return the farthest road from which a portal is reached, along the network."""
    roads = {road.id: road for road in obstruction.roads}
    away = {road.id: 0.0 for road in obstruction.covered}
    changed = True
    while changed:
        changed = False
        for one in roads.values():
            ways = [away[step.road_id] for step in one.onward if step.road_id in away]
            if ways and one.covered_by != obstruction.id:
                far = min(ways) + Course(one.line).length_m
                if far < away.get(one.id, math.inf):
                    away[one.id], changed = far, True
    return max(away.values())


def test_touching_pieces_are_one_obstruction_named_after_the_least(tmp_path: Path) -> None:
    (made,) = extract(
        tmp_path / "x.osm",
        ("-500,0 0,0", road()),
        ("0,0 100,0", road(tunnel="yes", name="Long Hole", layer="-2")),
        ("100,0 150,0", road(tunnel="yes", maxspeed="50")),
        ("150,0 900,0", road()),
    )
    assert (made.id, made.name, made.layer) == ("osm:way/2", "Long Hole", -2)
    assert len(made.covered) == 4


def test_a_name_is_on_one_line_within_bounds_and_keeps_what_joins_its_letters(
    tmp_path: Path,
) -> None:
    name = "&#x645;&#x6cc;&#x200c;&#x6af;&#9;&#10;" + "x" * 240
    (made,) = extract(
        tmp_path / "x.osm",
        ("-500,0 0,0", road()),
        ("0,0 200,0", road(tunnel="yes", name=name)),
        ("200,0 700,0", road()),
    )
    assert made.name == ("\u0645\u06cc\u200c\u06af " + "x" * 240)[:MAX_NAME]


def test_a_oneway_is_entered_from_one_side_only(tmp_path: Path) -> None:
    for number, (oneway, begins) in enumerate([("yes", 0.0), ("-1", 200.0)]):
        (made,) = extract(
            tmp_path / f"{number}.osm",
            ("-500,0 0,0", road()),
            ("0,0 200,0", road(tunnel="yes", oneway=oneway)),
            ("200,0 700,0", road()),
        )
        (inside,) = made.covered
        assert PLANE.xy(inside.line[0])[0] == pytest.approx(begins, abs=0.1)
        leading = [r for r in made.roads if any(s.road_id == inside.id for s in r.onward)]
        assert len(leading) == 1


@pytest.mark.parametrize(
    ("tags", "kind"),
    [
        (road(tunnel="yes"), "tunnel"),
        (road(tunnel="building_passage"), "building_passage"),
        (road(tunnel="avalanche_protector"), "avalanche_protector"),
        (road(covered="yes"), "covered"),
        (road(bridge="covered"), "covered"),
        (road(tunnel="yes", access="no", motorcar="yes"), "tunnel"),
        (road(tunnel="no"), None),
        (road(tunnel="culvert"), None),
        (road(covered="no"), None),
        (road(tunnel="yes", motor_vehicle="no"), None),
        (road(tunnel="yes", motorcar="no"), None),
        (road(bridge="yes"), None),
        ({"highway": "footway", "tunnel": "yes"}, None),
        ({"highway": "service", "tunnel": "yes"}, None),
        ({"railway": "rail", "tunnel": "yes"}, None),
    ],
)
def test_what_hides_the_sky_from_vehicles_is_an_obstruction(
    tmp_path: Path, tags: dict[str, str], kind: str | None
) -> None:
    made = extract(tmp_path / "x.osm", ("-500,0 0,0", road()), ("0,0 200,0", tags))
    assert [obstruction.kind for obstruction in made] == ([kind] if kind else [])


def _after_junction(path: Path, *turns: Restricted) -> dict[int, float]:
    """Return which ways follow the approach of a crossing, with the parts of the traffic."""
    ways: list[Drawn] = [
        ("-500,0 0,0", road()),
        ("0,0 500,0", road()),
        ("500,0 800,0", road(tunnel="yes")),
        ("0,0 0,40", road()),
        ("0,0 0,-40", road()),
    ]
    (made,) = import_osm(draw(path, PLANE, *ways, turns=turns))
    (approach,) = (one for one in made.roads if one.id == "osm:way/1/0-1")
    return {int(step.road_id.split("/")[1]): step.probability for step in approach.onward}


def _turn(rule: str, to: tuple[int, ...], **tags: str) -> Restricted:
    return {"type": "restriction", "restriction": rule, **tags}, (1,), "0,0", to


def test_a_forbidden_turn_is_taken_by_nobody(tmp_path: Path) -> None:
    path = tmp_path / "x.osm"
    assert set(_after_junction(path)) == {2, 4, 5}
    left = _after_junction(path, _turn("no_left_turn", (4,)))
    assert set(left) == {2, 5}
    assert sum(left.values()) == pytest.approx(1.0, abs=1e-3)
    assert set(_after_junction(path, _turn("no_exit", (4, 5)))) == {2}


def test_an_obligatory_turn_is_taken_by_all(tmp_path: Path) -> None:
    onward = _after_junction(tmp_path / "x.osm", _turn("only_straight_on", (2,)))
    assert onward == {2: pytest.approx(1.0)}


@pytest.mark.parametrize(
    "tags",
    [
        {"except": "psv; motorcar"},
        {"restriction": "none"},
        {"type": "route"},
    ],
)
def test_what_forbids_a_car_nothing_changes_nothing(tmp_path: Path, tags: dict[str, str]) -> None:
    path = tmp_path / "x.osm"
    assert _after_junction(path, _turn("no_left_turn", (4,), **tags)) == _after_junction(path)


def test_restrictions_that_leave_no_way_are_not_believed(tmp_path: Path) -> None:
    path = tmp_path / "x.osm"
    nowhere = _after_junction(path, _turn("no_exit", (2, 4, 5)))
    assert nowhere == _after_junction(path)


def _into_tunnel(path: Path, *turns: Restricted) -> dict[int, float]:
    """Return for two roads that meet before a bridge how probably each leads into a tunnel.

    Way 2 is the bridge, in two pieces by a road that crosses it, way 3 the tunnel behind it.
    """
    ways: list[Drawn] = [
        ("-500,0 0,0", road(oneway="yes")),
        ("0,0 40,0 80,0", road(bridge="yes")),
        ("80,0 300,0", road(tunnel="yes")),
        ("0,500 0,0", road(oneway="yes")),
        ("80,0 80,-200", road(oneway="yes")),
        ("40,-30 40,0", road(oneway="-1")),
    ]
    (made,) = import_osm(draw(path, PLANE, *ways, turns=turns))
    known = ObstructionMap([made])
    return {
        way: sum(passage.probability for passage in known.ahead(f"osm:way/{way}/0-1"))
        for way in (1, 4)
    }


def _over_bridge(rule: str, to: int) -> Restricted:
    return {"type": "restriction", "restriction": rule}, (1,), (2,), (to,)


def test_a_turn_forbidden_behind_a_bridge_holds_for_those_who_come_from_one_road(
    tmp_path: Path,
) -> None:
    path = tmp_path / "x.osm"
    free = _into_tunnel(path)
    assert min(free.values()) > 0.3
    forbidden = _into_tunnel(path, _over_bridge("no_straight_on", 3))
    assert forbidden == {1: 0.0, 4: pytest.approx(free[4])}
    elsewhere = _into_tunnel(path, _over_bridge("only_right_turn", 5))
    assert elsewhere == forbidden
    into = _into_tunnel(path, _over_bridge("only_straight_on", 3))
    assert into[1] > 1.05 * free[1]
    assert into[4] == pytest.approx(free[4])


def test_roads_behind_restrictions_have_the_same_ids_in_each_import(tmp_path: Path) -> None:
    turn = _over_bridge("no_straight_on", 3)
    ways: list[Drawn] = [
        ("-500,0 0,0", road()),
        ("0,0 40,0", road()),
        ("40,0 90,0", road(tunnel="yes")),
        ("40,0 40,90", road()),
    ]
    first, again = (
        import_osm(draw(tmp_path / name, PLANE, *ways, turns=[turn])) for name in ("a.osm", "b.osm")
    )
    assert first == again
    assert from_geojson(to_geojson(first)) == first


@pytest.mark.parametrize("north_deg", [0.001, 0.029])
@pytest.mark.parametrize("origin", [(0.0, 46.0), (139.7, 35.6), (174.8, -41.3), (-149.9, 61.2)])
def test_roads_lead_into_a_portal_wherever_on_earth_it_lies(
    tmp_path: Path, origin: Position, north_deg: float
) -> None:
    # The file is searched by rows of 0.03 degrees: the roads cross from one to the next.
    plane = Plane((origin[0], math.floor(origin[1] / 0.03) * 0.03 + north_deg))
    lines = ("0,-1400 0,-700", "0,-700 0,0", "0,200 0,900", "0,900 0,1400")
    ways: list[Drawn] = [("0,0 0,200", road(tunnel="yes")), *((line, road()) for line in lines)]
    (made,) = import_osm(draw(tmp_path / "x.osm", plane, *ways))
    assert len(made.roads) == 2 * len(ways)


@pytest.mark.parametrize("lon", [0.0, 180.0, 179.9999])
def test_roads_lead_into_a_portal_across_a_meridian(tmp_path: Path, lon: float) -> None:
    ends = (-1400, -700, -300, -100, 700, 1400)
    ways: list[Drawn] = [
        (f"{west},0 {east},0", road(tunnel="yes") if west == -300 else road())
        for west, east in pairwise(ends)
    ]
    (made,) = import_osm(draw(tmp_path / "x.osm", Plane((lon, -16.8)), *ways))
    assert len(made.roads) == 2 * len(ways)


def test_a_short_cover_is_none(tmp_path: Path) -> None:
    assert extract(tmp_path / "x.osm", ("0,0 15,0", road(tunnel="yes"))) == []
    # A road is no longer because it is driven in both directions.
    bent = "0,0 4,1 8,0 12,1 15,0"
    assert extract(tmp_path / "bent.osm", (bent, road(tunnel="yes"))) == []


def test_limits_are_metres_per_second_whatever_their_unit(tmp_path: Path) -> None:
    (made,) = extract(
        tmp_path / "x.osm",
        ("-900,0 -500,0", road(maxspeed="walk")),
        ("-500,0 0,0", road(maxspeed="30 mph")),
        ("0,0 200,0", road(tunnel="yes", maxspeed="50", oneway="yes")),
    )
    limits = {r.id.split("/")[1]: r.limit_mps for r in made.roads}
    assert limits == {"1": None, "2": 13.41, "3": 13.89}


def test_the_road_straight_on_gets_most_of_the_traffic(tmp_path: Path) -> None:
    (made,) = extract(
        tmp_path / "x.osm",
        ("-900,0 -100,0", road(name="Main")),
        ("-100,0 0,0", road(name="Main")),
        ("-100,0 -100,300", {"highway": "residential"}),
        ("0,0 200,0", road(name="Main", tunnel="yes", oneway="yes")),
    )
    before = next(r for r in made.roads if r.id == "osm:way/1/0-1")
    chances = {step.road_id.split("/")[1]: step.probability for step in before.onward}
    assert chances["2"] > 0.9
    assert sum(chances.values()) == pytest.approx(1.0, abs=1e-3)


def test_in_a_ring_the_exits_are_as_good_as_going_round(tmp_path: Path) -> None:
    (made,) = extract(
        tmp_path / "x.osm",
        ("-900,0 -20,0", road()),
        ("-20,0 0,-20 20,0 0,20 -20,0", road(junction="roundabout")),
        ("0,-20 0,-300", road()),
        ("20,0 200,0", road()),
        ("200,0 400,0", road(tunnel="yes", oneway="yes")),
    )
    ring = next(r for r in made.roads if r.id == "osm:way/2/1-2")
    assert {step.probability for step in ring.onward} == {0.5}
    assert any(r.id == "osm:way/1/0-1" for r in made.roads)


@pytest.mark.parametrize("content", ["", "no map", "<osm", "\x00\x01\x02"])
@pytest.mark.parametrize("name", ["x.osm", "x.osm.pbf"])
def test_a_broken_extract_is_an_error_that_names_it(
    tmp_path: Path, name: str, content: str
) -> None:
    path = tmp_path / name
    path.write_text(content)
    try:
        assert import_osm(path) == []
    except ExtractError as error:
        assert name in str(error)


def test_a_way_that_no_map_has_is_an_error_that_names_it(tmp_path: Path) -> None:
    endless = " ".join(f"{n},0" for n in range(-MOST_NODES, 1))
    with pytest.raises(ExtractError, match=r"x\.osm: osm:way/1: 20001 nodes"):
        extract(tmp_path / "x.osm", (endless, road()), ("0,0 200,0", road(tunnel="yes")))


def test_an_absent_extract_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ExtractError, match="no such file"):
        import_osm(tmp_path / "absent.osm.pbf")


def test_progress_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(osm, "_REPORT_EVERY", 1)
    told: list[tuple[str, int, int | None]] = []
    import_osm(ISLAND_OSM, progress=lambda *step: told.append(step))
    assert list(dict.fromkeys(step for step, _, _ in told)) == ["tunnels", "roads", "obstructions"]
    assert told[-1] == ("obstructions", 9, 9)
    # The first reading counts the roads; those behind it know how many there are.
    (*_, count) = (done for step, done, _ in told if step == "tunnels")
    totals = [total for step, _, total in told if step == "roads"]
    assert len(totals) > count > 9
    assert set(totals) == {count}


def test_a_geojson_file_is_read_and_a_broken_one_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.geojson"
    path.write_text("{")
    with pytest.raises(GeoJsonError, match=r"x\.geojson"):
        import_geojson(path)
    with pytest.raises(GeoJsonError, match="absent"):
        import_geojson(tmp_path / "absent")
    path.write_text(
        '{"type": "Feature", "properties": {"name": "T"}, "geometry": '
        '{"type": "LineString", "coordinates": [[7, 46], [7.01, 46]]}}'
    )
    assert [obstruction.name for obstruction in import_geojson(path)] == ["T"]


@pytest.mark.skipif(bool(NO_ANDORRA), reason=NO_ANDORRA or "")
def test_andorra_has_its_13_road_tunnels() -> None:
    made = import_osm(field.FIELD / field.ANDORRA)
    assert len(made) == 13
    geod = Geod(ellps="WGS84")
    lengths = sorted(
        max(
            geod.line_length([lon for lon, _ in road.line], [lat for _, lat in road.line])
            for road in tunnel.covered
        )
        for tunnel in made
    )
    assert lengths[6] == pytest.approx(195, abs=1)
    assert lengths[-1] == pytest.approx(2_952, abs=2)
    known = ObstructionMap(made)
    assert all(road.id in known for tunnel in made for road in tunnel.roads)


def test_traffic_lights_stand_where_the_map_has_them(tmp_path: Path) -> None:
    ways = [
        ("-600,0 -200,0 0,0", road()),
        ("0,0 0,300", road()),
        ("0,0 300,0", road(tunnel="yes")),
    ]
    path = draw(tmp_path / "lights.osm", PLANE, *ways, lights=("-200,0", "0,300"))
    (made,) = import_osm(path)
    lights = {one.id: one.light_m for one in made.roads if one.light_m is not None}
    # One on the way, seen from both sides, and one where a road ends; none where one begins.
    assert lights == pytest.approx(
        {"osm:way/1/0-2": 400.0, "osm:way/1/2-0": 200.0, "osm:way/2/0-1": 300.0}, abs=0.5
    )
    assert from_geojson(to_geojson([made])) == [made]


def test_an_extract_is_read_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ways = [("-600,0 0,0", road()), ("0,0 300,0", road(tunnel="yes")), ("0,0 0,300", road())]
    turn = _turn("no_left_turn", (3,))
    path = draw(tmp_path / "a.osm", PLANE, *ways, turns=[turn], lights=("0,300",))
    read, reading = 0, osmium.FileProcessor

    def counted(*given: Any) -> Any:
        nonlocal read
        read += 1
        return reading(*given)

    monkeypatch.setattr(osmium, "FileProcessor", counted)
    (made,) = import_osm(path)
    assert read == 2
    approach = next(one for one in made.roads if one.id == "osm:way/1/0-1")
    assert [step.road_id for step in approach.onward] == ["osm:way/2/0-1"]
    assert [one.id for one in made.roads if one.light_m is not None] == ["osm:way/3/0-1"]
