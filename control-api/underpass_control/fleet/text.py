"""Terminals as CSV (RFC 4180): written, and read line by line with the errors of each."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

COLUMNS = (
    *("node", "beam", "name", "weight"),
    *("forward_minimum_bps", "forward_maximum_bps", "return_minimum_bps", "return_maximum_bps"),
    *("gateway", "tenant", "opensand_id", "tags"),
)
MOST_LINES = 100_000
# The most flaws that are named; the others are counted.
MOST_FLAWS = 100
_MOST_DIGITS = 15
# Bounds are the columns' own, checked with the terminal as a whole.
_WHOLE = re.compile(r"-?[0-9]+")
_TEXTS = frozenset({"beam", "name", "tenant"})
_TAG_SEPARATOR = ";"
# Text that a spreadsheet would take for a formula gets an apostrophe in front, which reading
# removes: at the start of a cell, and behind a semicolon, the cell separator of some spreadsheets.
_FORMULA = re.compile(r"(^|;)(?=[\s']*[=+@-])")
_WRITTEN_FORMULA = re.compile(r"(^|;)'(?=[\s']*[=+@-])")


class FileError(ValueError):
    """The file as a whole cannot be read; the text says why."""


@dataclass(frozen=True)
class Flaw:
    """An error in a line; the header is line 1."""

    line: int
    reason: str


@dataclass
class Flaws:
    """The errors in a file: the first flaws, and how many there are."""

    named: list[Flaw] = field(default_factory=list)
    count: int = 0

    def add(self, line: int, reason: str) -> None:
        """Add a flaw."""
        self.count += 1
        if len(self.named) < MOST_FLAWS:
            self.named.append(Flaw(line, reason))


@dataclass(frozen=True)
class Line:
    """A line about a terminal, with the columns that the file has."""

    number: int
    node: int
    # By column; None where the cell is empty.
    values: Mapping[str, Any]


def written(terminals: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield the header, then a line for each terminal, by columns."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    yield text.getvalue()
    for one in terminals:
        text.seek(0)
        text.truncate()
        writer.writerow([_cell(one.get(name)) for name in COLUMNS])
        yield text.getvalue()


def read(content: bytes, flaws: Flaws) -> list[Line]:
    """Return the lines that can be read; errors in the others go to `flaws`.

    Raises:
        FileError: It is no such file, or has too many lines.
    """
    try:
        # A spreadsheet may have written a byte order mark.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise FileError(f"line {line} is not UTF-8: save the file as CSV UTF-8") from error
    first = text.partition("\n")[0]
    # Spreadsheets write semicolons in languages that use the comma in numbers.
    separator = ";" if ";" in first and "," not in first else ","
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    columns: list[str] | None = None
    lines: list[Line] = []
    numbers: dict[int, int] = {}
    try:
        for row in rows:
            if columns is None:
                columns = _header(row)
            elif row:
                if len(lines) + flaws.count >= MOST_LINES:
                    raise FileError(f"the file has more than {MOST_LINES} lines")
                _take(rows.line_num, columns, row, (lines, numbers), flaws)
    except csv.Error as error:
        # After an unfinished quotation, the beginning of the next line is unknown.
        raise FileError(f"line {rows.line_num}: {error}") from error
    if columns is None:
        raise FileError("the file is empty: its first line names the columns")
    return lines


def _take(
    number: int,
    columns: list[str],
    row: list[str],
    taken: tuple[list[Line], dict[int, int]],
    flaws: Flaws,
) -> None:
    lines, numbers = taken
    if len(row) != len(columns):
        flaws.add(number, f"it has {len(row)} cells, the header {len(columns)}")
        return
    values: dict[str, Any] = {}
    for name, cell in zip(columns, row, strict=True):
        try:
            values[name] = _read(name)(cell)
        except ValueError as error:
            flaws.add(number, f"{name}: {error}")
            return
    node = values.pop("node")
    if node is None:
        flaws.add(number, "node is empty")
    elif node in numbers:
        flaws.add(number, f"line {numbers[node]} has the node {node}, too")
    else:
        numbers[node] = number
        lines.append(Line(number, node, values))


def _header(row: list[str]) -> list[str]:
    columns = [name.strip().lower() for name in row]
    unknown = [name for name in columns if name not in COLUMNS]
    if unknown:
        detail = f"there is no column {unknown[0][:40]!r}; there are {', '.join(COLUMNS)}"
        raise FileError(f"the first line names the columns: {detail}")
    if len(set(columns)) < len(columns):
        raise FileError("the first line names a column twice")
    if "node" not in columns:
        raise FileError("the first line names no column node")
    return columns


def _read(name: str) -> Callable[[str], Any]:
    if name == "tags":
        return _tags
    return _text if name in _TEXTS else _number


def _text(cell: str) -> str | None:
    return _WRITTEN_FORMULA.sub(r"\1", cell.strip()) or None


def _number(cell: str) -> int | None:
    text = cell.strip()
    if not text:
        return None
    if not _WHOLE.fullmatch(text):
        raise ValueError(f"{text[:40]!r} is no whole number")
    if len(text.lstrip("-")) > _MOST_DIGITS:
        raise ValueError(f"{text[:40]!r} has more than {_MOST_DIGITS} digits")
    return int(text)


def _tags(cell: str) -> list[str]:
    text = _text(cell) or ""
    return sorted({tag.strip() for tag in text.split(_TAG_SEPARATOR) if tag.strip()})


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = _TAG_SEPARATOR.join(value) if isinstance(value, list) else str(value)
    return _FORMULA.sub(r"\1'", text)
