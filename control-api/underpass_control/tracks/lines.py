"""The line that a vehicle will drive, from a navigation program's GPX or GeoJSON file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.parsers import expat

from dama.prediction.places import Line, is_on_earth, without_repeats

# The most places that the service accepts; longer lines are thinned to this many.
MOST_PLACES = 10_000
_MOST_BYTES = 256 << 20
# Points of a GPX route, which a program planned, and of a track, which it recorded.
_POINTS = ("rtept", "trkpt")


class LineError(Exception):
    """A file without a line of places."""


def read_line(path: Path) -> Line:
    """Return the line of a file: a GPX route, otherwise a GPX track, or a GeoJSON LineString.

    Places need no times. If there are more than the service accepts, every nth place and the last
    one are kept.
    """
    try:
        if path.stat().st_size > _MOST_BYTES:
            raise LineError(f"{path}: larger than {_MOST_BYTES} bytes")
        data = path.read_bytes()
    except OSError as error:
        raise LineError(f"{path}: {error.strerror}") from error
    try:
        is_json = data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"{")
        line = without_repeats(_of_geojson(data) if is_json else _of_gpx(data))
    except (ValueError, RecursionError, expat.ExpatError) as error:
        raise LineError(f"{path}: neither GPX nor GeoJSON: {error}") from error
    if len(line) < 2 or not all(is_on_earth(*place) for place in line):
        raise LineError(f"{path}: no line of two or more different places, in degrees")
    step = -(-(len(line) - 1) // (MOST_PLACES - 1))
    return (*line[:-1:step], line[-1])


def _of_gpx(data: bytes) -> list[tuple[float, float]]:
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in _POINTS}

    def start(tag: str, attributes: dict[str, str]) -> None:
        points = found.get(tag.rpartition(" ")[2])
        if points is not None:
            points.append((float(attributes.get("lon", "")), float(attributes.get("lat", ""))))

    def refuse(*_: object) -> None:
        raise ValueError("it declares a document type")

    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = start
    parser.StartDoctypeDeclHandler = refuse
    parser.Parse(data, True)
    return next((points for points in found.values() if points), [])


def _of_geojson(data: bytes) -> list[tuple[float, float]]:
    document: Any = json.loads(data.decode("utf-8-sig"))
    features = document.get("features")
    if isinstance(features, list) and len(features) == 1:
        (document,) = features
    if isinstance(document, dict) and document.get("type") == "Feature":
        document = document.get("geometry")
    if not isinstance(document, dict) or document.get("type") != "LineString":
        raise ValueError("no LineString, nor one feature with such a line")
    try:
        return [(float(place[0]), float(place[1])) for place in document["coordinates"]]
    except (KeyError, TypeError, IndexError):
        raise ValueError("its coordinates are no positions") from None
