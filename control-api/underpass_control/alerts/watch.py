"""Evaluates the rules of alerts every few seconds, and sends the news.

Every process does so. An alert fires only once, since the database allows one firing alert for each
rule, terminal and link; only the process that has made or ended it sends the news.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import structlog
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.alerts import evidence
from underpass_control.alerts.hysteresis import Verdict, judge
from underpass_control.alerts.messages import News
from underpass_control.alerts.rules import Subject, wrong
from underpass_control.metrics import Metrics
from underpass_control.repeating import repeat
from underpass_control.storage import alerts
from underpass_control.storage.changes import Changes, Publish, listed
from underpass_control.storage.database import Database

_LOG = structlog.get_logger()

T = TypeVar("T")


async def watch_for_ever(
    database: Database, changes: Changes, metrics: Metrics, every_s: float
) -> None:
    """Look now and repeatedly, until cancelled."""
    await repeat("alerts are not looked for", every_s, lambda: look(database, changes, metrics))


async def look(database: Database, changes: Changes, metrics: Metrics) -> None:
    """Start alerts for new faults, and end those whose fault is gone."""
    now_ms = database.clock.now_ms()
    async with database.reading() as connection:
        rules = await alerts.rules(connection)
        firing = await alerts.firing(connection)
        pending = await alerts.pending(connection)
        facts = await evidence.read(connection, now_ms) if rules else []
    found: dict[Subject, str] = {}
    for portion in _portions(facts):
        found |= wrong(rules, portion, now_ms)
        # A hundred rules and ten thousand terminals take a second: let other tasks run meanwhile.
        await asyncio.sleep(0)
    quiet = {one.terminal for one in facts if one.is_quiet}
    verdict = judge({rule.id: rule for rule in rules}, found, pending, firing, quiet, now_ms)
    metrics.alerts_firing.set(len(firing) + len(verdict.fire) - len(verdict.resolve))
    await _remember(changes, verdict, now_ms)
    # In order, so that processes that look at the same time do not deadlock.
    for some in _portions(sorted(verdict.fire.items())):
        async with _turn(changes) as (connection, publish):
            fired = await alerts.fire(connection, dict(some), rules, now_ms)
            # In the same transaction: if the alert is not stored, its condition stays pending.
            await alerts.forget(connection, [one for one, _ in some if one in pending])
            await tell(connection, publish, metrics, "firing", fired, now_ms)
        metrics.alerts_fired.inc(len(fired))
    for numbers in _portions(verdict.resolve):
        async with _turn(changes) as (connection, publish):
            resolved = await alerts.resolve(connection, numbers, now_ms)
            await tell(connection, publish, metrics, "resolved", resolved, now_ms)


async def _remember(changes: Changes, verdict: Verdict, now_ms: int) -> None:
    """Store since when conditions hold and are gone, for later looks of any process."""
    writes: list[tuple[Sequence[Any], Callable[[AsyncConnection, Any], Awaitable[None]]]] = [
        (verdict.pend, lambda connection, some: alerts.pend(connection, some, now_ms)),
        (verdict.forget, alerts.forget),
        (verdict.back, lambda connection, some: alerts.mark(connection, some, None)),
        (verdict.gone, lambda connection, some: alerts.mark(connection, some, now_ms)),
    ]
    for changed, write in writes:
        for some in _portions(changed):
            async with _turn(changes) as (connection, _):
                await write(connection, some)


def _portions(of: Sequence[T]) -> Iterator[Sequence[T]]:
    for start in range(0, len(of), alerts.AT_ONCE):
        yield of[start : start + alerts.AT_ONCE]


@asynccontextmanager
async def _turn(changes: Changes) -> AsyncIterator[tuple[AsyncConnection, Publish]]:
    """Begin a transaction; then give others as much time as it took: SQLite has one writer."""
    began = time.monotonic()
    async with changes.transaction() as opened:
        yield opened
    await asyncio.sleep(time.monotonic() - began)


async def tell(
    connection: AsyncConnection,
    publish: Publish,
    metrics: Metrics,
    event: str,
    rows: Sequence[Row[Any]],
    now_ms: int,
) -> None:
    """Announce alerts that have begun or are over to followers and to all targets."""
    news = [News(event, alerts.shown(row)) for row in rows]
    for change in listed("alerts", (one.subject for one in news)):
        publish(change)
    lost = await alerts.tell(connection, news, now_ms)
    if lost:
        metrics.alert_messages.labels("no room").inc(lost)
        _LOG.warning("too many messages of alerts wait: some are not sent", count=lost)
