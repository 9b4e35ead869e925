"""The changes that a file would make to the existing terminals."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from underpass_control.fleet.text import Flaws, Line
from underpass_control.http.models import MOST_NODE, TagsBody, TerminalBody
from underpass_control.validation import faults

_DEFAULTS = {
    name: one.default
    for name, one in TerminalBody.model_fields.items()
    if name not in ("beam", "name")
}
# Columns in which an empty cell stands for the default.
_DEFAULTED = frozenset(name for name, default in _DEFAULTS.items() if default is not None)


@dataclass(frozen=True)
class Fleet:
    """The existing terminals and their surroundings, as far as a file's lines concern them."""

    # By node, its settings and tags by the names of columns.
    terminals: Mapping[int, Mapping[str, Any]]
    # By node, the revision.
    revisions: Mapping[int, int]
    beams: AbstractSet[str]
    tenants: AbstractSet[str]
    # By beam and number at its NCC, the terminal.
    opensand: Mapping[tuple[str, int], int]

    @property
    def basis(self) -> str:
        """A hash of all this, which changes when any of it changes."""
        known = [sorted(self.revisions.items()), sorted(self.beams), sorted(self.tenants)]
        known.append(sorted([*key, node] for key, node in self.opensand.items()))
        return hashlib.sha256(json.dumps(known).encode()).hexdigest()


@dataclass(frozen=True)
class TerminalChange:
    """A terminal as it is and as it is to be; `before` is None for a new one."""

    line: int
    node: int
    before: Mapping[str, Any] | None
    after: Mapping[str, Any]


@dataclass(frozen=True)
class Outcome:
    """The result of a file's lines, without the wrong ones."""

    changes: Sequence[TerminalChange]
    # Lines that change nothing.
    unchanged: int

    @property
    def new(self) -> int:
        """How many terminals are made."""
        return sum(one.before is None for one in self.changes)


def outcome_of(lines: Sequence[Line], fleet: Fleet, flaws: Flaws) -> Outcome:
    """Return the changes that the lines make; errors go to `flaws`."""
    changes = []
    unchanged = 0
    for line in lines:
        before = fleet.terminals.get(line.node)
        after = _after(line, before)
        if after == before:
            unchanged += 1
            continue
        reason = _wrong(line.node, after, fleet)
        if reason is None:
            changes.append(TerminalChange(line.number, line.node, before, after))
        else:
            flaws.add(line.number, reason)
    return Outcome(_with_numbers_of_their_own(changes, fleet, flaws), unchanged)


def _after(line: Line, before: Mapping[str, Any] | None) -> dict[str, Any]:
    after: dict[str, Any] = {"tags": [], **_DEFAULTS, **(before or {})}
    for name, value in line.values.items():
        after[name] = _DEFAULTS[name] if value is None and name in _DEFAULTED else value
    return after


def _wrong(node: int, after: Mapping[str, Any], fleet: Fleet) -> str | None:
    """Return what is wrong with a terminal after its change; None if nothing is."""
    if not 1 <= node <= MOST_NODE:
        return f"node: {node} is no ipn node number, which is 1 to {MOST_NODE}"
    for name in ("beam", "name"):
        if after.get(name) is None:
            return f"{name} is empty"
    try:
        TagsBody(tags=after["tags"])
        TerminalBody.model_validate({k: v for k, v in after.items() if k != "tags"}, strict=True)
    except ValidationError as error:
        (one,) = faults(error, 1)
        return f"{one.place[0]}: {one.reason}"
    for link in ("forward", "return"):
        most = after[f"{link}_maximum_bps"]
        if most is not None and most < after[f"{link}_minimum_bps"]:
            return f"{link}_maximum_bps is below {link}_minimum_bps"
    if after["beam"] not in fleet.beams:
        return f"there is no beam {after['beam']}"
    if after["tenant"] not in fleet.tenants:
        return f"there is no tenant {after['tenant']}"
    return None


def _with_numbers_of_their_own(
    changes: Sequence[TerminalChange], fleet: Fleet, flaws: Flaws
) -> list[TerminalChange]:
    """Leave out terminals that would have another one's number at a beam's NCC."""
    changed = {one.node for one in changes}
    holders = {key: node for key, node in fleet.opensand.items() if node not in changed}
    good = []
    for one in changes:
        beam, number = one.after["beam"], one.after["opensand_id"]
        other = one.node if number is None else holders.setdefault((beam, number), one.node)
        if other == one.node:
            good.append(one)
        else:
            flaws.add(one.line, f"terminal {other} has opensand_id {number} in {beam}, too")
    return good
