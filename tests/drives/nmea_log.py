"""A drive as the log of a receiver, for gpsd's `gpsfake` and for replays."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from dama.prediction import Fix

_KNOT_MPS = 1852.0 / 3600.0


def nmea_log(fixes: Iterable[Fix], *, shift_ms: int = 0) -> Iterator[str]:
    """Yield RMC and GGA sentences, one epoch a second; seconds without fix say so.

    `shift_ms` moves all times: a replay's first fix is now.
    """
    last_ms: int | None = None
    for fix in fixes:
        for missing_ms in range((last_ms or fix.time_ms) + 1000, fix.time_ms, 1000):
            yield from _epoch(missing_ms + shift_ms, None)
        yield from _epoch(fix.time_ms + shift_ms, fix)
        last_ms = fix.time_ms


def _epoch(time_ms: int, fix: Fix | None) -> Iterator[str]:
    moment = datetime.fromtimestamp(time_ms / 1000, UTC)
    clock = f"{moment:%H%M%S}.{time_ms % 1000:03}"
    date = f"{moment:%d%m%y}"
    if fix is None:
        yield _sentence(f"GPGGA,{clock},,,,,0,00,50.0,,M,,M,,")
        yield _sentence(f"GPRMC,{clock},V,,,,,,,{date},,,N")
        return
    place = f"{_angle(fix.lat, 2, 'NS')},{_angle(fix.lon, 3, 'EW')}"
    speed = "" if fix.speed_mps is None else f"{fix.speed_mps / _KNOT_MPS:.2f}"
    course = "" if fix.heading_deg is None else f"{fix.heading_deg:.2f}"
    yield _sentence(f"GPGGA,{clock},{place},1,09,1.0,0.0,M,0.0,M,,")
    yield _sentence(f"GPRMC,{clock},A,{place},{speed},{course},{date},,,A")


def _angle(degrees: float, digits: int, signs: str) -> str:
    # In units of the last digit that is written, so that 59.99999 minutes become a degree.
    units = round(abs(degrees) * 60 * 100_000)
    whole, minutes = divmod(units, 6_000_000)
    sign = signs[0] if degrees >= 0 else signs[1]
    return f"{whole:0{digits}}{minutes // 100_000:02}.{minutes % 100_000:05},{sign}"


def _sentence(body: str) -> str:
    total = 0
    for byte in body.encode("ascii"):
        total ^= byte
    return f"${body}*{total:02X}\r\n"
