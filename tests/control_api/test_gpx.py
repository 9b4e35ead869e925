"""GPX: which files are read, and which are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.tracks.gpx import GpxError, read_gpx

from dama.prediction import Fix

HEAD = '<?xml version="1.0"?><gpx version="1.1" xmlns="http://www.topografix.com/GPX/1/1"><trk>'
TAIL = "</trk></gpx>"


def read(text: str, piece: int = 1 << 16) -> list[Fix]:
    data = text.encode()
    return list(read_gpx(data[at : at + piece] for at in range(0, len(data), piece)))


def point(time: str = "2026-06-01T12:00:00Z", lon: str = "7.5", lat: str = "46.5") -> str:
    return f'<trkpt lon="{lon}" lat="{lat}"><ele>500</ele><time>{time}</time></trkpt>'


@given(st.integers(1, 400))
def test_points_come_back_whatever_the_pieces(piece: int) -> None:
    more = point("2026-06-01T12:00:01.5Z").replace(
        "</trkpt>", "<speed>20.5</speed><course>90</course><hdop>1.5</hdop></trkpt>"
    )
    first, second = read(f"{HEAD}<trkseg>{point()}{more}</trkseg>{TAIL}", piece)
    assert (first.lon, first.lat, first.speed_mps) == (7.5, 46.5, None)
    assert second.time_ms - first.time_ms == 1500
    assert (second.speed_mps, second.heading_deg, second.accuracy_m) == (20.5, 90.0, 4.5)


def test_of_extensions_speed_and_course_are_read_and_times_are_not() -> None:
    said = (
        '<extensions><x:more xmlns:x="urn:x"><x:time>12.5</x:time><x:speed>20.5</x:speed>'
        "<x:course>90</x:course></x:more></extensions></trkpt>"
    )
    (fix,) = read(f"{HEAD}<trkseg>{point().replace('</trkpt>', said)}</trkseg>{TAIL}")
    assert (fix.time_ms, fix.speed_mps, fix.heading_deg) == (1_780_315_200_000, 20.5, 90.0)


def test_gpx_1_0_and_times_without_zone_are_read() -> None:
    text = '<gpx version="1.0" xmlns="http://www.topografix.com/GPX/1/0"><trk><trkseg>'
    (fix,) = read(f"{text}{point('2026-06-01T12:00:00')}</trkseg></trk></gpx>")
    assert fix.time_ms == 1_780_315_200_000


@pytest.mark.parametrize(
    "broken",
    [
        point(time="yesterday"),
        point(time=""),
        point(lon="nan"),
        point(lat="91"),
        point(lon="x"),
        '<trkpt lat="46"><time>2026-06-01T12:00:00Z</time></trkpt>',
        point(time="9" * 10_000),
    ],
)
def test_points_without_place_or_time_are_passed_over(broken: str) -> None:
    assert len(read(f"{HEAD}<trkseg>{broken}{point()}</trkseg>{TAIL}")) == 1


@pytest.mark.parametrize("speed", ["-1", "inf", "nan", "fast", "400", ""])
@pytest.mark.parametrize("course", ["-1.0", "361"])
def test_a_speed_or_course_that_cannot_be_costs_no_place(speed: str, course: str) -> None:
    said = f"<speed>{speed}</speed><course>{course}</course><hdop>-1</hdop></trkpt>"
    (fix,) = read(f"{HEAD}<trkseg>{point().replace('</trkpt>', said)}</trkseg>{TAIL}")
    assert (fix.lon, fix.lat) == (7.5, 46.5)
    assert (fix.speed_mps, fix.heading_deg, fix.accuracy_m) == (None, None, None)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no XML",
        "<kml/>",
        HEAD,
        f"{HEAD}<trkseg>{point()}",
        '<!DOCTYPE gpx [<!ENTITY a "aaaa">]><gpx/>',
        "<gpx>" + "<a>" * 100,
    ],
)
def test_what_is_no_gpx_is_refused(text: str) -> None:
    with pytest.raises(GpxError):
        read(text)
