"""The usage of links: cumulative counts, stored in any order; amounts sent, read per 10 s.

A report's counts are those since its node's start, so the amount sent between two reports is their
difference. Only counts are stored, the first and the last of each 10 s, never differences. A report
is merged by least, greatest and or, so the result is the same in any order and if a report is
repeated. Differences are computed when reading, spread evenly over the time between the reports.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import delete, func, select, tuple_
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.planner import Link
from underpass_control.storage.bulk import BulkInsert
from underpass_control.storage.models import LinkUsage, Terminal
from underpass_control.taking_turns import Turns
from underpass_control.usage import BUCKET_MS, YOUNG_MS, Run, Seen, Usage, usage_of

_SLOT_MS = 1_000


@dataclass(frozen=True, slots=True)
class Count:
    """A report of a link: the bytes since its node's start, and whether it could send."""

    terminal: int
    link: str
    node: int
    incarnation: int
    path: str
    uptime_ms: int
    time_ms: int
    sent_bytes: int
    offered_bytes: int
    blocked: bool = False
    efficiency: float = 1.0
    efficiency_told: bool = False
    capacity_bps: int | None = None
    capacity_reason: str | None = None


def _earlier(name: str) -> str:
    return _merged(name, "first", "<")


def _later(name: str) -> str:
    return _merged(name, "last", ">")


def _merged(name: str, end: str, order: str) -> str:
    than = f"excluded.{end}_uptime_ms {order} link_usage.{end}_uptime_ms"
    return f"{name} = CASE WHEN {than} THEN excluded.{name} ELSE link_usage.{name} END"


_KEY = ("terminal", "link", "start_ms", "node", "incarnation", "path")
_FIRST = ("first_uptime_ms", "first_time_ms", "first_sent_bytes", "first_offered_bytes")
_LAST = ("last_uptime_ms", "last_time_ms", "last_sent_bytes", "last_offered_bytes")
_MASKS = ("seen", "blocked")
_OF_LAST = ("efficiency", "efficiency_told", "capacity_bps", "capacity_reason")
_CHANGES = ", ".join(
    [
        *map(_earlier, _FIRST),
        *map(_later, (*_LAST, *_OF_LAST)),
        *(f"{name} = link_usage.{name} | excluded.{name}" for name in _MASKS),
    ]
)
_COUNT = BulkInsert(
    LinkUsage,
    (*_KEY, *_FIRST, *_LAST, *_MASKS, *_OF_LAST),
    f"({', '.join(_KEY)}) DO UPDATE SET {_CHANGES}",
)


async def count(connection: AsyncConnection, counts: Iterable[Count]) -> None:
    """Take counts in, in any order; those that come again change nothing."""
    runs: dict[tuple[object, ...], list[Count]] = {}
    for one in counts:
        start_ms = one.time_ms - one.time_ms % BUCKET_MS
        key = (one.terminal, one.link, start_ms, one.node, one.incarnation, one.path)
        runs.setdefault(key, []).append(one)
    rows = [(*key, *_row(together)) for key, together in runs.items()]
    # Sort by the key only: the members after it may be None, which has no order.
    await _COUNT.execute(connection, sorted(rows, key=lambda row: row[: len(_KEY)]))


def _row(counts: list[Count]) -> tuple[object, ...]:
    first = min(counts, key=lambda one: one.uptime_ms)
    last = max(counts, key=lambda one: one.uptime_ms)
    seen = blocked = 0
    for one in counts:
        slot = 1 << (one.time_ms % BUCKET_MS) // _SLOT_MS
        seen |= slot
        blocked |= slot if one.blocked else 0
    ends = (
        value
        for end in (first, last)
        for value in (end.uptime_ms, end.time_ms, end.sent_bytes, end.offered_bytes)
    )
    return (*ends, seen, blocked, *(getattr(last, name) for name in _OF_LAST))


async def usage(
    connection: AsyncConnection, beam: str, link: Link, since_ms: int, until_ms: int
) -> dict[int, list[Usage]]:
    """Return what each terminal of a beam sent from `since_ms` to before `until_ms`, by 10 s.

    The times are multiples of 10,000 ms. Terminals, and times, of which nothing is known are left
    out.
    """
    table = LinkUsage
    before = (
        select(func.max(table.start_ms))
        .where(
            table.terminal == Terminal.node,
            table.link == link.value,
            table.start_ms < since_ms - YOUNG_MS,
        )
        .scalar_subquery()
    )
    after = (
        select(func.min(table.start_ms))
        .where(
            table.terminal == Terminal.node, table.link == link.value, table.start_ms >= until_ms
        )
        .scalar_subquery()
    )
    # Reports just before and after the time bound what was sent at its edges.
    spans = (
        select(
            Terminal.node,
            func.coalesce(before, since_ms - YOUNG_MS).label("low_ms"),
            func.coalesce(after, until_ms).label("high_ms"),
        )
        .where(Terminal.beam_id == beam)
        .subquery()
    )
    rows = await connection.execute(
        select(table.__table__)
        .join(spans, table.terminal == spans.c.node)
        .where(table.link == link.value, table.start_ms.between(spans.c.low_ms, spans.c.high_ms))
        .order_by(table.terminal, table.first_uptime_ms)
    )
    runs: dict[int, dict[Run, list[Seen]]] = {}
    # A beam of a thousand terminals takes a tenth of a second.
    turns = Turns()
    for row in rows:
        await turns.pause()
        of_terminal = runs.setdefault(row.terminal, {})
        run = Run(row.node, row.incarnation, row.path)
        of_terminal.setdefault(run, []).append(Seen.of_row(row))
    found: dict[int, list[Usage]] = {}
    for terminal, of_terminal in runs.items():
        await turns.pause()
        if buckets := usage_of(of_terminal.values(), since_ms, until_ms):
            found[terminal] = buckets
    return found


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int = 5_000) -> int:
    """Delete at most `limit` rows older than a time; return how many."""
    key = [LinkUsage.__table__.c[name] for name in _KEY]
    old = select(*key).where(LinkUsage.start_ms < before_ms).limit(limit)
    result = await connection.execute(delete(LinkUsage).where(tuple_(*key).in_(old)))
    return result.rowcount
