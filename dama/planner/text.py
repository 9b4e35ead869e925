"""The plan as text: the JSON that is stored.

It has the groups and parts of a plan instead of lines, so its size depends on the number of
blockages, not of terminals. Times are integer ms since the Unix epoch, at the sending node; amounts
are whole bits of capacity, that is at efficiency 1. The text is canonical: the same plan gives the
same bytes, and reading it gives the same plan, to the bit.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from dama.planner.intervals import Integers
from dama.planner.line import Line
from dama.planner.plan import Group, Part, Plan
from dama.planner.request import FairShare, Link, PlanError, Terminal

Document = dict[str, Any]
_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def text(document: Document) -> str:
    """Return the canonical text of a document.

    It is written in pieces. The encoder holds the interpreter's lock until it is done, and the plan
    of a large beam has a million numbers: other threads would wait for tenths of a second.
    """
    members = (f"{_ENCODER.encode(name)}:{_written(document[name])}" for name in sorted(document))
    return f"{{{','.join(members)}}}"


def _written(value: Any) -> str:
    if isinstance(value, list):
        return f"[{','.join(map(_ENCODER.encode, value))}]"
    return _ENCODER.encode(value)


def plan_document(plan: Plan) -> Document:
    """Return a plan as it is stored."""
    return {
        "beam": plan.beam,
        "link": plan.link.value,
        "issued_ms": plan.issued_ms,
        "times_ms": list(plan.times_ms),
        "capacity_bps": list(plan.capacity_bps),
        "groups": [_group_document(group) for group in plan.groups],
        "parts": [_part_document(part) for part in plan.parts],
        **({"tolerance": plan.tolerance} if plan.tolerance else {}),
    }


def read_plan(document: Mapping[str, Any]) -> Plan:
    """Read a plan back.

    Raises:
        PlanError: the document is not one that `plan_document` makes.
    """
    try:
        return Plan(
            beam=document["beam"],
            link=Link(document["link"]),
            issued_ms=document["issued_ms"],
            times_ms=tuple(document["times_ms"]),
            capacity_bps=tuple(document["capacity_bps"]),
            groups=tuple(map(_read_group, document["groups"])),
            parts=tuple(map(_read_part, document["parts"])),
            # Only a coarse plan has a tolerance.
            tolerance=float(document.get("tolerance", 0.0)),
        )
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise PlanError(f"the document is no plan: {error!r}") from error


def line_document(line: Line) -> Document:
    """Return one terminal's line with all amounts, as shown to users and programs.

    `rate_bps` is in whole bit/s of IP bytes, rounded down; it is exactly
    bits · efficiency / duration.
    """
    names = ("bits", "fair_bits", "borrowed_bits", "lent_bits", "repaid_bits", "repaying_bits")
    return {
        "terminal": line.terminal,
        "efficiency": str(line.segments[0].efficiency),
        "segments": [
            {
                **{key: getattr(segment, key) for key in ("start_ms", "end_ms", *names)},
                "rate_bps": segment.rate_bps,
                "blocked": segment.blocked,
            }
            for segment in line.segments
        ],
    }


def _group_document(group: Group) -> Document:
    """Return a group's document; neighbours of the same stated terms share them."""
    runs = [
        {
            "weight": str(terms[0]),
            "minimum_bps": terms[1],
            "floor_bps": terms[2],
            "maximum_bps": terms[3],
            "demand_bps": terms[4],
            "efficiency": str(terms[5]),
            "fair_share": terms[6].value,
            "members": [[member.id, member.owed_bits] for member in members],
        }
        for terms, members in itertools.groupby(group.members, _stated)
    ]
    return {"fair_bits": group.fair_bits.tolist(), "members": runs}


def _stated(terminal: Terminal) -> tuple[Any, ...]:
    return (
        terminal.weight,
        terminal.minimum_bps,
        terminal.floor_bps,
        terminal.maximum_bps,
        terminal.demand_bps,
        terminal.efficiency,
        terminal.fair_share,
    )


def _read_group(document: Mapping[str, Any]) -> Group:
    members = [
        Terminal(
            id=name,
            weight=weight,
            minimum_bps=run["minimum_bps"],
            # Plans of earlier releases do not have it.
            floor_bps=run.get("floor_bps", 0),
            maximum_bps=run["maximum_bps"],
            demand_bps=run["demand_bps"],
            efficiency=efficiency,
            # Plans of earlier releases gave equal rates.
            fair_share=FairShare(run.get("fair_share", FairShare.BITS)),
            owed_bits=owed,
        )
        for run in document["members"]
        for weight, efficiency in [(Fraction(run["weight"]), Fraction(run["efficiency"]))]
        for name, owed in run["members"]
    ]
    return Group(tuple(members), _integers(document["fair_bits"]))


def _part_document(part: Part) -> Document:
    entitlements = list(part.entitlements)
    return {
        "group": part.group,
        "first": part.first,
        # Equal entitlements are written once.
        "entitlements": [entitlements[0]] if part.equal else entitlements,
        "count": len(entitlements),
        "bits": part.bits.tolist(),
        "blocked": np.flatnonzero(part.blocked).tolist(),
    }


def _read_part(document: Mapping[str, Any]) -> Part:
    entitlements = tuple(document["entitlements"])
    if len(entitlements) == 1:
        entitlements *= document["count"]
    bits = _integers(document["bits"])
    blocked = np.zeros(len(bits), dtype=np.bool_)
    blocked[document["blocked"]] = True
    return Part(document["group"], document["first"], entitlements, bits, blocked)


def _integers(values: list[int]) -> Integers:
    return np.array(values, dtype=np.int64)
