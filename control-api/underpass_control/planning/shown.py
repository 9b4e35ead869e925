"""A plan as the API shows it: the document for gateways, with readable times."""

from __future__ import annotations

import json
from typing import Any

from dama.planner import Plan
from dama.planner.text import line_document
from underpass_control.instants import moment_of, rfc3339
from underpass_control.planning.wire import WirePlan

_AMOUNTS = ("bits", "fair_bits", "borrowed_bits", "lent_bits", "repaid_bits", "repaying_bits")


def shown(plan: Plan, version: int, terminal: int | None = None) -> dict[str, Any]:
    """Return a plan with the lines of all terminals, or with one's, and all amounts of it.

    This takes some ms for a large beam.

    Raises:
        KeyError: The terminal is not in it.
    """
    wire = WirePlan(plan)
    nodes = {int(name) for name in plan.terminals()} if terminal is None else {terminal}
    document = json.loads(wire.document(version, nodes, alone=True))
    lines = document["lines"]
    efficiencies = {node: float(of.efficiency) for of in wire.lines for node in of.terminals}
    if terminal is not None:
        lines = [_with_amounts(plan, terminal, lines)]
    return {
        "beam": plan.beam,
        "link": plan.link.value,
        "plan": version,
        "issued": _moment(plan.issued_ms),
        "start": _moment(plan.start_ms),
        "end": _moment(plan.end_ms),
        "capacity": [
            {"from": _moment(step["from_ms"]), "rate_bps": step["rate_bps"]}
            for step in wire.beam_capacity()
        ],
        "lines": [
            {
                **line,
                "efficiency": efficiencies[line["terminals"][0]],
                "segments": list(map(_segment, line["segments"])),
            }
            for line in lines
        ],
    }


def _with_amounts(plan: Plan, terminal: int, lines: list[dict[str, Any]]) -> dict[str, Any]:
    exact = line_document(plan.line(str(terminal)))["segments"]
    (line,) = lines
    coarse = iter(line["segments"])
    now = next(coarse)
    segments = []
    # The document's segments have the states; each exact segment begins within one of them.
    for segment in exact:
        while segment["start_ms"] >= now["end_ms"]:
            now = next(coarse)
        segments.append({**segment, "state": now["state"]})
    return {**line, "segments": segments}


def _segment(segment: dict[str, Any]) -> dict[str, Any]:
    found = {
        "start": _moment(segment["start_ms"]),
        "end": _moment(segment["end_ms"]),
        "rate_bps": segment["rate_bps"],
        "state": segment["state"],
    }
    return found | {name: segment[name] for name in _AMOUNTS if name in segment}


def _moment(ms: int) -> str:
    return rfc3339(moment_of(ms))
