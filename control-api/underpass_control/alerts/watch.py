"""Evaluates the rules of alerts every few seconds, and sends the news.

Every process does so. An alert fires only once, since the database allows one firing alert for each
rule, terminal and link; only the process that has made or ended it sends the news.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import structlog
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.alerts import evidence
from underpass_control.alerts.hysteresis import Firing, Verdict, judge
from underpass_control.alerts.messages import News
from underpass_control.alerts.rules import Facts, Rule, Subject, withheld, wrong
from underpass_control.metrics import Metrics
from underpass_control.repeating import repeat
from underpass_control.storage import alerts
from underpass_control.storage.changes import Changes, Publish, listed
from underpass_control.storage.database import Database, DatabaseLostError

_LOG = structlog.get_logger()

T = TypeVar("T")


async def watch_for_ever(
    database: Database, changes: Changes, metrics: Metrics, every_s: float
) -> None:
    """Look now and repeatedly, until cancelled."""
    watch = Watch(database, changes, metrics)
    await repeat("alerts are not looked for", every_s, watch.look)


class Watch:
    """Looks for faults, and knows since when this process has been able to hear terminals."""

    def __init__(
        self,
        database: Database,
        changes: Changes,
        metrics: Metrics,
        *,
        clock_s: Callable[[], float] = time.monotonic,
        hears_since_s: float | None = None,
    ) -> None:
        """Take, too, a clock in seconds that is never set, and when hearing began by it.

        With None, hearing begins with the first look.
        """
        self._database = database
        self._changes = changes
        self._metrics = metrics
        self._clock_s = clock_s
        self._hears_since_s = hears_since_s

    async def look(self) -> None:
        """Start alerts for new faults, and end those whose fault is gone.

        Raises:
            DatabaseLostError: The database is away.
        """
        now_ms = self._database.clock.now_ms()
        read = await self._read(now_ms)
        rules, firing, pending, facts = read.rules, read.firing, read.pending, read.facts
        found: dict[Subject, str] = {}
        for portion in _portions(facts):
            found |= wrong(rules, portion, now_ms)
            # A hundred rules and ten thousand terminals take a second: let other tasks run
            # meanwhile.
            await asyncio.sleep(0)
        quiet = {one.terminal for one in facts if one.is_quiet}
        by_id = {rule.id: rule for rule in rules}
        unsure = withheld(rules, read.hears_for_s)
        verdict = judge(by_id, found, pending, firing, quiet, unsure, now_ms)
        firing_now = len(firing) + len(verdict.fire) - len(verdict.resolve)
        self._metrics.alerts_firing.set(firing_now)
        await _remember(self._changes, verdict, now_ms)
        # In order, so that processes that look at the same time do not deadlock.
        for some in _portions(sorted(verdict.fire.items())):
            async with _turn(self._changes) as (connection, publish):
                fired = await alerts.fire(connection, dict(some), rules, now_ms)
                # In the same transaction: if the alert is not stored, its condition stays pending.
                await alerts.forget(connection, [one for one, _ in some if one in pending])
                await tell(connection, publish, self._metrics, "firing", fired, now_ms)
            self._metrics.alerts_fired.inc(len(fired))
        for numbers in _portions(verdict.resolve):
            async with _turn(self._changes) as (connection, publish):
                resolved = await alerts.resolve(connection, numbers, now_ms)
                await tell(connection, publish, self._metrics, "resolved", resolved, now_ms)

    async def _read(self, now_ms: int) -> _Read:
        now_s = self._clock_s()
        try:
            async with self._database.reading() as connection:
                rules = await alerts.rules(connection)
                firing = await alerts.firing(connection)
                pending = await alerts.pending(connection)
                facts = await evidence.read(connection, now_ms) if rules else []
        except DatabaseLostError:
            # No reports are stored, either. A write that gives way to another process says nothing
            # of the kind, so only reading counts.
            self._hears_since_s = None
            raise
        if self._hears_since_s is None:
            self._hears_since_s = now_s
        return _Read(rules, firing, pending, facts, now_s - self._hears_since_s)


@dataclass(frozen=True, slots=True)
class _Read:
    rules: Sequence[Rule]
    firing: Mapping[int, Firing]
    pending: Mapping[Subject, int]
    facts: Sequence[Facts]
    # For how long this process has been able to hear terminals.
    hears_for_s: float


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
