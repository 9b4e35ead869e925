"""NMEA 0183 logs and streams: sentences in, fixes out.

The reader uses RMC, GGA, GNS, GLL, VTG, GST and ZDA of any talker (GP, GN, GL, GA, GB, BD, QZ, …)
and skips everything else. Sentences with the same time of day (an *epoch*) make one fix. The
gateway reads its receiver in the same way; the tests of both use docs/vectors/nmea.json.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

from dama.prediction import Fix, FixError

# The standard allows 82 characters; receivers that exceed that stay well below this.
MAX_SENTENCE = 256
_KNOTS = 1852.0 / 3600.0
_KMH = 1 / 3.6
# GPS counts weeks modulo 1024: a receiver that lost count is wrong by this.
_ROLLOVER = timedelta(weeks=1024)
# GPS time begins here, so no receiver's log can be older.
_GPS_BEGAN = datetime(1980, 1, 6, tzinfo=UTC)
# Years of two digits are those of the hundred years from here; no other years are accepted.
_FIRST_YEAR = 1980
# The horizontal error, one standard deviation, at a dilution of precision of 1.
_RANGE_ERROR_M = 3.0
# The error assumed for dead reckoning, which drifts for some seconds after satellites are lost.
_ESTIMATED_M = 30.0
_DAY = timedelta(days=1)
# If the time of day falls back by more than this, midnight has passed.
_MIDNIGHT_S = 43_200
# After this many fixes in a row that are older than an earlier one, the earlier one was wrong.
_BELIEVED_AFTER = 10

# Proprietary sentences have P as their talker, followed by the maker's code.
_SENTENCE = re.compile(
    r"\$(?:P(?=[A-Z0-9]{3})|[A-Z]{2})([A-Z0-9]{3,9}),([^*]*)(?:\*([0-9A-Fa-f]{2})(?:[, \t].*)?)?"
)
_TIME = re.compile(r"([01]\d|2[0-3])([0-5]\d)([0-5]\d|60)(?:\.(\d{1,9}))?", re.ASCII)
_ANGLE = re.compile(r"(\d{1,3})([0-5]\d(?:\.\d{1,9})?)", re.ASCII)
# Some receivers leave out the digits before or after the point.
_NUMBER = re.compile(r"-?(?=\.?\d)\d{0,9}(?:\.\d{0,9})?", re.ASCII)
_SHORT_DATE = re.compile(r"(\d{2})(\d{2})(\d{2})", re.ASCII)
_LONG_DATE = re.compile(r"(\d{1,2}),(\d{1,2}),(\d{4})", re.ASCII)


class SentenceError(ValueError):
    """A line that is not a valid sentence."""


class _NoTimeError(SentenceError):
    """A sentence without a time, as of a receiver that was just switched on."""


@dataclass(frozen=True, slots=True)
class Sentence:
    """A sentence with a correct checksum: its type and fields."""

    type: str
    fields: tuple[str, ...]

    def field(self, number: int) -> str:
        """Return a field; empty if the sentence ends before it."""
        return self.fields[number] if number < len(self.fields) else ""


def parse_sentence(line: str) -> Sentence:
    """Read a line.

    Text before the dollar sign (such as a log's own time) is ignored, and so is text that follows
    the checksum after a comma, space or tab.
    """
    start = line.rfind("$", 0, MAX_SENTENCE)
    text = line[start:].rstrip("\r\n \t") if start >= 0 else ""
    if not text or len(text) > MAX_SENTENCE:
        raise SentenceError("no sentence")
    found = _SENTENCE.fullmatch(text)
    if not found:
        raise SentenceError("not of the form $ttsss,…*hh")
    kind, body, checksum = found.groups()
    if checksum is None:
        raise SentenceError("without checksum")
    given, right = int(checksum, 16), _checksum(text[1 : text.index("*")])
    if given != right:
        raise SentenceError(f"checksum {given:02X} instead of {right:02X}")
    return Sentence(kind, tuple(body.split(",")))


def _checksum(text: str) -> int:
    total = 0
    for byte in text.encode("latin-1", "replace"):
        total ^= byte
    return total


@dataclass
class Counts:
    """How much a reader took in, and how much it skipped and why."""

    sentences: int = 0
    fixes: int = 0
    # Lines that are not valid sentences; then valid ones with impossible fields, and fixes refused.
    spoilt: int = 0
    rejected: int = 0
    without_fix: int = 0


@dataclass(frozen=True, slots=True)
class _Epoch:
    """The values of one epoch's sentences so far."""

    time_of_day: timedelta
    place: tuple[float, float] | None = None
    valid: bool | None = None
    speed_mps: float | None = None
    heading_deg: float | None = None
    accuracy_m: float | None = None


class NmeaReader:
    """Makes fixes from lines, one line at a time.

    The date comes from RMC or ZDA; until the first one no fix can be dated, and none is returned.
    A date earlier than `not_before` is taken as one whose week number rolled over, and is moved on
    by 1,024 weeks until it is no longer earlier.

    With `of_log`, for a log that is read as a whole, all fixes are returned, in the log's order.
    Those before its first date are held back and dated by it; in a log without any date, they get
    the day on which GPS began. The caller has to deal with fixes that fall back in time.
    """

    def __init__(self, not_before: datetime = _GPS_BEGAN, *, of_log: bool = False) -> None:
        self.counts = Counts()
        self._not_before = not_before
        self._of_log = of_log
        self._midnight: datetime | None = None
        # The fixes of a log before its first date, with the assumed day as their date.
        self._undated: list[Fix] | None = None
        if of_log:
            self._midnight, self._undated = _GPS_BEGAN, []
        self._epoch: _Epoch | None = None
        self._last_ms: int | None = None
        self._behind = 0
        self._ready: list[Fix] = []

    def feed(self, line: str) -> list[Fix]:
        """Take a line; return the fixes that it completes."""
        try:
            read = parse_sentence(line)
        except SentenceError:
            self.counts.spoilt += bool(line.strip())
            return []
        self.counts.sentences += 1
        reader = _READERS.get(read.type)
        if reader is None:
            return []
        try:
            reader(self, read)
        except _NoTimeError:
            # Nothing of a log is lost with it.
            self.counts.rejected += not self._of_log
        except SentenceError:
            self.counts.rejected += 1
        return self._take()

    def finish(self) -> list[Fix]:
        """Return the fix of the last epoch, and all fixes of a log that has no date."""
        self._close()
        self._date(timedelta())
        return self._take()

    def _take(self) -> list[Fix]:
        ready, self._ready = self._ready, []
        return ready

    def _rmc(self, read: Sentence) -> None:
        self._at(read.field(0))
        if read.field(8):
            self._set_date(read.field(8), _SHORT_DATE)
        self._learn(
            place=_place(*(read.field(n) for n in range(2, 6))),
            valid=read.field(1) == "A" and _is_measured(read.field(11)),
            accuracy_m=_ESTIMATED_M if read.field(11) == "E" else None,
            speed_mps=_scaled(read.field(6), _KNOTS),
            heading_deg=_course(read.field(7)),
        )

    def _gga(self, read: Sentence) -> None:
        self._at(read.field(0))
        quality = read.field(5)
        dilution = _scaled(read.field(7), _RANGE_ERROR_M)
        self._learn(
            place=_place(*(read.field(n) for n in range(1, 5))),
            # 7 (manual input) and 8 (simulation) are no fixes. 6 is dead reckoning; the others are
            # measured from satellites.
            valid=quality == "6"
            or (quality in ("1", "2", "3", "4", "5") and _sees_satellites(read)),
            accuracy_m=_ESTIMATED_M if quality == "6" else dilution,
        )

    def _gns(self, read: Sentence) -> None:
        self._at(read.field(0))
        # One letter for each system: autonomous (A), differential (D), precise (P), real-time
        # kinematic (R) or its float mode (F). A place from dead reckoning alone has E.
        modes = set(read.field(5))
        measured = not modes.isdisjoint("ADPRF")
        estimated = not measured and "E" in modes
        measured = measured and _sees_satellites(read)
        dilution = _scaled(read.field(7), _RANGE_ERROR_M)
        self._learn(
            place=_place(*(read.field(n) for n in range(1, 5))),
            valid=measured or estimated,
            accuracy_m=_ESTIMATED_M if estimated else dilution,
        )

    def _gll(self, read: Sentence) -> None:
        self._at(read.field(4))
        self._learn(
            place=_place(*(read.field(n) for n in range(4))),
            valid=read.field(5) == "A" and _is_measured(read.field(6)),
            accuracy_m=_ESTIMATED_M if read.field(6) == "E" else None,
        )

    def _gst(self, read: Sentence) -> None:
        self._at(read.field(0))
        north, east = _scaled(read.field(5), 1.0), _scaled(read.field(6), 1.0)
        if north is not None and east is not None:
            self._learn(accuracy_m=((north**2 + east**2) / 2) ** 0.5)

    def _vtg(self, read: Sentence) -> None:
        # It has no time of its own, so it belongs to the current epoch.
        kmh, knots = _scaled(read.field(6), _KMH), _scaled(read.field(4), _KNOTS)
        speed = knots if kmh is None else kmh
        self._learn(speed_mps=speed, heading_deg=_course(read.field(0)))

    def _zda(self, read: Sentence) -> None:
        self._at(read.field(0))
        date = [read.field(n) for n in (1, 2, 3)]
        if any(date):
            self._set_date(",".join(date), _LONG_DATE)

    def _at(self, text: str) -> None:
        """Go to the epoch of a time of day; if it is a new one, close the epoch before."""
        at = _time_of_day(text)
        if self._epoch is not None and self._epoch.time_of_day == at:
            return
        self._close()
        if (
            self._midnight is not None
            and self._epoch is not None
            and (self._epoch.time_of_day - at).total_seconds() > _MIDNIGHT_S
        ):
            self._midnight += _DAY
        self._epoch = _Epoch(at)

    def _set_date(self, text: str, form: re.Pattern[str]) -> None:
        found = form.fullmatch(text)
        if not found:
            raise SentenceError(f"no date: {text}")
        day, month, year = (int(part) for part in found.groups())
        if form is _SHORT_DATE:
            year += _FIRST_YEAR // 100 * 100
            year += 100 if year < _FIRST_YEAR else 0
        try:
            midnight = datetime(year, month, day, tzinfo=UTC)
        except ValueError:
            raise SentenceError(f"no date: {text}") from None
        if not _FIRST_YEAR <= year < _FIRST_YEAR + 100:
            raise SentenceError(f"no year since GPS began: {text}")
        while midnight + _DAY < self._not_before:
            midnight += _ROLLOVER
        if self._midnight is not None:
            self._date(midnight - self._midnight)
        self._midnight = midnight

    def _date(self, later: timedelta) -> None:
        """Release the fixes that had no date, moved from the assumed day by `later`."""
        undated, self._undated = self._undated or [], None
        later_ms = round(later.total_seconds() * 1000)
        self._ready += [replace(fix, time_ms=fix.time_ms + later_ms) for fix in undated]

    def _learn(
        self,
        *,
        place: tuple[float, float] | None = None,
        valid: bool | None = None,
        speed_mps: float | None = None,
        heading_deg: float | None = None,
        accuracy_m: float | None = None,
    ) -> None:
        epoch = self._epoch
        if epoch is None:
            return
        # A sentence that denies a fix overrules another that repeats the last place.
        both = valid if epoch.valid is None or valid is None else epoch.valid and valid
        self._epoch = replace(
            epoch,
            place=place or epoch.place,
            valid=epoch.valid if valid is None else both,
            speed_mps=epoch.speed_mps if speed_mps is None else speed_mps,
            heading_deg=epoch.heading_deg if heading_deg is None else heading_deg,
            accuracy_m=epoch.accuracy_m if accuracy_m is None else accuracy_m,
        )

    def _close(self) -> None:
        epoch = self._epoch
        if epoch is None or epoch.valid is None:
            return
        if not epoch.valid or epoch.place is None:
            self.counts.without_fix += 1
            return
        if self._midnight is None:
            return
        moment = self._midnight + epoch.time_of_day
        time_ms = round(moment.timestamp() * 1000)
        lon, lat = epoch.place
        try:
            fix = Fix(time_ms, lon, lat, epoch.speed_mps, epoch.heading_deg, epoch.accuracy_m)
        except FixError:
            self.counts.rejected += 1
            return
        if not self._of_log and not self._follows(time_ms):
            self.counts.rejected += 1
            return
        self.counts.fixes += 1
        (self._ready if self._undated is None else self._undated).append(fix)

    def _follows(self, time_ms: int) -> bool:
        """Tell whether to accept a fix of this time after those before."""
        if self._last_ms is not None and time_ms <= self._last_ms:
            # Either a talker repeats another's epoch, or a clock fell back.
            self._behind += 1
            if self._behind < _BELIEVED_AFTER or time_ms == self._last_ms:
                return False
        self._behind = 0
        self._last_ms = time_ms
        return True


_READERS = {
    "RMC": NmeaReader._rmc,
    "GGA": NmeaReader._gga,
    "GNS": NmeaReader._gns,
    "GLL": NmeaReader._gll,
    "GST": NmeaReader._gst,
    "VTG": NmeaReader._vtg,
    "ZDA": NmeaReader._zda,
}


def read_nmea(lines: Iterable[str], reader: NmeaReader | None = None) -> Iterator[Fix]:
    """Yield the fixes of a log."""
    reader = reader or NmeaReader()
    for line in lines:
        yield from reader.feed(line)
    yield from reader.finish()


def _time_of_day(text: str) -> timedelta:
    if not text:
        raise _NoTimeError("no time of day")
    found = _TIME.fullmatch(text)
    if not found:
        raise SentenceError(f"no time of day: {text}")
    hours, minutes, seconds, fraction = found.groups()
    # 23:59:60 is a leap second. It becomes the first second of the next day: Unix time has none.
    micros = int((fraction or "0").ljust(6, "0")[:6])
    return timedelta(
        hours=int(hours), minutes=int(minutes), seconds=int(seconds), microseconds=micros
    )


def _place(lat: str, north: str, lon: str, east: str) -> tuple[float, float] | None:
    if not lat and not lon:
        return None
    if north not in ("N", "S") or east not in ("E", "W"):
        raise SentenceError("a place without hemisphere")
    return _degrees(lon) * (1 if east == "E" else -1), _degrees(lat) * (1 if north == "N" else -1)


def _degrees(text: str) -> float:
    found = _ANGLE.fullmatch(text)
    if not found:
        raise SentenceError(f"no angle: {text}")
    return int(found[1]) + float(found[2]) / 60.0


def _sees_satellites(read: Sentence) -> bool:
    """Tell whether a GGA's or GNS's position is from satellites, not the last one repeated."""
    return read.field(6) not in ("0", "00")


def _is_measured(mode: str) -> bool:
    """Tell whether a mode is of a measured or estimated position: not none, manual or simulated."""
    return mode not in ("N", "M", "S")


def _course(text: str) -> float | None:
    """Return a course over ground; None for an invalid one, which does not invalidate the fix."""
    degrees = _scaled(text, 1.0)
    return degrees if degrees is not None and 0.0 <= degrees <= 360.0 else None


def _scaled(text: str, factor: float) -> float | None:
    """Return a number times a factor; None for any other text, which costs only this value."""
    return float(text) * factor if _NUMBER.fullmatch(text) else None
