"""Obstructions as GeoJSON (RFC 7946): drawn by hand, or as they were imported, without loss."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dama.prediction.obstruction import (
    MAX_POSITIONS,
    Obstruction,
    ObstructionError,
    Onward,
    Road,
    road_tunnel,
)
from dama.prediction.places import Line, without_repeats

MAX_FEATURES = 100_000
_MAX_TEXT = 256


class GeoJsonError(ValueError):
    """A document that is no obstruction; the message says where."""


def to_feature(obstruction: Obstruction) -> dict[str, Any]:
    """Return an obstruction as a feature.

    Its geometry is the area, or the covered roads; the property `roads` has the road network that
    the prediction uses.
    """
    properties: dict[str, Any] = {
        "name": obstruction.name,
        "kind": obstruction.kind,
        "layer": obstruction.layer,
        "certainty": obstruction.certainty,
    }
    if obstruction.satellite is not None:
        properties["satellite"] = obstruction.satellite
    if obstruction.area:
        geometry = {"type": "Polygon", "coordinates": [_pairs(ring) for ring in obstruction.area]}
    else:
        lines = [_pairs(road.line) for road in obstruction.covered]
        geometry = {"type": "MultiLineString", "coordinates": lines}
        properties["roads"] = [_road(road) for road in obstruction.roads]
    return {
        "type": "Feature",
        "id": obstruction.id,
        "geometry": geometry,
        "properties": properties,
    }


def to_geojson(obstructions: Iterable[Obstruction]) -> dict[str, Any]:
    """Return obstructions as a feature collection."""
    return {"type": "FeatureCollection", "features": [to_feature(o) for o in obstructions]}


def _pairs(line: Line) -> list[list[float]]:
    return [list(position) for position in line]


def _road(road: Road) -> dict[str, Any]:
    return {
        "id": road.id,
        "line": _pairs(road.line),
        "covered_by": road.covered_by,
        "limit_mps": road.limit_mps,
        "usual_mps": road.usual_mps,
        "light_m": road.light_m,
        "onward": [[step.road_id, step.probability] for step in road.onward],
    }


def from_geojson(document: object, *, corrected: bool = False) -> list[Obstruction]:
    """Return the obstructions of a feature, or of a collection of them.

    With `corrected`, those that a service's drives have corrected have the certainty that the
    property of that name gives, to predict with; to store them, take the map's own.

    - A Polygon is an area.
    - A LineString is a road tunnel's axis. The property `approaches` may hold the roads that lead
      into it, as lines that end at its first or at its last position; `oneway` (true) says that
      vehicles drive it only in the direction drawn.
    - A feature with the property `roads` is one that `to_feature` wrote.
    - The property `satellite` names the only satellite that it hides.

    The id is the feature's, or its property `id`, or one derived from its geometry, so the same
    document always gives the same obstructions. Raises `GeoJsonError`.
    """
    kind = _mapping(document, "document").get("type")
    if kind == "Feature":
        return [_feature(document, "feature", corrected=corrected)]
    if kind != "FeatureCollection":
        raise GeoJsonError("document: type is neither Feature nor FeatureCollection")
    features = _list(_mapping(document, "document").get("features"), "features")
    if len(features) > MAX_FEATURES:
        raise GeoJsonError(f"features: more than {MAX_FEATURES}")
    found = [
        _feature(feature, f"features[{n}]", corrected=corrected)
        for n, feature in enumerate(features)
    ]
    names = [obstruction.id for obstruction in found]
    if len(set(names)) != len(names):
        raise GeoJsonError("features: two of them have the same id")
    return found


def _feature(document: object, where: str, *, corrected: bool) -> Obstruction:
    feature = _mapping(document, where)
    if feature.get("type") != "Feature":
        raise GeoJsonError(f"{where}: type is not Feature")
    # Programs write null for properties that are not set.
    said = _mapping(feature.get("properties") or {}, f"{where}.properties")
    properties = {name: value for name, value in said.items() if value is not None}
    geometry = _mapping(feature.get("geometry"), f"{where}.geometry")
    name = _id(feature, properties, geometry, where)
    certainty = "corrected" if corrected and "corrected" in properties else "certainty"
    common: dict[str, Any] = {
        "name": _text(properties.get("name", ""), f"{where}.properties.name"),
        "certainty": _number(properties.get(certainty, 1.0), f"{where}.properties.{certainty}"),
    }
    if "satellite" in properties:
        common["satellite"] = _text(properties["satellite"], f"{where}.properties.satellite")
    shape, coordinates = geometry.get("type"), geometry.get("coordinates")
    kind = _text(
        properties.get("kind", "area" if shape == "Polygon" else "tunnel"), f"{where}.kind"
    )
    layer = properties.get("layer", 0)
    if not isinstance(layer, int) or abs(layer) > 100:
        raise GeoJsonError(f"{where}.properties.layer: not a small whole number")
    try:
        if "roads" in properties:
            roads = tuple(
                _read_road(road, f"{where}.properties.roads[{n}]")
                for n, road in enumerate(_list(properties["roads"], f"{where}.properties.roads"))
            )
            return Obstruction(name, kind=kind, roads=roads, layer=layer, **common)
        if shape == "Polygon":
            rings = _list(coordinates, f"{where}.geometry.coordinates")
            area = tuple(_line(ring, f"{where}.geometry.coordinates") for ring in rings)
            return Obstruction(name, kind=kind, area=area, layer=layer, **common)
        if shape == "LineString":
            axis = without_repeats(_line(coordinates, f"{where}.geometry.coordinates"))
            return _drawn(name, axis, properties, where, kind=kind, **common)
    except ObstructionError as error:
        raise GeoJsonError(f"{where}: {error}") from error
    raise GeoJsonError(f"{where}.geometry: neither LineString nor Polygon")


def _drawn(
    obstruction_id: str, axis: Line, properties: Mapping[str, Any], where: str, **common: Any
) -> Obstruction:
    if len(axis) < 2:
        raise GeoJsonError(f"{where}.geometry: the axis has no length")
    into_start: list[Line] = []
    into_end: list[Line] = []
    lines = _list(properties.get("approaches", []), f"{where}.properties.approaches")
    for n, entry in enumerate(lines):
        line = without_repeats(_line(entry, f"{where}.properties.approaches[{n}]"))
        if len(line) < 2 or line[-1] not in (axis[0], axis[-1]):
            raise GeoJsonError(
                f"{where}.properties.approaches[{n}]: it ends at neither end of the axis"
            )
        (into_start if line[-1] == axis[0] else into_end).append(line)
    oneway = properties.get("oneway", False)
    if not isinstance(oneway, bool):
        raise GeoJsonError(f"{where}.properties.oneway: neither true nor false")
    return road_tunnel(
        obstruction_id, axis, into_start=into_start, into_end=into_end, oneway=oneway, **common
    )


def _read_road(document: object, where: str) -> Road:
    road = _mapping(document, where)
    cover, limit, usual = road.get("covered_by"), road.get("limit_mps"), road.get("usual_mps")
    light = road.get("light_m")
    onward = []
    for step in _list(road.get("onward", []), f"{where}.onward"):
        pair = _list(step, f"{where}.onward")
        if len(pair) != 2:
            raise GeoJsonError(f"{where}.onward: not pairs of id and probability")
        onward.append(Onward(_text(pair[0], f"{where}.onward"), _number(pair[1], where)))
    return Road(
        id=_text(road.get("id"), f"{where}.id"),
        line=_line(road.get("line"), f"{where}.line"),
        covered_by=None if cover is None else _text(cover, f"{where}.covered_by"),
        limit_mps=None if limit is None else _number(limit, f"{where}.limit_mps"),
        usual_mps=None if usual is None else _number(usual, f"{where}.usual_mps"),
        light_m=None if light is None else _number(light, f"{where}.light_m"),
        onward=tuple(onward),
    )


def _id(
    feature: Mapping[str, Any],
    properties: Mapping[str, Any],
    geometry: Mapping[str, Any],
    where: str,
) -> str:
    given = feature.get("id")
    if given is None:
        given = properties.get("id")
    if given is None:
        text = json.dumps(geometry, sort_keys=True, separators=(",", ":"))
        return f"geojson:{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    if isinstance(given, int) and not isinstance(given, bool):
        given = str(given)
    return _text(given, f"{where}.id")


def _mapping(value: object, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise GeoJsonError(f"{where}: not an object")
    return value


def _list(value: object, where: str) -> Sequence[Any]:
    if not isinstance(value, list):
        raise GeoJsonError(f"{where}: not an array")
    return value


def _text(value: object, where: str) -> str:
    if not isinstance(value, str) or len(value) > _MAX_TEXT or "\0" in value:
        raise GeoJsonError(f"{where}: not a text of at most {_MAX_TEXT} characters")
    return value


def _number(value: object, where: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise GeoJsonError(f"{where}: not a number")
    try:
        return float(value)
    except OverflowError:
        raise GeoJsonError(f"{where}: too great a number") from None


def _line(value: object, where: str) -> Line:
    positions = _list(value, where)
    if len(positions) > MAX_POSITIONS:
        raise GeoJsonError(f"{where}: more than {MAX_POSITIONS} positions")
    line = []
    for entry in positions:
        pair = _list(entry, where)
        # A third number is a height (RFC 7946, 3.1.1).
        if not 2 <= len(pair) <= 3:
            raise GeoJsonError(f"{where}: a position is longitude and latitude")
        line.append((_number(pair[0], where), _number(pair[1], where)))
    return tuple(line)
