"""Expected blockages, as last expected before they came."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import bindparam, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.prediction import Blockage, Span
from dama.prediction.same import OBSERVED_MS, matched
from underpass_control.instants import moment_of, rfc3339
from underpass_control.storage.changes import Publish, listed
from underpass_control.storage.membership import among
from underpass_control.storage.models import PredictedBlockage as Table
from underpass_control.storage.models import Terminal

PREDICTED, PASSED, WITHDRAWN = "predicted", "passed", "withdrawn"
# A prediction shifts a little with each fix: less than this is not worth a write.
_SHIFT_MS = 200
_SURER = 0.05
_WIDENED_MS = 1_000
# The columns of the moments between which entry and exit lie.
_WITHIN = ("entry_p10_ms", "entry_p90_ms", "exit_p10_ms", "exit_p90_ms")

_CHANGING = (
    "obstruction",
    "entry_ms",
    "exit_ms",
    "confidence",
    "source",
    "based_on_ms",
    *_WITHIN,
    "state",
)
_CHANGE = (
    update(Table)
    .where(Table.id == bindparam("key"))
    .values({name: bindparam(f"new_{name}") for name in _CHANGING})
)


@dataclass(frozen=True, slots=True)
class Kept:
    """How many expectations are new, have changed, have passed, or were withdrawn."""

    new: int
    changed: int
    passed: int
    withdrawn: int


async def keep(
    connection: AsyncConnection,
    publish: Publish,
    beam: str,
    expected: Mapping[int, Sequence[Blockage]],
    now_ms: int,
) -> Kept:
    """Store the present expectations of a beam's terminals, instead of the former ones.

    Nothing is stored for unknown terminals: one may have been deleted, which a planner learns a
    little later. An expectation whose entry has come stays unchanged, since observations are
    compared with it. One that is no longer expected has passed, or is withdrawn if it was ahead.
    """
    rows = await connection.execute(
        select(Table.__table__)
        .join(Terminal, Terminal.node == Table.terminal)
        .where(Terminal.beam_id == beam, Table.state == PREDICTED)
    )
    standing: dict[int, list[Any]] = {}
    for row in rows:
        standing.setdefault(row.terminal, []).append(row)
    new: list[dict[str, Any]] = []
    changed: list[dict[str, Any]] = []
    for terminal, blockages in expected.items():
        known = standing.pop(terminal, [])
        spans = [_span(row) for row in known], [one.span for one in blockages]
        same = matched(*spans, now_ms, within_ms=OBSERVED_MS)
        standing[terminal] = [row for n, row in enumerate(known) if n not in same.values()]
        for number, blockage in enumerate(blockages):
            if number not in same:
                new.append(_values(terminal, blockage, now_ms))
                continue
            row = known[same[number]]
            if blockage.entry_ms > now_ms and _differs(blockage, row):
                values = _values(terminal, blockage, now_ms)
                changed.append({**values, "id": row.id, "first_ms": row.first_ms})
    ended = [
        {**row._asdict(), "state": PASSED if row.entry_ms <= now_ms else WITHDRAWN}
        for left in standing.values()
        for row in left
    ]
    if new:
        named = {one["terminal"] for one in new}
        # Lock the terminals against deletion until the rows are stored.
        members = select(Terminal.node).where(among(beam, named))
        locked = members.with_for_update(read=True, key_share=True)
        mine = set(await connection.scalars(locked))
        new = [one for one in new if one["terminal"] in mine]
    if new:
        made = insert(Table).returning(Table.__table__, sort_by_parameter_order=True)
        new = [row._asdict() for row in await connection.execute(made, new)]
    if changed or ended:
        given = [
            {"key": one["id"], **{f"new_{name}": one[name] for name in _CHANGING}}
            for one in (*changed, *ended)
        ]
        await connection.execute(_CHANGE, given)
    for change in listed("blockages", map(shown, (*new, *changed, *ended))):
        publish(change)
    passed = sum(one["state"] == PASSED for one in ended)
    return Kept(len(new), len(changed), passed, len(ended) - passed)


async def standing(
    connection: AsyncConnection, beam: str, now_ms: int
) -> list[tuple[int, int, Blockage]]:
    """Return the expectations of a beam's terminals: terminal, since when, and the blockage."""
    rows = await connection.execute(
        select(Table.__table__)
        .join(Terminal, Terminal.node == Table.terminal)
        .where(Terminal.beam_id == beam, Table.state == PREDICTED, Table.exit_ms > now_ms)
    )
    return [(row.terminal, row.first_ms, _blockage(row)) for row in rows]


def _blockage(row: Any) -> Blockage:
    entry, leave = (row.entry_p10_ms, row.entry_p90_ms), (row.exit_p10_ms, row.exit_p90_ms)
    return Blockage(
        row.obstruction,
        row.entry_ms,
        row.exit_ms,
        row.confidence,
        row.based_on_ms,
        row.source,
        None if None in entry else entry,
        None if None in leave else leave,
    )


def _span(row: Any) -> Span:
    """Return the expectation in a row of the table."""
    return Span(row.obstruction, row.entry_ms, row.exit_ms)


def _differs(blockage: Blockage, row: Any) -> bool:
    return bool(
        abs(blockage.entry_ms - row.entry_ms) >= _SHIFT_MS
        or abs(blockage.exit_ms - row.exit_ms) >= _SHIFT_MS
        or abs(blockage.confidence - row.confidence) >= _SURER
        or blockage.source != row.source
        or blockage.obstruction_id != row.obstruction
        or any(_is_elsewhere(moment, getattr(row, n)) for n, moment in _within(blockage).items())
    )


def _within(blockage: Blockage) -> dict[str, int | None]:
    entry, leave = blockage.entry_within_ms, blockage.exit_within_ms
    return dict(zip(_WITHIN, (*(entry or (None, None)), *(leave or (None, None))), strict=True))


def _is_elsewhere(moment_ms: int | None, known_ms: int | None) -> bool:
    if moment_ms is None or known_ms is None:
        return moment_ms is not known_ms
    return abs(moment_ms - known_ms) >= _WIDENED_MS


def _values(terminal: int, blockage: Blockage, now_ms: int) -> dict[str, Any]:
    return {
        "terminal": terminal,
        "obstruction": blockage.obstruction_id,
        "entry_ms": blockage.entry_ms,
        "exit_ms": blockage.exit_ms,
        "confidence": blockage.confidence,
        "source": blockage.source,
        "first_ms": now_ms,
        "based_on_ms": blockage.based_on_ms,
        **_within(blockage),
        "state": PREDICTED,
    }


def shown(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return an expectation as the API shows it."""

    def moments() -> Iterator[tuple[str, str]]:
        for name in ("entry_ms", "exit_ms", "first_ms", "based_on_ms", *_WITHIN):
            if row[name] is not None:
                yield name.removesuffix("_ms"), rfc3339(moment_of(row[name]))

    names = ("state", "id", "terminal", "obstruction", "confidence", "source")
    document = {name: row[name] for name in names if row[name] is not None}
    return {**document, **dict(moments())}
