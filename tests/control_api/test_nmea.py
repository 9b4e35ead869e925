"""NMEA 0183: which lines are read, and which are skipped."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.tracks.nmea import MAX_SENTENCE, NmeaReader, read_nmea

from dama.prediction import Fix
from tests.drives.drive import drive
from tests.drives.island import island
from tests.drives.nmea_log import nmea_log
from tests.drives.roads import Roads

VECTORS = Path(__file__).parents[2] / "docs" / "vectors" / "nmea.json"
PLACE = "4619.0000,N,00655.5000,E"


def with_checksum(body: str) -> str:
    total = 0
    for byte in body.encode():
        total ^= byte
    return f"${body}*{total:02X}"


def rmc(clock: str, date: str = "010626", mode: str = "A") -> str:
    return with_checksum(f"GPRMC,{clock},A,{PLACE},10.0,90.0,{date},,,{mode}")


def read(*lines: str) -> list[Fix]:
    return list(read_nmea(lines))


def moment(text: str) -> int:
    return round(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


@pytest.mark.parametrize(
    "case", json.loads(VECTORS.read_text())["cases"], ids=lambda case: str(case["name"])
)
def test_logs_are_read_as_the_vectors_say(case: dict[str, Any]) -> None:
    since_ms = case.get("not_before_ms")
    since = [datetime.fromtimestamp(since_ms / 1000, UTC)] if since_ms else []
    reader = NmeaReader(*since)
    fixes = list(read_nmea(case["lines"], reader))
    # A log's fixes without a time are not returned.
    dated = [fix for fix in case["fixes"] if fix["time_ms"] is not None]
    assert [fix.time_ms for fix in fixes] == [fix["time_ms"] for fix in dated]
    for fix, expected in zip(fixes, dated, strict=True):
        assert fix.lon == pytest.approx(expected["longitude"], abs=1e-9)
        assert fix.lat == pytest.approx(expected["latitude"], abs=1e-9)
        assert fix.speed_mps == pytest.approx(expected.get("speed_mps"), abs=1e-9)
        assert fix.heading_deg == pytest.approx(expected.get("heading_deg"), abs=1e-9)
        assert fix.accuracy_m == pytest.approx(expected.get("accuracy_m"), abs=1e-9)
    undated = len(case["fixes"]) - len(dated)
    counted = {**case["counts"], "fixes": case["counts"]["fixes"] - undated}
    assert vars(reader.counts) == counted


def test_a_known_sentence_is_read() -> None:
    (fix,) = read("$GPRMC,112228.037,A,4719.9584,N,00749.2468,E,0.00,,030410,,,A*71\r\n")
    assert fix.time_ms == moment("2010-04-03T11:22:28.037")
    assert fix.lat == pytest.approx(47.332640)
    assert fix.lon == pytest.approx(7.8207800)
    assert fix.speed_mps == 0.0
    assert fix.heading_deg is None


def test_a_synthetic_drive_comes_back_from_its_log() -> None:
    made = drive(Roads(island()), 3)
    back = list(read_nmea(nmea_log(made.fixes)))
    assert [fix.time_ms for fix in back] == [fix.time_ms for fix in made.fixes]
    for one, other in zip(back, made.fixes, strict=True):
        assert one.lon == pytest.approx(other.lon, abs=1e-6)
        assert one.lat == pytest.approx(other.lat, abs=1e-6)
        assert one.speed_mps == pytest.approx(other.speed_mps, abs=0.01)


def test_a_wrong_checksum_and_none_are_passed_over_and_counted() -> None:
    reader = NmeaReader()
    good = rmc("120000.000")
    broken = good[:-2] + ("00" if good[-2:] != "00" else "01")
    assert reader.feed(broken) == []
    assert reader.feed(good[:-3]) == []
    assert reader.feed("") == []
    assert reader.counts.spoilt == 2
    assert reader.finish() == []


def test_talkers_may_mix_and_one_epoch_makes_one_fix() -> None:
    body = "120000.00,4619.0000,N,00655.5000,E"
    fixes = read(
        with_checksum(f"GNGGA,{body},1,09,1.5,0.0,M,0.0,M,,"),
        with_checksum("GNGST,120000.00,1.0,,,,3.0,4.0,9.0"),
        with_checksum(f"GPRMC,120000.00,A,{PLACE},10.0,90.0,010626,,,A"),
        with_checksum("GNVTG,90.0,T,,M,10.0,N,18.5,K,A"),
        with_checksum(f"GLGLL,{PLACE},120000.00,A,A"),
        with_checksum("GAGSV,1,1,00"),
        "$PSRF151,3,1577,55936,0x3D92CBF7*6D",
        rmc("120001.00"),
    )
    assert [fix.time_ms - fixes[0].time_ms for fix in fixes] == [0, 1000]
    assert fixes[0].accuracy_m == pytest.approx(12.5**0.5)
    assert fixes[0].speed_mps == pytest.approx(18.5 / 3.6)


def test_a_loss_of_fix_gives_none() -> None:
    reader = NmeaReader()
    lost = with_checksum("GPRMC,120001.000,V,,,,,,,010626,,,N")
    fixes = list(read_nmea([rmc("120000.000"), lost, rmc("120002.000")], reader))
    assert [fix.time_ms % 60_000 for fix in fixes] == [0, 2000]
    assert reader.counts.without_fix == 1


def test_of_a_log_that_begins_before_the_receiver_has_a_time_nothing_is_rejected() -> None:
    cold = [with_checksum("GPRMC,,V,,,,,,,,,,N"), with_checksum("GPGLL,,,,,,V,N")]
    reader = NmeaReader(of_log=True)
    assert len(list(read_nmea([*cold, rmc("120000.000")], reader))) == 1
    assert reader.counts.rejected == 0
    # A time that cannot be is counted.
    reader.feed(with_checksum("GPRMC,250000.000,A,4619.0,N,00655.5,E,1,1,010626,,,A"))
    assert reader.counts.rejected == 1


def test_an_epoch_of_which_one_sentence_denies_the_fix_has_none() -> None:
    held = with_checksum(f"GPGGA,120000.000,{PLACE},0,00,50.0,,M,,M,,")
    assert read(rmc("120000.000"), held) == []


@pytest.mark.parametrize("mode", ["N", "M", "S"])
def test_typed_in_and_simulated_places_are_no_fixes(mode: str) -> None:
    assert read(rmc("120000.000", mode=mode)) == []


def test_dead_reckoning_is_a_fix_that_may_be_far_off() -> None:
    (fix,) = read(rmc("120000.000", mode="E"))
    assert fix.accuracy_m == 30.0


def test_midnight_passes_before_the_date_is_told_again() -> None:
    last = with_checksum(f"GPGGA,000000.500,{PLACE},1,09,1.0,0.0,M,0.0,M,,")
    fixes = read(rmc("235959.500", "311226"), last)
    assert fixes[-1].time_ms == moment("2027-01-01T00:00:00.500")


def test_a_leap_second_is_the_second_after_it() -> None:
    fixes = read(rmc("235959.000", "311216"), rmc("235960.500", "311216"))
    assert fixes[-1].time_ms == moment("2017-01-01T00:00:00.500")


def test_after_a_leap_second_times_go_on() -> None:
    fixes = read(
        rmc("235960.000", "311216"), rmc("000000.000", "010117"), rmc("000001.000", "010117")
    )
    assert [fix.time_ms for fix in fixes] == [
        moment("2017-01-01T00:00:00"),
        moment("2017-01-01T00:00:01"),
    ]


def test_a_week_number_that_rolled_over_is_mended() -> None:
    reader = NmeaReader(not_before=datetime(2024, 1, 1, tzinfo=UTC))
    # 1,024 weeks before the 1st of June 2026.
    fixes = list(read_nmea([rmc("120000.000", "161006")], reader))
    assert [fix.time_ms for fix in fixes] == [moment("2026-06-01T12:00:00")]


def test_a_time_that_falls_back_once_is_passed_over() -> None:
    fixes = read(rmc("120005.000"), rmc("120003.000"), rmc("120006.000"))
    assert [fix.time_ms % 60_000 for fix in fixes] == [5000, 6000]


def test_one_date_in_the_future_does_not_silence_all_later_ones() -> None:
    lines = [rmc("120000.000", "010150"), *(rmc(f"1200{n:02}.000") for n in range(1, 30))]
    fixes = read(*lines)
    assert fixes[-1].time_ms == moment("2026-06-01T12:00:29")
    assert len(fixes) == 21


@pytest.mark.parametrize(
    "body",
    [
        "GPRMC,250000.000,A,4619.0,N,00655.5,E,1,1,010626,,,A",
        "GPRMC,120000.000,A,4619.0,N,00655.5,E,1,1,310226,,,A",
        "GPRMC,120000.000,A,4675.0,N,00655.5,E,1,1,010626,,,A",
        "GPRMC,120000.000,A,4619.0,X,00655.5,E,1,1,010626,,,A",
        "GPRMC,120000.000,A,9119.0,N,00655.5,E,1,1,010626,,,A",
        "GPRMC,120000.000,A,4619.0,N,00655.5,E,99999,1,010626,,,A",
        "GPRMC,120000.000,A",
        "GPRMC",
        "GPRMC,",
    ],
)
def test_sentences_that_make_no_sense_give_no_fix(body: str) -> None:
    assert read(with_checksum(body)) == []


@given(st.lists(st.text(max_size=2 * MAX_SENTENCE), max_size=5))
def test_no_line_breaks_the_reader(lines: list[str]) -> None:
    assert read(*lines) == []


fields = st.sampled_from(["", "A", "N", "E", "4619.0", "00655.5", "120000", "010626", "-1", "x"])


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["RMC", "GGA", "GNS", "GLL", "VTG", "GST", "ZDA"]),
            st.lists(fields, max_size=15),
        ),
        max_size=10,
    )
)
def test_no_fields_break_the_reader(sentences: list[tuple[str, list[str]]]) -> None:
    read(*(with_checksum(",".join([f"GN{kind}", *given])) for kind, given in sentences))
