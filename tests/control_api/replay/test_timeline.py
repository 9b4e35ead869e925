"""The times of replayed fixes, and their NMEA sentences."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.replay.recording import RecordingError, read_recording
from underpass_control.replay.sentences import sentences
from underpass_control.replay.timeline import Moment, Timeline
from underpass_control.tracks.nmea import read_nmea

from dama.prediction import Fix

START_MS = 1_900_000_000_000


def fixes(*seconds: float, speed_mps: float | None = 20.0) -> list[Fix]:
    return [Fix(round(1000 * s), 7.0 + s % 1e3 / 1e4, 46.0, speed_mps, 90.0, 5.0) for s in seconds]


def test_the_first_fix_is_now_and_the_others_keep_their_distance() -> None:
    moments = list(Timeline(fixes(100, 101, 102.5)).moments(START_MS))
    assert [one.time_ms - START_MS for one in moments] == [0, 1000, 2500]
    assert all(one.fix is not None and one.fix.time_ms == one.time_ms for one in moments)


def test_driven_faster_times_shrink_and_speeds_grow() -> None:
    first, second = Timeline(fixes(0, 1), speed=4).moments(START_MS)
    assert second.time_ms - first.time_ms == 250
    assert second.fix is not None
    assert second.fix.speed_mps == 80.0
    (fast,) = Timeline(fixes(0), speed=40).moments(START_MS)
    assert fast.fix is not None
    assert fast.fix.speed_mps is None


def test_a_loss_of_fix_is_told_each_second() -> None:
    moments = list(Timeline(fixes(0, 1, 5.5)).moments(START_MS))
    assert [one.time_ms - START_MS for one in moments if one.fix is None] == [
        2000,
        3000,
        4000,
        5000,
    ]


def test_fixes_that_fall_back_in_time_are_left_out() -> None:
    timeline = Timeline(fixes(0, 2, 1, 2, 3))
    assert (len(timeline), timeline.duration_ms, timeline.left_out) == (3, 3000, 2)
    with pytest.raises(ValueError, match="no fix"):
        Timeline([])


@pytest.mark.parametrize("wrong_s", [0.0, 3e9])
def test_a_recording_that_begins_with_a_wrong_date_is_driven_whole(wrong_s: float) -> None:
    right = 1_780_000_000
    timeline = Timeline([Fix(round(1000 * wrong_s), 7.0, 46.0), *fixes(*range(right, right + 300))])
    assert (len(timeline), timeline.left_out) == (301, 0)
    # The replay does not wait for decades.
    assert timeline.duration_ms < 400_000
    moments = list(timeline.moments(START_MS))
    assert [one.time_ms for one in moments] == sorted({one.time_ms for one in moments})
    assert sum(one.fix is not None for one in moments) == 301


def test_two_drives_of_one_recording_are_driven_one_after_the_other() -> None:
    first = fixes(*range(100))
    for second in (fixes(*range(90_000, 90_100)), first):
        timeline = Timeline([*first, *second])
        assert (len(timeline), timeline.left_out) == (200, 0)
        assert timeline.duration_ms < 300_000
        told = [one.fix for one in timeline.moments(START_MS) if one.fix is not None]
        assert [one.lon for one in told] == [one.lon for one in (*first, *second)]


@given(
    lon=st.floats(-180, 180),
    lat=st.floats(-90, 90),
    speed_mps=st.none() | st.floats(0, 149),
    heading_deg=st.none() | st.floats(0, 359.99),
    accuracy_m=st.none() | st.floats(0, 100),
    # RMC has two digits of the year.
    time_ms=st.integers(946_684_800_000, 3_000_000_000_000),
)
def test_what_is_said_in_nmea_reads_back(
    lon: float,
    lat: float,
    speed_mps: float | None,
    heading_deg: float | None,
    accuracy_m: float | None,
    time_ms: int,
) -> None:
    fix = Fix(time_ms, lon, lat, speed_mps, heading_deg, accuracy_m)
    said = sentences(Moment(time_ms, fix)).decode()
    assert all(len(line) <= 82 for line in said.splitlines(keepends=True))
    (read,) = read_nmea(said.splitlines())
    assert read.time_ms == time_ms
    assert (read.lon, read.lat) == pytest.approx((lon, lat), abs=2e-8)
    for name, near in (("speed_mps", 1e-3), ("heading_deg", 0.01), ("accuracy_m", 0.02)):
        value = getattr(fix, name)
        assert getattr(read, name) == (None if value is None else pytest.approx(value, abs=near))


def test_a_lost_fix_is_said_without_a_place() -> None:
    said = sentences(Moment(START_MS, None)).decode()
    assert list(read_nmea(said.splitlines())) == []
    assert ",V," in said


def test_nmea_and_gpx_are_told_apart_and_other_files_refused(tmp_path: Path) -> None:
    log = tmp_path / "drive.txt"
    log.write_bytes(b"".join(map(sentences, Timeline(fixes(0, 1, 2)).moments(START_MS))))
    assert [one.time_ms - START_MS for one in read_recording(log).fixes] == [0, 1000, 2000]
    gpx = tmp_path / "drive.xml"
    point = '<trkpt lon="7" lat="46"><time>2030-01-01T00:00:0{}Z</time></trkpt>'
    points = "".join(map(point.format, range(4)))
    gpx.write_text(f"\ufeff<gpx><trk><trkseg>{points}</trkseg></trk></gpx>")
    assert len(read_recording(gpx).fixes) == 4
    (tmp_path / "broken").write_text("<gpx><trk>")
    (tmp_path / "other").write_bytes(bytes(range(256)) * 1000)
    (tmp_path / "bare").write_text("$GPRMC,120000,A,4619.0,N,00655.5,E,1,1,010626,,,A\n" * 3)
    (tmp_path / "drawn").write_text('<gpx><trk><trkpt lon="7" lat="46"/></trk></gpx>')
    for name, why in (
        ("broken", "well formed"),
        ("other", "neither"),
        ("absent", "No such file"),
        ("bare", "0 sound sentences, 3 other lines"),
        ("drawn", "1 track points without place or time"),
    ):
        with pytest.raises(RecordingError, match=why):
            read_recording(tmp_path / name)


def log_of(seconds: range, lon: float = 7.0) -> str:
    """Return a receiver's log of a drive, at these seconds after a fixed time."""
    drive = [Fix(START_MS + 1000 * s, lon + s / 1e4, 46.0, 20.0, 90.0, 5.0) for s in seconds]
    return "".join(sentences(Moment(fix.time_ms, fix)).decode() for fix in drive)


