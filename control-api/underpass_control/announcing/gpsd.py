"""Reads the TPV reports of a gpsd's JSON protocol (gpsd_json(5))."""

from __future__ import annotations

import json
import math
from datetime import UTC, datetime

from dama.prediction import Fix, FixError
from dama.prediction.fix import CLOCK_TOLERANCE_MS

WATCH = b'?WATCH={"enable":true,"json":true};\n'
# A TPV report with all its members is well below this; a longer SKY report is not needed.
MOST_LINE = 65_536
_TWO_DIMENSIONS = 2
# The origins of fixes that no receiver has made.
_SIMULATED = 8
# Dead reckoning, alone and helped by satellites, and its error in metres if none is reported.
_ESTIMATED = (5, 6)
_ESTIMATED_M = 30.0


def read_report(line: bytes, received_ms: int | None) -> Fix | None:
    """Return the fix that a line reports; None if it is another report, or has no fix.

    If the receiver's time is more than 2 s from this machine's clock, the clock's time is used: the
    node judges an announcement by its own clock, and reports that clock's offset to the control
    service. For a recording (`received_ms` is None) the receiver's time counts.
    """
    try:
        report = json.loads(line)
        if not isinstance(report, dict) or report.get("class") != "TPV":
            return None
        if not isinstance(report.get("mode"), int) or report["mode"] < _TWO_DIMENSIONS:
            return None
        if report.get("status") == _SIMULATED:
            return None
        time_ms = _time_ms(report.get("time"))
        if received_ms is None:
            if time_ms is None:
                return None
        elif time_ms is None or abs(time_ms - received_ms) > CLOCK_TOLERANCE_MS:
            time_ms = received_ms
        return Fix(
            time_ms,
            float(report["lon"]),
            float(report["lat"]),
            _number(report.get("speed")),
            _course(report.get("track")),
            _accuracy(report),
        )
    except (ValueError, TypeError, KeyError, RecursionError, FixError):
        return None


def _time_ms(text: object) -> int | None:
    if not isinstance(text, str):
        return None
    moment = datetime.fromisoformat(text)
    return round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)


def _number(value: object) -> float | None:
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def _course(value: object) -> float | None:
    """Return a course; None for an invalid one, which does not spoil the fix."""
    degrees = _number(value)
    return degrees if degrees is not None and 0.0 <= degrees <= 360.0 else None


def _accuracy(report: dict[str, object]) -> float | None:
    """Return the horizontal error, as the node's client of gpsd reads it.

    How much of the error gpsd's estimates cover differs by receiver (gpsd_json(5): *certainty
    unknown*), so they are not scaled down: with too small an error a road is matched too surely.
    """
    estimate = _number(report.get("eph"))
    if estimate is not None:
        return estimate
    east, north = _number(report.get("epx")), _number(report.get("epy"))
    if east is not None and north is not None:
        return math.sqrt((east * east + north * north) / 2.0)
    return _ESTIMATED_M if report.get("status") in _ESTIMATED else None
