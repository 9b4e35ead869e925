"""Fixes as NMEA 0183 sentences of a receiver."""

from __future__ import annotations

import math
from functools import reduce

from underpass_control.instants import moment_of
from underpass_control.replay.timeline import Moment

_KNOT_MPS = 1852.0 / 3600.0
# The same as in `tracks.nmea`: a dilution of precision of 1 means 3 m.
_RANGE_ERROR_M = 3.0


def sentences(moment: Moment) -> bytes:
    """Return the sentences of a moment: RMC, GGA, and GST if the error is known."""
    when = moment_of(moment.time_ms)
    time, date = (
        when.strftime("%H%M%S.") + f"{when.microsecond // 1000:03}",
        when.strftime("%d%m%y"),
    )
    fix = moment.fix
    if fix is None:
        return _sentence("RMC", time, "V", *[""] * 6, date, "", "", "N") + _sentence(
            "GGA", time, *[""] * 4, "0", "00", *[""] * 7
        )
    place = (*_angle(fix.lat, 2, "NS"), *_angle(fix.lon, 3, "EW"))
    knots = "" if fix.speed_mps is None else f"{fix.speed_mps / _KNOT_MPS:.3f}"
    course = "" if fix.heading_deg is None else f"{fix.heading_deg:.2f}"
    error = fix.accuracy_m
    dilution = "" if error is None else f"{error / _RANGE_ERROR_M:.2f}"
    said = _sentence("RMC", time, "A", *place, knots, course, date, "", "", "A")
    said += _sentence("GGA", time, *place, "1", "08", dilution, "", "M", "", "M", "", "")
    if error is not None:
        said += _sentence("GST", time, "", "", "", "", f"{error:.2f}", f"{error:.2f}", "")
    return said


def _sentence(kind: str, *fields: str) -> bytes:
    body = ",".join((f"GP{kind}", *fields)).encode()
    checksum = reduce(lambda total, byte: total ^ byte, body, 0)
    return b"$%s*%02X\r\n" % (body, checksum)


def _angle(degrees: float, digits: int, hemispheres: str) -> tuple[str, str]:
    """Return degrees and minutes to 1e-6 minutes, some 2 mm, and the hemisphere."""
    micros = round(abs(degrees) * 60e6)
    whole, rest = divmod(micros, 60_000_000)
    return f"{whole:0{digits}}{rest / 1e6:09.6f}", hemispheres[math.copysign(1, degrees) < 0]
