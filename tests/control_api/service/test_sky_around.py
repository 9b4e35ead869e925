"""What hides the sky around a place."""

from __future__ import annotations

from typing import Any

import pytest
from underpass_control.http import sky
from underpass_control.roles import Role

from tests.control_api.service.api import Api
from tests.control_api.service.two_tenants import NORTH, learned_place, settle

PATH = "/v1/sky?longitude=7.505&latitude=46.5"


def road(ident: str, lat: float, west: float = 7.50, **properties: Any) -> dict[str, Any]:
    """Return a covered road of some 800 m, driven in both directions."""
    axis = {"type": "LineString", "coordinates": [[west, lat], [west + 0.01, lat]]}
    return {"type": "Feature", "id": ident, "geometry": axis, "properties": properties}


def wood() -> dict[str, Any]:
    """Return an area that begins some 22 m to the south of the place."""
    ring = [[7.504, 46.499], [7.506, 46.499], [7.506, 46.4998], [7.504, 46.4998], [7.504, 46.499]]
    area = {"type": "Polygon", "coordinates": [ring]}
    return {"type": "Feature", "id": "wood", "geometry": area, "properties": {}}


def stored(api: Api, *features: dict[str, Any]) -> None:
    collection = {"type": "FeatureCollection", "features": list(features)}
    assert api.call("POST", "/v1/obstructions", collection).status == 200


def names(api: Api, query: str = "") -> list[str]:
    found = api.get(PATH + query).json
    assert found["is_whole"]
    return [one["obstruction"] for one in found["hidden"]]


def test_what_hides_the_sky_is_shown_by_distance_and_direction(api: Api) -> None:
    shade = road("shade", 46.5003, satellite="astra", certainty=0.7, kind="shadow", name="Street")
    stored(api, road("tunnel", 46.5), shade, wood(), road("far", 46.5, west=7.6))
    found = api.get(PATH).json["hidden"]
    away = [(one["obstruction"], round(one["distance_m"])) for one in found]
    assert away == [("tunnel", 0), ("tunnel", 0), ("wood", 22), ("shade", 33), ("shade", 33)]
    assert [one.get("heading_deg") for one in found] == [90.0, 270.0, None, 90.0, 270.0]
    last = found[-1]
    line = {"type": "LineString", "coordinates": [[7.51, 46.5003], [7.5, 46.5003]]}
    assert last.pop("geometry") == line
    assert last == {
        "obstruction": "shade",
        "name": "Street",
        "kind": "shadow",
        "satellite": "astra",
        "certainty": 0.7,
        "source": "rest",
        "distance_m": last["distance_m"],
        "heading_deg": 270.0,
    }
    assert names(api, "&radius_m=30") == ["tunnel", "tunnel", "wood"]
    assert names(api, "&satellite=west") == ["tunnel", "tunnel", "wood"]
    assert names(api, "&satellite=astra").count("shade") == 2
    (inside,) = api.get("/v1/sky?longitude=7.505&latitude=46.4995&radius_m=5").json["hidden"]
    assert (inside["obstruction"], inside["distance_m"]) == ("wood", 0.0)


def test_the_180th_meridian_and_the_poles_are_no_border(api: Api) -> None:
    stored(api, road("east", 10.0, west=-180.0))
    (one, other) = api.get("/v1/sky?longitude=179.9998&latitude=10").json["hidden"]
    assert one["obstruction"] == other["obstruction"] == "east"
    assert one["distance_m"] == pytest.approx(22.0, abs=0.5)
    for lat in (90, -90):
        assert api.get(f"/v1/sky?longitude=180&latitude={lat}&radius_m=1000").json == {
            "hidden": [],
            "is_whole": True,
        }


def test_more_than_is_compared_is_said(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    stored(api, road("a", 46.5), road("b", 46.5))
    monkeypatch.setattr(sky, "_MOST_SHOWN", 3)
    found = api.get(PATH).json
    assert (len(found["hidden"]), found["is_whole"]) == (3, False)
    monkeypatch.setattr(sky, "_MOST_COMPARED", 1)
    found = api.get(PATH).json
    assert (len(found["hidden"]), found["is_whole"]) == (2, False)


def test_of_more_than_are_compared_the_nearest_are(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The middle of the nearest is far away, and the order of their ids says nothing.
    long = road("long", 46.5001)
    long["geometry"]["coordinates"][0][0] = 7.3
    beside = road("east", 46.5, west=7.5053)
    stored(api, road("a", 46.5004), long, beside, road("z", 46.4997))
    query = f"{PATH}&radius_m=100"
    for most, names in enumerate(
        ({"long"}, {"long", "east"}, {"long", "east", "z"}, {"long", "east", "z", "a"}), 1
    ):
        monkeypatch.setattr(sky, "_MOST_COMPARED", most)
        assert {one["obstruction"] for one in api.get(query).json["hidden"]} == names


def test_of_both_sides_of_the_180th_meridian_the_nearest_are_compared(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    near, far = road("near", 10.0, west=-179.9997), road("far", 10.0, west=-179.9991)
    stored(api, near, far)
    monkeypatch.setattr(sky, "_MOST_COMPARED", 1)
    found = api.get("/v1/sky?longitude=179.9999&latitude=10&radius_m=200").json["hidden"]
    assert {one["obstruction"] for one in found} == {"near"}


def test_what_is_all_around_takes_no_two_places_of_those_that_are_compared(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    ring = [[-180.0, 9.0], [180.0, 9.0], [180.0, 11.0], [-180.0, 11.0], [-180.0, 9.0]]
    world = wood() | {"id": "world", "geometry": {"type": "Polygon", "coordinates": [ring]}}
    stored(api, world, road("near", 10.0, west=-179.9997))
    monkeypatch.setattr(sky, "_MOST_COMPARED", 2)
    found = api.get("/v1/sky?longitude=179.9999&latitude=10&radius_m=200").json["hidden"]
    assert "near" in {one["obstruction"] for one in found}


def test_a_tenant_sees_the_certainty_of_a_learned_place_to_a_decimal(api: Api) -> None:
    settle(api)
    place = learned_place("learned:2")
    place["geometry"]["coordinates"] = [[7.50, 46.5], [7.51, 46.5]]
    place["properties"] |= {"lost": 5, "held": 2}
    stored(api, place)
    viewer = api.run(api.token(Role.VIEWER, tenant=NORTH))
    (whole,) = api.get(PATH).json["hidden"]
    (seen,) = api.get(PATH, caller=viewer).json["hidden"]
    assert seen == {**whole, "certainty": round(whole["certainty"], 1)}
    assert seen["certainty"] != whole["certainty"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "longitude=7",
        "longitude=181&latitude=0",
        "longitude=0&latitude=nan",
        "longitude=0&latitude=0&radius_m=0",
        "longitude=0&latitude=0&radius_m=1001",
        "longitude=0&latitude=0&satellite=a%20b",
        "longitude=0&latitude=0&terminal=11",
    ],
)
def test_a_place_that_is_none_is_refused(unchanged: Api, query: str) -> None:
    assert unchanged.get(f"/v1/sky?{query}").status == 400
