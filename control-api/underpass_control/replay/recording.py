"""A recorded drive from its file."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from dama.prediction import Fix
from underpass_control.tracks.gpx import GpxError, read_gpx
from underpass_control.tracks.nmea import NmeaReader, read_nmea

_PIECE = 1 << 16


class RecordingError(Exception):
    """The file cannot be read, or holds no drive."""


def read_recording(path: Path) -> list[Fix]:
    """Return the fixes of an NMEA log or a GPX file, told by how it begins."""
    reader = NmeaReader()
    try:
        with path.open("rb") as file:
            is_xml = file.read(256).lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")
        fixes = list(read_gpx(_pieces(path)) if is_xml else _log(path, reader))
    except OSError as error:
        raise RecordingError(f"{path}: {error.strerror}") from error
    except GpxError as error:
        raise RecordingError(f"{path}: {error}") from error
    if not fixes:
        seen = reader.counts
        # Most such logs have lost their checksums, or have no sentence with a date (RMC or ZDA).
        why = "" if is_xml else f" ({seen.sentences} sound sentences, {seen.spoilt} other lines)"
        raise RecordingError(f"{path}: neither NMEA nor GPX with dated fixes{why}")
    return fixes


def _pieces(path: Path) -> Iterator[bytes]:
    with path.open("rb") as file:
        while piece := file.read(_PIECE):
            yield piece


def _log(path: Path, reader: NmeaReader) -> Iterator[Fix]:
    with path.open(encoding="ascii", errors="replace") as file:
        # Bounded pieces of a line that never ends: none of them is a sentence.
        yield from read_nmea(iter(lambda: file.readline(_PIECE), ""), reader)
