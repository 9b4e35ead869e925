"""The plan as text: the JSON that is stored, pushed to the link schedulers, and acknowledged.

Times are integer ms since the Unix epoch, at the sending node. `rate_bps` is in whole bit/s of IP
bytes, rounded down; amounts are whole bits of capacity, that is at efficiency 1, and exact: the
rate is bits · efficiency / duration. The text is canonical: the same plan gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from fractions import Fraction

from dama.planner.plan import Line, Plan, Segment
from dama.planner.request import PlanError

_TIMES = ("start_ms", "end_ms")
_AMOUNTS = (
    "bits",
    "fair_bits",
    "borrowed_bits",
    "lent_bits",
    "repaid_bits",
    "repaying_bits",
)

Document = dict[str, object]


def text(document: Document) -> str:
    """Return the canonical text of a document."""
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def plan_document(plan: Plan, version: int, terminals: Iterable[str] | None = None) -> Document:
    """Return a plan with the lines of some terminals, or of all.

    Raises:
        KeyError: if one of the terminals is not in the beam.
    """
    names = plan.terminals() if terminals is None else terminals
    return {
        "beam": plan.beam,
        "link": plan.link.value,
        "version": version,
        "issued_ms": plan.issued_ms,
        "start_ms": plan.start_ms,
        "end_ms": plan.end_ms,
        "lines": [line_document(plan.line(name)) for name in names],
    }


def line_document(line: Line) -> Document:
    """Return one terminal's line."""
    return {
        "terminal": line.terminal,
        "efficiency": str(line.segments[0].efficiency),
        "segments": [
            {
                **{key: getattr(segment, key) for key in (*_TIMES, *_AMOUNTS)},
                "rate_bps": segment.rate_bps,
                "blocked": segment.blocked,
            }
            for segment in line.segments
        ],
    }


def read_line(document: object) -> Line:
    """Read a line back; `rate_bps` follows from the rest and is not read.

    Raises:
        PlanError: that says what is wrong with it.
    """
    if not isinstance(document, dict):
        raise PlanError("a line is not an object")
    terminal, segments = document.get("terminal"), document.get("segments")
    if not isinstance(terminal, str):
        raise PlanError("a line has no terminal")
    if not isinstance(segments, list) or not segments:
        raise PlanError(f"the line of terminal {terminal} has no segments")
    efficiency = _efficiency(terminal, document.get("efficiency"))
    read: list[Segment] = []
    for segment in segments:
        read.append(_segment(terminal, segment, efficiency))
        if len(read) > 1 and read[-1].start_ms != read[-2].end_ms:
            raise PlanError(f"a segment of terminal {terminal} does not follow the one before")
    return Line(terminal, tuple(read))


def _efficiency(terminal: str, value: object) -> Fraction:
    try:
        efficiency = Fraction(value) if isinstance(value, str) else None
    except (ValueError, ZeroDivisionError):
        efficiency = None
    if efficiency is None or efficiency <= 0:
        raise PlanError(f"the line of terminal {terminal} has the efficiency {value!r}")
    return efficiency


def _segment(terminal: str, segment: object, efficiency: Fraction) -> Segment:
    if not isinstance(segment, dict):
        raise PlanError(f"a segment of terminal {terminal} is not an object")
    values: dict[str, int] = {}
    for key in (*_TIMES, *_AMOUNTS):
        value = segment.get(key)
        if type(value) is not int or value < 0:
            raise PlanError(f"a segment of terminal {terminal} has {key} {value!r}")
        values[key] = value
    blocked = segment.get("blocked")
    if not isinstance(blocked, bool):
        raise PlanError(f"a segment of terminal {terminal} does not say whether it is blocked")
    if values["end_ms"] <= values["start_ms"]:
        raise PlanError(f"a segment of terminal {terminal} ends before it begins")
    return Segment(**values, blocked=blocked, efficiency=efficiency)
