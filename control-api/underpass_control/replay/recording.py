"""Reads a recorded drive from a file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from dama.prediction import Fix
from underpass_control.announcing.gpsd import MOST_LINE, read_report
from underpass_control.tracks import gpx, nmea
from underpass_control.tracks.gpx import GpxError, read_gpx
from underpass_control.tracks.nmea import NmeaReader, read_nmea

_PIECE = 1 << 16
# Some Windows programs write text in UTF-16, which begins with one of these marks.
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")


class RecordingError(Exception):
    """The file cannot be read, or contains no drive."""


class Recording(NamedTuple):
    """The fixes of a file, in its order.

    `rejected` counts its points, reports and sentences that cannot be, `spoilt` the lines that are
    no valid report or sentence.
    """

    fixes: list[Fix]
    rejected: int
    spoilt: int


def read_recording(path: Path) -> Recording:
    """Return the fixes of an NMEA log, GPX file or gpsd's reports; the file's beginning decides."""
    reader, points = NmeaReader(of_log=True), gpx.Counts()
    try:
        with path.open("rb") as file:
            head = file.read(256)
        # As XML allows, a byte order mark may come first, and characters may take two bytes.
        begins = head.lstrip(b"\xef\xbb\xbf\xff\xfe\0 \t\r\n")[:1]
        is_xml = begins == b"<"
        if is_xml:
            fixes = list(read_gpx(_pieces(path), points))
        elif begins == b"{":
            fixes = list(_reports(path, reader.counts))
        else:
            fixes = list(_log(path, "utf-16" if head.startswith(_UTF_16) else "ascii", reader))
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror}") from error
    except GpxError as error:
        raise RecordingError(f"{path}: {error}") from error
    if not fixes:
        seen = reader.counts
        # Usually such a log has lost its checksums, or such a GPX file its times.
        why = f"{seen.sentences} sound sentences, {seen.spoilt} other lines"
        if is_xml:
            why = f"{points.rejected} track points without place or time"
        raise RecordingError(f"{path}: neither NMEA, GPX nor gpsd's reports with fixes ({why})")
    return Recording(fixes, points.rejected + reader.counts.rejected, reader.counts.spoilt)


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _reports(path: Path, counts: nmea.Counts) -> Iterator[Fix]:
    """Yield the fixes of gpsd's reports, one a line, as `gpspipe -w` writes them."""
    with path.open("rb") as file:
        while line := file.readline(MOST_LINE):
            fix = read_report(line, None, counts)
            if fix is not None:
                yield fix


def _log(path: Path, encoding: str, reader: NmeaReader) -> Iterator[Fix]:
    with path.open(encoding=encoding, errors="replace") as file:
        # An endless line is read in bounded pieces, none of which is a valid sentence.
        yield from read_nmea(iter(lambda: file.readline(_PIECE), ""), reader)
