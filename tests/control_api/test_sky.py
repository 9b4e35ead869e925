"""Extracts as a satellite sees their roads: obstacles, and the shadows that they cast."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import rasterio
from rasterio.transform import from_origin
from typer.testing import CliRunner
from underpass_control.cli import app
from underpass_control.obstructions.extract import ExtractError, quiet
from underpass_control.obstructions.sky import Gaps, View, import_sky, masks_of
from underpass_control.obstructions.surroundings import read_surroundings
from underpass_control.obstructions.terrain import TerrainError, read_terrain

from dama.prediction import Fix, Obstruction, ObstructionMap, Predictor
from dama.prediction.geojson import from_geojson, to_geojson
from dama.prediction.network import MOST_NODES
from dama.prediction.places import Course, Plane
from dama.sky import AntennaMask, Belief, Satellite, State
from tests.control_api.drawn import Drawn, draw
from tests.drives import field

PLANE = Plane((15.6, 48.4))
SATELLITE = Satellite("astra", 19.2)
VIEW = View(AntennaMask())
NAMES = ("astra", "east")
MOSCOW = "moscow.osm.gz"


def write(path: Path, *ways: Drawn) -> Path:
    return draw(path, PLANE, *ways)


def box(west: float, south: float, east: float, north: float) -> str:
    corners = [(west, south), (east, south), (east, north), (west, north), (west, south)]
    return " ".join(f"{x},{y}" for x, y in corners)


def house(area: str, **tags: str) -> Drawn:
    return area, {"building": "yes"} | tags


ROAD = {"highway": "secondary", "maxspeed": "50", "name": "Long Street"}
STREET: Drawn = ("-1500,0 0,0 800,0", ROAD)
# To the south, towards the satellite: 60 m of the house shade the road.
TALL = house(box(100, -30, 160, -12), **{"building:levels": "10"})


def shadows(found: list[Obstruction]) -> list[Obstruction]:
    return [one for one in found if one.kind == "shadow"]


def test_a_vehicle_is_told_of_a_shadow_ahead(tmp_path: Path) -> None:
    found = import_sky(write(tmp_path / "a.osm", STREET, TALL), (SATELLITE,), VIEW)
    assert from_geojson(to_geojson(found)) == found
    predictor = Predictor(ObstructionMap(found))
    for second in range(80):
        lon, lat = PLANE.position(-900.0 + 12.0 * second, -1.6)
        predictor.feed(Fix(1000 * second, lon, lat, 12.0, 90.0, 3.0))
    # The road is a dead end, so the same house shades the way back too.
    blockage, *_ = predictor.blockages(79_000)
    # It is at 48 m. The shadow begins where the house does.
    assert blockage.entry_ms - 79_000 == pytest.approx(1000 * (100 - 48) / 12.0, abs=700)
    assert blockage.duration_s == pytest.approx(60 / 12.0, abs=0.8)
    assert blockage.confidence > 0.8
    assert blockage.obstruction_id is not None
    assert blockage.obstruction_id.startswith("sky:astra:way/")


def test_the_same_extract_gives_the_same_obstructions_with_tunnels_among_them(
    tmp_path: Path,
) -> None:
    tunnel = ("800,0 900,0", ROAD | {"tunnel": "yes"})
    path = write(tmp_path / "a.osm", STREET, TALL, tunnel, ("900,0 2000,0", ROAD))
    found = import_sky(path, (SATELLITE,), VIEW)
    assert found == import_sky(path, (SATELLITE,), VIEW)
    assert [one.kind for one in found] == ["tunnel", "shadow", "shadow"]
    # Both are on the same road: behind the shadow comes the tunnel.
    both = ObstructionMap(found)
    shadow = next(one for one in shadows(found) if "/0-2@" in one.id)
    (first,) = (road.id for road in shadow.roads if road.id.startswith("osm:way/1/0-2@0-"))
    ahead = [one.obstruction_id for one in both.ahead(first)]
    assert ahead[:2] == [shadow.id, found[0].id]


def test_each_direction_has_its_own_shadow(tmp_path: Path) -> None:
    low = house(box(-60, -30, 60, -8), height="8.3")
    wide = {"highway": "primary", "lanes": "4"}
    path = write(tmp_path / "a.osm", ("-500,0 500,0", wide), low)
    (shadow,) = shadows(import_sky(path, (SATELLITE,), VIEW))
    (road,) = shadow.covered
    # Eastbound vehicles drive on the southern side, next to the house.
    assert road.line[0][0] < road.line[-1][0]
    assert Course(road.line).length_m == pytest.approx(120.0, abs=15.0)
    left = shadows(import_sky(path, (SATELLITE,), View(AntennaMask(), left_hand=True)))
    assert left[0].covered[0].line[0][0] > left[0].covered[0].line[-1][0]


def test_nobody_turns_round_where_a_road_is_cut(tmp_path: Path) -> None:
    side = ("0,0 0,500", ROAD | {"name": "Side Street"})
    path = write(tmp_path / "a.osm", STREET, side, TALL)
    known = ObstructionMap(import_sky(path, (SATELLITE,), VIEW))
    arriving = [
        road
        for one in known.obstructions.values()
        for road in one.roads
        if road.id.startswith("osm:way/1/0-1")
    ]
    assert arriving
    for road in arriving:
        assert not any(step.road_id.startswith("osm:way/1/1-0") for step in road.onward)


@pytest.mark.parametrize(
    ("tags", "median"),
    [
        ({"height": "12"}, 12.0),
        ({"height": "12.5 m"}, 12.5),
        ({"height": "40 ft"}, 12.192),
        ({"height": "-5", "building:levels": "3"}, 10.5),
        ({"height": "1e9"}, None),
        ({"height": "99999"}, None),
        ({"height": "nan"}, None),
        ({"building:levels": "ground"}, None),
        ({"building:levels": "-1"}, None),
        ({"building:levels": "0"}, None),
        ({"building:levels": "100000"}, None),
        ({"building:levels": "2;3"}, None),
        ({"building:levels": "4", "roof:levels": "1"}, 16.7),
    ],
)
def test_heights_are_what_the_tags_say_or_what_is_usual(
    tmp_path: Path, tags: dict[str, str], median: float | None
) -> None:
    path = write(tmp_path / "a.osm", STREET, house(box(0, 10, 20, 30), **tags))
    found = read_surroundings(path, quiet)
    (one,) = found.obstacles
    expected = Belief(median, 0.1) if median is not None else Belief(8.0, 0.65)
    half = found.heights.higher_than(np.array([one.height]), np.array([expected.median_m]))
    assert half[0] == pytest.approx(0.5, abs=0.01)


def test_what_has_no_shape_is_counted_and_harms_nothing(tmp_path: Path) -> None:
    path = write(
        tmp_path / "a.osm",
        STREET,
        ("5,5", {"highway": "residential"}),
        ("5,5 5,5", {"natural": "tree_row"}),
        ("1,1 2,2", {"building": "yes"}),
        ("10,10 20,20 10,10", {"building": "yes"}),
        ("30,30 40,40 40,30 30,40 30,30", {"building": "yes", "height": "20"}),
        TALL,
    )
    assert read_surroundings(path, quiet).without_shape >= 1
    assert len(shadows(import_sky(path, (SATELLITE,), VIEW))) == 2


def test_a_wall_of_far_too_many_nodes_is_left_out(tmp_path: Path) -> None:
    endless = " ".join(f"{x / 10},{(x * 7) % 13}" for x in range(MOST_NODES + 1))
    path = write(tmp_path / "a.osm", STREET, (endless, {"barrier": "city_wall"}), TALL)
    assert read_surroundings(path, quiet).without_shape == 1
    assert len(shadows(import_sky(path, (SATELLITE,), VIEW))) == 2


def test_a_road_is_in_the_shade_however_finely_it_is_drawn(tmp_path: Path) -> None:
    fine = " ".join(f"{x / 10},0" for x in range(-6_000, 6_001))
    path = write(tmp_path / "a.osm", (fine, ROAD), TALL)
    assert read_surroundings(path, quiet).without_shape == 0
    assert len(shadows(import_sky(path, (SATELLITE,), VIEW))) == 2


def test_a_road_that_no_map_has_is_an_error_that_names_it(tmp_path: Path) -> None:
    endless = " ".join(f"{x / 10},0" for x in range(MOST_NODES + 1))
    path = write(tmp_path / "a.osm", STREET, (endless, ROAD), TALL)
    for read in (import_sky, masks_of):
        with pytest.raises(ExtractError, match=r"a\.osm: osm:way/2: 20001 nodes"):
            read(path, (SATELLITE,), VIEW)


def test_a_town_in_the_shade_of_a_mountain_is_stored_within_bounds(tmp_path: Path) -> None:
    at = range(-1500, 1501, 100)
    streets = [(" ".join(f"{x},{y}" for x in at), ROAD) for y in at]
    streets += [(" ".join(f"{x},{y}" for y in at), ROAD) for x in at]
    mask = View(AntennaMask(((0.0, 60.0),)))
    found = shadows(import_sky(write(tmp_path / "a.osm", *streets), (SATELLITE,), mask))
    assert len(found) > 1
    roads = [road.id for one in found for road in one.roads]
    assert len(roads) == len(set(roads)) == 4 * len(at) * (len(at) - 1)
    assert all(road.covered_by == one.id for one in found for road in one.roads)


def test_a_building_in_parts_is_as_high_as_they_are(tmp_path: Path) -> None:
    whole = house(box(0, 10, 40, 30), height="60")
    parts = [
        (box(x, 10, x + 20, 30), {"building:part": "yes", "height": str(height)})
        for x, height in ((0, 10), (20, 60))
    ]
    found = read_surroundings(write(tmp_path / "a.osm", STREET, whole, *parts), quiet)
    assert {one.id for one in found.obstacles} == {"osm:way/3", "osm:way/4"}
    # A part alone does not replace the whole.
    found = read_surroundings(write(tmp_path / "b.osm", STREET, whole, parts[1]), quiet)
    assert len(found.obstacles) == 2


def test_houses_of_one_series_lend_each_other_their_height(tmp_path: Path) -> None:
    series = [
        house(box(x, 50, x + 12, 110), **{"building:levels": "16"}) for x in range(0, 300, 30)
    ]
    cottages = [
        house(box(x, 150, x + 9, 160), **{"building:levels": "1"}) for x in range(0, 300, 30)
    ]
    unknown = house(box(330, 50, 342, 110)), house(box(330, 150, 339, 160))
    path = write(tmp_path / "a.osm", STREET, *series, *cottages, *unknown)
    found = read_surroundings(path, quiet)
    tower, cottage = (one.height for one in found.obstacles[-2:])
    chance = found.heights.higher_than(np.array([tower, cottage]), np.array([30.0, 30.0]))
    assert chance[0] > 0.8
    assert chance[1] < 0.1


def test_an_extract_without_roads_or_of_the_other_side_of_the_earth_is_an_error(
    tmp_path: Path,
) -> None:
    with pytest.raises(ExtractError, match="no roads"):
        import_sky(write(tmp_path / "a.osm", TALL), (SATELLITE,), VIEW)
    with pytest.raises(ExtractError, match="below the horizon"):
        import_sky(write(tmp_path / "b.osm", STREET), (Satellite("far", -170.0),), VIEW)
    with pytest.raises(ExtractError, match="no such file"):
        import_sky(tmp_path / "absent.osm", (SATELLITE,), VIEW)


def _heights(
    path: Path,
    driver: str,
    *,
    crs: str = "EPSG:4326",
    step: float = 1 / 1200,
    west: float = 15.0,
    ridge_m: float = 1_200.0,
) -> Path:
    """Write heights around the road: a ridge of 1,000 m 1.5 km to the south of it."""
    rows = np.arange(1201)[:, None] + np.zeros(1201)
    heights = np.where(abs(rows - 736) < 8, ridge_m, 200.0).astype("int16")
    place = from_origin(west - step / 2, 49.0 + step / 2, step, step)
    if crs != "EPSG:4326":
        place = from_origin(500_000.0, 5_400_000.0, 90.0, 90.0)
    profile = {"width": 1201, "height": 1201, "count": 1, "dtype": "int16", "crs": crs}
    with rasterio.open(path, "w", driver=driver, transform=place, **profile) as file:
        file.write(heights, 1)
    return path


@pytest.mark.parametrize(("name", "driver"), [("a.tif", "GTiff"), ("N48E015.hgt", "SRTMHGT")])
def test_a_mountain_is_read_from_a_file(tmp_path: Path, name: str, driver: str) -> None:
    view = View(AntennaMask(), (_heights(tmp_path / name, driver),))
    path = write(tmp_path / "a.osm", ("-300,0 300,0", ROAD))
    (masks,) = masks_of(path, (SATELLITE,), view)
    states = {one.state for lane in masks.lanes for one in masks.of(lane.id)}
    assert states == {State.BLOCKED}
    assert not shadows(import_sky(path, (SATELLITE,), VIEW))


def test_ground_that_a_file_lacks_is_told_and_is_not_clear(tmp_path: Path) -> None:
    # SRTM's value of a void.
    terrain = _heights(tmp_path / "a.tif", "GTiff", ridge_m=-32_768.0)
    path = write(tmp_path / "a.osm", ("-300,0 300,0", ROAD), ("5,5", {"barrier": "city_wall"}))
    lacks: list[Gaps] = []
    view = View(AntennaMask(), (terrain,))
    assert not shadows(import_sky(path, (SATELLITE,), view, gaps=lacks.append))
    (told,) = lacks
    assert told == Gaps(left_out=1, metres=told.metres, unknown_m={"astra": told.metres})
    assert told.metres == pytest.approx(1_200, abs=2)
    to = tmp_path / "masks.geojson"
    command = ["obstruction", "sky", str(path), str(to), "--satellite", "astra=19.2", "--json"]
    result = CliRunner().invoke(app, [*command, "--terrain", str(terrain)])
    assert result.exit_code == 0, result.output
    assert "may hide astra along 1.2 of 1.2 km" in result.stderr
    assert json.loads(result.stdout) == {
        "intervals": 2,
        "left_out": 1,
        "unknown_m": {"astra": told.metres},
    }
    features = json.loads(to.read_text())["features"]
    assert {one["properties"]["state"] for one in features} == {"unknown"}
    result = CliRunner().invoke(app, command)
    assert json.loads(result.stdout)["unknown_m"] == {"astra": 0}
    assert "may hide" not in result.stderr


def test_heights_on_both_sides_of_the_180th_meridian_are_one_ground(tmp_path: Path) -> None:
    step = 1 / 120
    for name, west, height in (("east.tif", 179.0, 300), ("west.tif", -180.0, 700)):
        place = from_origin(west, 52.0, step, step)
        profile = {"width": 120, "height": 120, "count": 1, "dtype": "int16", "crs": "EPSG:4326"}
        with rasterio.open(tmp_path / name, "w", driver="GTiff", transform=place, **profile) as to:
            to.write(np.full((120, 120), height, dtype="int16"), 1)
    files = [tmp_path / "east.tif", tmp_path / "west.tif"]
    for box in ((179.9, 51.4, 180.1, 51.6), (-180.1, 51.4, -179.9, 51.6)):
        grid = read_terrain(files, box, 5.0)
        lons = np.array([179.9, 179.98, -179.98, -179.9])
        assert grid.at(lons, np.full(4, 51.5)).tolist() == [300.0, 300.0, 700.0, 700.0]


def test_the_sky_of_a_map_on_both_sides_of_the_180th_meridian(tmp_path: Path) -> None:
    view = View(AntennaMask(), (_heights(tmp_path / "a.tif", "GTiff", west=179.5),))
    path = draw(tmp_path / "a.osm", Plane((180.0, 48.4)), ("-300,0 300,0", ROAD))
    (masks,) = masks_of(path, (Satellite("far", -175.0),), view)
    states = {one.state for lane in masks.lanes for one in masks.of(lane.id)}
    assert states == {State.BLOCKED}


@pytest.mark.parametrize("lon", [15.6, 180.0])
def test_a_road_beside_a_shaded_one_is_kept_across_the_180th_meridian(
    tmp_path: Path, lon: float
) -> None:
    # The street ends 20 m before the meridian, the other road begins 20 m behind it.
    plane = Plane(Plane((lon, 48.4)).position(-820.0, 0.0))
    satellite = Satellite("far", (lon + 3.6 + 180.0) % 360.0 - 180.0)
    path = draw(tmp_path / "a.osm", plane, STREET, TALL, ("840,0 1000,0", ROAD))
    kept = {road.id for one in import_sky(path, (satellite,), VIEW) for road in one.roads}
    assert {"osm:way/3/0-1", "osm:way/3/1-0"} <= kept


def test_a_file_that_has_no_heights_in_degrees_is_an_error(tmp_path: Path) -> None:
    around = (15.5, 48.3, 15.7, 48.5)
    with pytest.raises(TerrainError, match="no such file"):
        read_terrain([tmp_path / "absent.tif"], around, 5.0)
    broken = tmp_path / "broken.tif"
    broken.write_bytes(b"II*\0" + b"\xff" * 100)
    with pytest.raises(TerrainError, match=r"broken\.tif"):
        read_terrain([broken], around, 5.0)
    metres = _heights(tmp_path / "metres.tif", "GTiff", crs="EPSG:32633")
    with pytest.raises(TerrainError, match="grid of degrees"):
        read_terrain([metres], around, 5.0)
    heights = _heights(tmp_path / "a.tif", "GTiff")
    with pytest.raises(TerrainError, match="take the map in parts"):
        read_terrain([heights], (-170.0, -60.0, 170.0, 60.0), 5.0)
    with pytest.raises(TerrainError):
        read_terrain([heights], (100.0, 10.0, 100.1, 10.1), 5.0)


def test_the_masks_of_two_satellites_are_written(tmp_path: Path) -> None:
    path = write(tmp_path / "a.osm", STREET, TALL)
    to = tmp_path / "masks.geojson"
    satellites = ["--satellite", "astra=19.2", "--satellite", "west=-30"]
    command = ["obstruction", "sky", str(path), str(to), *satellites, "--antenna", "0:10,180:15"]
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    features = json.loads(to.read_text())["features"]
    seen = {(one["properties"]["satellite"], one["properties"]["state"]) for one in features}
    assert {name for name, _ in seen} == {"astra", "west"}
    assert ("astra", "blocked") in seen


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--satellite", "astra"], "NAME=LONGITUDE"),
        (["--satellite", "astra=200"], "longitude"),
        (["--satellite", "astra=-170"], "below the horizon"),
        (["--satellite", "astra=19.2", "--antenna", "north"], "no elevation"),
        (["--satellite", "astra=19.2", "--antenna", "400:10"], "antenna"),
        (["--satellite", "astra=19.2", "--antenna-height", "-1"], "antenna"),
        (["--satellite", "astra=19.2", "--terrain", "/nowhere.tif"], "no such file"),
    ],
)
def test_options_that_cannot_be_are_told_in_a_line(
    tmp_path: Path, options: list[str], says: str
) -> None:
    path = write(tmp_path / "a.osm", STREET)
    result = CliRunner().invoke(app, ["obstruction", "import", str(path), *options])
    assert result.exit_code == 1
    assert says in result.output
    assert "Traceback" not in result.output


@pytest.mark.timeout(600)
@pytest.mark.skipif(bool(field.missing(MOSCOW)), reason=field.missing(MOSCOW) or "")
def test_a_town_has_shadows_on_part_of_its_roads() -> None:
    found = shadows(import_sky(field.FIELD / MOSCOW, (SATELLITE,), VIEW))
    assert len(found) > 100
    covered = {road.id: Course(road.line).length_m for one in found for road in one.covered}
    # Of some 130 km of lanes.
    assert 8_000 < sum(covered.values()) < 45_000
    ObstructionMap(found)


def test_progress_is_told_of_a_known_number_of_steps(tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    both = SATELLITE, Satellite("east", 50.0)
    path = write(tmp_path / "a.osm", STREET, TALL)
    import_sky(path, both, VIEW, progress=lambda *step: told.append(step))
    steps = {step: [one[1:] for one in told if one[0] == step] for step, *_ in told}
    assert list(steps) == ["surroundings", "shadows", "obstructions"]
    assert steps["obstructions"] == [(0, 3), (1, 3), (2, 3), (3, 3)]


def test_of_several_satellites_each_has_its_own_shadows_of_the_same_roads(tmp_path: Path) -> None:
    tunnel = ("800,0 900,0", ROAD | {"tunnel": "yes"})
    # To the north-east of the road: it hides no satellite in the south, but one low in the east.
    other = house(box(330, 6, 350, 30), height="40")
    path = write(tmp_path / "a.osm", STREET, TALL, other, tunnel, ("900,0 2000,0", ROAD))
    east = Satellite("east", 80.0)
    found = import_sky(path, (SATELLITE, east), VIEW)
    assert from_geojson(to_geojson(found)) == found
    hidden = {name: [one for one in shadows(found) if one.satellite == name] for name in NAMES}
    assert all(hidden.values())
    assert all(one.id.startswith(f"sky:{name}:") for name in NAMES for one in hidden[name])
    assert [one.satellite for one in found if one.kind == "tunnel"] == [None]
    for name in NAMES:
        seen = ObstructionMap(one for one in found if one.counts_for(name))
        assert {one.satellite for one in seen.obstructions.values()} == {None, name}
        # Roads are complete: a vehicle there is warned of its own shadows and the tunnel behind.
        (first,) = {
            road.id
            for one in seen.obstructions.values()
            for road in one.roads
            if road.id.startswith("osm:way/1/0-2@0-")
        }
        ahead = [one.obstruction_id for one in seen.ahead(first)]
        assert found[0].id in ahead
        assert {one for one in ahead if one.startswith("sky:")} <= {one.id for one in hidden[name]}


def test_one_satellite_is_shaded_as_it_is_beside_another(tmp_path: Path) -> None:
    path = write(tmp_path / "a.osm", STREET, TALL)
    alone = shadows(import_sky(path, (SATELLITE,), VIEW))
    both = shadows(import_sky(path, (SATELLITE, Satellite("east", 50.0)), VIEW))
    beside = [one for one in both if one.satellite == "astra"]
    assert len(beside) < len(both)
    for one, other in zip(alone, beside, strict=True):
        lengths = [
            sum(Course(road.line).length_m for road in each.covered) for each in (one, other)
        ]
        assert lengths[0] == pytest.approx(lengths[1], abs=0.1)
        assert one.certainty == pytest.approx(other.certainty, abs=0.002)