def lons_of(path: Path) -> list[float]:
    timeline = Timeline(read_recording(path).fixes)
    assert timeline.left_out == 0
    return [round(one.fix.lon, 4) for one in timeline.moments(START_MS) if one.fix]


@pytest.mark.parametrize("again_s", [0, -86_400, 86_400])
def test_a_log_with_two_sessions_is_driven_whole(tmp_path: Path, again_s: int) -> None:
    log = tmp_path / "two.nmea"
    first, second = log_of(range(100)), log_of(range(again_s, again_s + 100), 8.0 - again_s / 1e4)
    log.write_text(first + second)
    once = [round(s / 1e4, 4) for s in range(100)]
    assert lons_of(log) == [round(7.0 + at, 4) for at in once] + [round(8.0 + at, 4) for at in once]


@pytest.mark.parametrize("date", ["010199", "010179", "311278"])
def test_a_log_that_begins_with_a_wrong_date_is_driven_whole(tmp_path: Path, date: str) -> None:
    log = tmp_path / "wrong.nmea"
    lines = log_of(range(60)).splitlines(keepends=True)
    right = next(line.split(",")[9] for line in lines if "RMC" in line)
    wrong = "".join(lines[:15]).replace(f",{right},", f",{date},")
    wrong = "".join(with_checksum(line) for line in wrong.splitlines())
    log.write_text(wrong + "".join(lines[15:]))
    assert lons_of(log) == [round(7.0 + s / 1e4, 4) for s in range(60)]


