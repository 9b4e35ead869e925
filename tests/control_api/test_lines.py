"""Lines from files: GPX routes and tracks, GeoJSON LineStrings."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from underpass_control.tracks.lines import MOST_PLACES, LineError, read_line

PLACES = [[7.0, 46.0], [7.1, 46.1], [7.2, 46.0]]
LINE = tuple((lon, lat) for lon, lat in PLACES)
GEOMETRY = {"type": "LineString", "coordinates": PLACES}
FEATURE = {"type": "Feature", "properties": {}, "geometry": GEOMETRY}


def points(kind: str, places: list[list[float]] = PLACES) -> str:
    return "".join(f'<{kind} lon="{lon}" lat="{lat}"/>' for lon, lat in places)


def gpx(inside: str) -> str:
    return f'<gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1">{inside}</gpx>'


@pytest.mark.parametrize(
    "text",
    [
        gpx(f"<rte>{points('rtept')}</rte>"),
        gpx(f"<trk><trkseg>{points('trkpt')}</trkseg></trk>"),
        # A planned route counts first, and repeated places are dropped.
        gpx(f"<trk>{points('trkpt', [[8.0, 47.0]])}</trk><rte>{points('rtept')}</rte>"),
        gpx(f"<rte>{points('rtept', [PLACES[0], *PLACES])}</rte>"),
        json.dumps(GEOMETRY),
        json.dumps(FEATURE),
        json.dumps({"type": "FeatureCollection", "features": [FEATURE]}),
    ],
)
def test_a_line_is_read(tmp_path: Path, text: str) -> None:
    file = tmp_path / "route"
    for encoding in ("utf-8", "utf-8-sig", "utf-16") if text[0] == "<" else ("utf-8", "utf-8-sig"):
        file.write_text(text, encoding=encoding)
        assert read_line(file) == LINE


def test_of_a_long_line_as_many_places_are_kept_as_the_service_takes(tmp_path: Path) -> None:
    file = tmp_path / "long.gpx"
    for count in (MOST_PLACES, MOST_PLACES + 1, 3 * MOST_PLACES + 7):
        places = [[7.0 + n / 1e6, 46.0] for n in range(count)]
        file.write_text(gpx(points("trkpt", places)))
        line = read_line(file)
        assert MOST_PLACES / 3 < len(line) <= MOST_PLACES
        assert (list(line[0]), list(line[-1])) == (places[0], places[-1])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "<gpx>",
        gpx(""),
        gpx('<trkpt lon="7"/>'),
        gpx('<trkpt lon="7" lat="91"/><trkpt lon="7" lat="46"/>'),
        '<!DOCTYPE gpx [<!ENTITY a "b">]><gpx/>',
        "{}",
        '{"features": [[]]}',
        json.dumps(GEOMETRY | {"coordinates": [7.0, 46.0]}),
        json.dumps(GEOMETRY | {"type": "Point"}),
    ],
)
def test_what_is_no_line_is_said_with_the_file(tmp_path: Path, text: str) -> None:
    file = tmp_path / "route"
    file.write_text(text)
    with pytest.raises(LineError, match="route: "):
        read_line(file)
    with pytest.raises(LineError, match="No such file"):
        read_line(tmp_path / "absent")
