"""GPX 1.0 and 1.1 files: track points in, fixes out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.parsers import expat

from dama.prediction import Fix, FixError
from dama.prediction.fix import MAX_SPEED_MPS

# The most text kept of one element, which bounds the memory that a hostile file takes.
_MAX_TEXT = 64
_MAX_DEPTH = 32


class GpxError(ValueError):
    """A file that is not GPX, or is broken."""


@dataclass
class Counts:
    """How much a reader skipped."""

    # Points without a valid position and time.
    rejected: int = 0


class _Points:
    """Gathers track points while the XML is read."""

    def __init__(self, counts: Counts) -> None:
        self.done: list[Fix] = []
        self._counts = counts
        self._depth = 0
        # The depth of the element of the point being read.
        self._at = 0
        self._point: dict[str, str] | None = None
        self._text: list[str] | None = None

    def start(self, tag: str, attributes: dict[str, str]) -> None:
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise GpxError("nested too deeply")
        name = _local(tag)
        if self._depth == 1 and name != "gpx":
            raise GpxError(f"the root is {name[:40]}, not gpx")
        if name == "trkpt":
            self._point = {key: attributes.get(key, "") for key in ("lon", "lat")}
            self._at = self._depth
        elif self._point is not None and self._is_read(name):
            self._text = []

    def _is_read(self, name: str) -> bool:
        # Some receivers put speed and course into extensions; a time there means something else.
        return name in ("speed", "course", "hdop") or (
            name == "time" and self._depth == self._at + 1
        )

    def text(self, data: str) -> None:
        if self._text is not None and sum(map(len, self._text)) < _MAX_TEXT:
            self._text.append(data)

    def end(self, tag: str) -> None:
        self._depth -= 1
        name = _local(tag)
        if self._point is None:
            return
        if self._text is not None and name in ("time", "speed", "course", "hdop"):
            self._point[name], self._text = "".join(self._text).strip(), None
        elif name == "trkpt":
            self._close(self._point)
            self._point = None

    def _close(self, point: dict[str, str]) -> None:
        hdop = _number(point.get("hdop", ""), math.inf)
        try:
            fix = Fix(
                time_ms=_time_ms(point.get("time", "")),
                lon=float(point["lon"]),
                lat=float(point["lat"]),
                # Many programs write -1 for values that the receiver does not know.
                speed_mps=_number(point.get("speed", ""), MAX_SPEED_MPS),
                heading_deg=_number(point.get("course", ""), 360.0),
                accuracy_m=None if hdop is None else 3.0 * hdop,
            )
        except (ValueError, OverflowError, FixError):
            self._counts.rejected += 1
        else:
            self.done.append(fix)


def read_gpx(chunks: Iterable[bytes], counts: Counts | None = None) -> Iterator[Fix]:
    """Yield the track points of a file that have a time, in the file's order.

    Points without a valid position and time are skipped and counted. If a point's speed, course or
    dilution is impossible, only that value is left out. The file may come in pieces of any size.
    Raises `GpxError` if it is not well formed or declares a document type: GPX needs none, and its
    entities could make a small file grow without bound.
    """
    points = _Points(counts or Counts())
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.StartElementHandler = points.start
    parser.EndElementHandler = points.end
    parser.CharacterDataHandler = points.text
    parser.StartDoctypeDeclHandler = _refuse_doctype
    try:
        for chunk in chunks:
            parser.Parse(chunk, False)
            yield from points.done
            points.done.clear()
        parser.Parse(b"", True)
    except expat.ExpatError as error:
        raise GpxError(f"not well formed: {error}") from error
    yield from points.done


def _refuse_doctype(*_: object) -> None:
    raise GpxError("it declares a document type")


def _local(tag: str) -> str:
    return tag.rpartition(" ")[2]


def _number(text: str, most: float) -> float | None:
    """Return a number from 0 to `most`; None for any other text, which costs only this value."""
    try:
        number = float(text)
    except ValueError:
        return None
    return number if 0.0 <= number <= most and math.isfinite(number) else None


def _time_ms(text: str) -> int:
    moment = datetime.fromisoformat(text)
    # GPX times are UTC; some programs omit the Z.
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * 1000)