def with_checksum(line: str) -> str:
    body = line.strip()[1:].partition("*")[0]
    total = 0
    for byte in body.encode():
        total ^= byte
    return f"${body}*{total:02X}\r\n"


def test_fixes_before_the_first_date_are_driven_too(tmp_path: Path) -> None:
    log = tmp_path / "late.nmea"
    dateless = "".join(
        line for line in log_of(range(20)).splitlines(keepends=True) if "RMC" not in line
    )
    log.write_text(dateless + log_of(range(20, 40)))
    fixes_of = read_recording(log).fixes
    assert [one.time_ms - START_MS for one in fixes_of] == [1000 * s for s in range(40)]
    log.write_text(dateless)
    assert lons_of(log) == [round(7.0 + s / 1e4, 4) for s in range(20)]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8-sig"])
def test_texts_of_other_encodings_are_read(tmp_path: Path, encoding: str) -> None:
    log = tmp_path / "drive.log"
    log.write_text(log_of(range(5)), encoding=encoding)
    assert len(read_recording(log).fixes) == 5
    gpx = tmp_path / "drive.gpx"
    point = '<trkpt lon="7" lat="46"><time>2030-01-01T00:00:00Z</time></trkpt>'
    head = f'<?xml version="1.0" encoding="{encoding.removesuffix("-sig")}"?>'
    gpx.write_text(f"{head}<gpx><trk>{point}</trk></gpx>", encoding=encoding)
    assert len(read_recording(gpx).fixes) == 1


def test_what_can_be_no_fix_is_counted(tmp_path: Path) -> None:
    gpx = tmp_path / "drive.gpx"
    point = '<trkpt lon="7" lat="{}"><time>2030-01-01T00:00:00Z</time></trkpt>'
    gpx.write_text(f"<gpx><trk>{point.format(46)}{point.format(91)}</trk></gpx>")
    assert read_recording(gpx)[1:] == (1, 0)


def test_what_is_left_out_of_a_log_is_counted(tmp_path: Path) -> None:
    log = tmp_path / "drive.nmea"
    lines = log_of(range(10)).splitlines(keepends=True)
    for number in range(0, len(lines), 2):
        lines[number] = lines[number].replace("*", "0*")
    impossible = with_checksum("$GPRMC,120000.00,A,9119.0,N,00655.5,E,1,1,010626,,,A")
    log.write_text("".join([*lines, impossible]))
    read = read_recording(log)
    assert (read.rejected, read.spoilt) == (1, len(lines) // 2)


def test_what_gpsd_has_reported_is_a_recording(tmp_path: Path) -> None:
    said = tmp_path / "gpsd.json"
    lines = [
        '{"class":"VERSION","release":"3.25","proto_major":3}',
        '{"class":"TPV","mode":1}',
        *(
            f'{{"class":"TPV","mode":3,"time":"2020-01-01T00:00:0{s}.000Z","lat":46.0,'
            f'"lon":7.{s},"speed":20.0,"track":90.0,"epx":6.0,"epy":6.0}}'
            for s in range(5)
        ),
        '{"class":"TPV","mode":3,"lat":46.0,"lon":7.0}',
        '{"class":"TPV","mode":3,"time":"2020-01-01T00:00:05Z","lat":46.0,"lon":7.0,"speed":200}',
        '{"class":"TPV","mode":3,"time":"2020-01-01T00:00:',
    ]
    said.write_text("\n".join(lines))
    fixes_of, rejected, spoilt = read_recording(said)
    # One has no time, and one is no vehicle's; the last one is cut off.
    assert (rejected, spoilt) == (2, 1)
    assert [one.lon for one in fixes_of] == [7.0, 7.1, 7.2, 7.3, 7.4]
    assert fixes_of[1].time_ms - fixes_of[0].time_ms == 1000
    assert (fixes_of[0].speed_mps, fixes_of[0].heading_deg, fixes_of[0].accuracy_m) == (20, 90, 6)
    said.write_text('{"type":"FeatureCollection"}')
    with pytest.raises(RecordingError, match="gpsd's reports"):
        read_recording(said)
