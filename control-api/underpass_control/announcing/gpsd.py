"""Reads the TPV reports of a gpsd's JSON protocol (gpsd_json(5)).

The node reads them in the same way; the tests of both use docs/vectors/gpsd.json.
"""

from __future__ import annotations

import json
import math
import re
from datetime import UTC, datetime

from dama.prediction import Fix
from dama.prediction.fix import CLOCK_TOLERANCE_MS
from underpass_control.tracks.nmea import Counts

WATCH = b'?WATCH={"enable":true,"json":true};\n'
# A TPV report with all its members is well below this; a longer SKY report is not needed.
MOST_LINE = 65_536
_TWO_DIMENSIONS = 2
# The origins of fixes that no receiver has made.
_SIMULATED = 8
# Dead reckoning, alone and helped by satellites, and its error in metres if none is reported.
_ESTIMATED = (5, 6)
_ESTIMATED_M = 30.0
_NUMBERS = ("lat", "lon", "altMSL", "speed", "track", "eph", "epx", "epy")
_TIME = re.compile(
    r"(\d{4}-\d{2}-\d{2})T([01]\d|2[0-3]):([0-5]\d):([0-5]\d|60)(?:\.(\d{1,9}))?Z", re.ASCII
)
# Those since GPS began; receivers that do not know the date give other years.
_YEARS = range(1980, 2080)


def read_report(line: bytes, received_ms: int | None, counts: Counts | None = None) -> Fix | None:
    """Return the fix that a line reports; None if it is another report, or has no fix.

    If the receiver's time is more than 2 s from this machine's clock, the clock's time is used: the
    node judges an announcement by its own clock, and reports that clock's offset to the control
    service. For a recording (`received_ms` is None) the receiver's time counts, and a fix without a
    time is rejected. What becomes of the line is counted in `counts`.
    """
    counts = counts or Counts()
    if not line.strip():
        return None
    try:
        tpv = _tpv(line)
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
        counts.spoilt += 1
        return None
    counts.sentences += 1
    if tpv is None:
        return None
    mode, status, time, told = tpv
    lat, lon = told["lat"], told["lon"]
    if mode < _TWO_DIMENSIONS or status == _SIMULATED or lat is None or lon is None:
        counts.without_fix += 1
        return None
    try:
        time_ms = _ruling_ms(time, received_ms)
        fix = Fix(time_ms, lon, lat, told["speed"], _course(told["track"]), _accuracy(told, status))
    except ValueError:
        counts.rejected += 1
        return None
    counts.fixes += 1
    return fix


def _tpv(line: bytes) -> tuple[int, int, str | None, dict[str, float | None]] | None:
    """Return mode, status, time and the numbers of a TPV report; None for another report.

    As in the node's client, a member of a wrong type spoils the report.
    """
    report = json.loads(line, parse_constant=_number)
    if not isinstance(report["class"], str):
        raise TypeError("no report")
    if report["class"] != "TPV":
        return None
    mode, status = report.get("mode", 0), report.get("status", 0)
    time = report.get("time")
    if type(mode) is not int or type(status) is not int or not isinstance(time, str | None):
        raise TypeError("no TPV report")
    return mode, status, time, {name: _number(report.get(name)) for name in _NUMBERS}


def _ruling_ms(time: str | None, received_ms: int | None) -> int:
    time_ms = None if time is None else _time_ms(time)
    if received_ms is None:
        if time_ms is None:
            raise ValueError("a recording's fix without time")
        return time_ms
    if time_ms is None or abs(time_ms - received_ms) > CLOCK_TOLERANCE_MS:
        return received_ms
    return time_ms


def _time_ms(text: str) -> int:
    """Return a time as gpsd writes it, in ms since 1970; a leap second is the second after it."""
    found = _TIME.fullmatch(text)
    if not found:
        raise ValueError(f"no time: {text}")
    day, hours, minutes, seconds, fraction = found.groups()
    midnight = datetime.fromisoformat(day).replace(tzinfo=UTC)
    if midnight.year not in _YEARS:
        raise ValueError(f"no year since GPS began: {text}")
    elapsed_s = (int(hours) * 60 + int(minutes)) * 60 + int(seconds)
    ms = int((fraction or "").ljust(3, "0")[:3])
    return 1000 * (round(midnight.timestamp()) + elapsed_s) + ms


def _number(value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"no number: {value}")
    return float(value)


def _course(degrees: float | None) -> float | None:
    """Return a course; None for an invalid one, which does not spoil the fix."""
    return degrees if degrees is not None and 0.0 <= degrees <= 360.0 else None


def _accuracy(told: dict[str, float | None], status: int) -> float | None:
    """Return the horizontal error, as the node's client of gpsd reads it.

    How much of the error gpsd's estimates cover differs by receiver (gpsd_json(5): *certainty
    unknown*), so they are not scaled down: with too small an error a road is matched too surely.
    """
    if told["eph"] is not None:
        return told["eph"]
    east, north = told["epx"], told["epy"]
    if east is not None and north is not None:
        return math.sqrt((east * east + north * north) / 2.0)
    return _ESTIMATED_M if status in _ESTIMATED else None
