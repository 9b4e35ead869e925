"""GeoJSON in and out, and what is refused."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dama.prediction import Obstruction
from dama.prediction.geojson import GeoJsonError, from_geojson, to_feature, to_geojson
from tests.dama.prediction.test_laws import MAP, line
from tests.dama.prediction.test_predictor import forked

AXIS = [[7.0, 46.0], [7.01, 46.0]]


def feature(geometry: object, **properties: object) -> dict[str, Any]:
    return {"type": "Feature", "geometry": geometry, "properties": properties}


def test_what_is_written_reads_back_the_same() -> None:
    area = Obstruction("a", "Hall", "area", area=(line((0, 0), (9, 0), (9, 9), (0, 0)),), layer=-2)
    obstructions = [
        *MAP.obstructions.values(),
        *forked(0.7).obstructions.values(),
        area,
    ]
    obstructions[1] = Obstruction(
        "u",
        roads=tuple(
            type(road)(road.id, road.line, "u" if road.covered_by else None, 22.2, road.onward)
            for road in obstructions[1].roads
        ),
    )
    document = json.loads(json.dumps(to_geojson(obstructions)))
    assert from_geojson(document) == obstructions


def test_a_drawn_axis_has_its_approaches_at_the_end_they_lead_to() -> None:
    east, west = [[6.98, 46.0], AXIS[0]], [[7.03, 46.0], AXIS[1]]
    (made,) = from_geojson(
        feature({"type": "LineString", "coordinates": AXIS}, id="t", approaches=[east, west])
    )
    leading = {road.onward[0].road_id: road.line[0] for road in made.roads if road.onward}
    assert leading == {"t/forward": (6.98, 46.0), "t/backward": (7.03, 46.0)}


def test_the_same_geometry_has_the_same_id() -> None:
    geometry = {"type": "LineString", "coordinates": AXIS}
    (one,), (other,) = from_geojson(feature(geometry)), from_geojson(feature(dict(geometry)))
    assert one.id == other.id
    assert one.id.startswith("geojson:")


def test_what_is_null_is_not_set() -> None:
    geometry = {"type": "LineString", "coordinates": AXIS}
    names = ("name", "kind", "layer", "certainty", "oneway", "approaches", "roads")
    (bare,) = from_geojson(feature(geometry, id="t"))
    (made,) = from_geojson(feature(geometry, id="t", **dict.fromkeys(names)) | {"id": None})
    assert made == bare


@pytest.mark.parametrize(
    ("document", "where"),
    [
        ([], "document"),
        ({"type": "Polygon"}, "document"),
        ({"type": "FeatureCollection", "features": {}}, "features"),
        ({"type": "FeatureCollection", "features": [1]}, "features[0]"),
        (feature(None), "geometry"),
        (feature({"type": "Point", "coordinates": [0, 0]}), "geometry"),
        (feature({"type": "LineString", "coordinates": [[7, 46]]}), "geometry"),
        (feature({"type": "LineString", "coordinates": [[7, 46], [7, 46]]}), "axis"),
        (feature({"type": "LineString", "coordinates": [[7, 46], [7, "x"]]}), "not a number"),
        (feature({"type": "LineString", "coordinates": [[7, 46], [7, 91]]}), "Earth"),
        (feature({"type": "LineString", "coordinates": [[7, 46], [7, float("nan")]]}), "Earth"),
        (feature({"type": "LineString", "coordinates": [[7, 46], [7, 10**400]]}), "too great"),
        (feature({"type": "Polygon", "coordinates": [[[7, 46], [8, 46], [8, 47]]]}), "short"),
        (
            feature({"type": "Polygon", "coordinates": [[[7, 46], [8, 46], [8, 47], [7, 47]]]}),
            "closed",
        ),
        (feature({"type": "LineString", "coordinates": AXIS}, certainty=0), "certainty"),
        (feature({"type": "LineString", "coordinates": AXIS}, certainty=True), "certainty"),
        (feature({"type": "LineString", "coordinates": AXIS}, layer=1.5), "layer"),
        (feature({"type": "LineString", "coordinates": AXIS}, name="x" * 300), "name"),
        (feature({"type": "LineString", "coordinates": AXIS}, id="x\0"), "id"),
        (feature({"type": "LineString", "coordinates": AXIS}, oneway="yes"), "oneway"),
        (
            feature({"type": "LineString", "coordinates": AXIS}, approaches=[[[6, 46], [6, 47]]]),
            "approaches[0]",
        ),
        (feature({"type": "LineString", "coordinates": AXIS}, roads=[{}]), "roads[0].id"),
    ],
)
def test_what_is_no_obstruction_is_refused_with_the_place(document: object, where: str) -> None:
    with pytest.raises(GeoJsonError) as refused:
        from_geojson(document)
    assert where in str(refused.value)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=10,
)


@given(json_values, st.sampled_from(["geometry", "properties", "roads", "approaches", "line"]))
def test_no_document_breaks_the_reader(value: object, place: str) -> None:
    document = to_feature(next(iter(MAP.obstructions.values())))
    if place == "line":
        document["properties"]["roads"][0]["line"] = value
    elif place in ("roads", "approaches"):
        document["properties"][place] = value
    else:
        document[place] = value
    with suppress(GeoJsonError):
        from_geojson(document)


def test_a_corrected_certainty_is_used_where_it_is_wanted() -> None:
    axis = {"type": "LineString", "coordinates": AXIS}
    document = feature(axis, id="a", certainty=0.9, corrected=0.4)
    other = feature(axis, id="b", certainty=0.8, corrected=None)
    both = {"type": "FeatureCollection", "features": [document, other]}
    assert [one.certainty for one in from_geojson(both)] == [0.9, 0.8]
    assert [one.certainty for one in from_geojson(both, corrected=True)] == [0.4, 0.8]
    assert from_geojson(document, corrected=True)[0].certainty == 0.4
    for wrong in (0, 1.1, "0.4", True):
        with pytest.raises(GeoJsonError):
            from_geojson(feature(axis, certainty=0.9, corrected=wrong), corrected=True)
