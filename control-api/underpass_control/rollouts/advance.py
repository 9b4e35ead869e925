"""Checks every few seconds how far rollouts are, and advances them.

Every process does so. It first reads whether there is anything to do; only then does it lock the
rollout and check again, so that one process does the work.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import structlog
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.access import audit
from underpass_control.alerts.messages import News
from underpass_control.instants import moment_of, rfc3339
from underpass_control.metrics import Metrics
from underpass_control.repeating import repeat
from underpass_control.rollouts.documents import NOTHING, laid_over
from underpass_control.rollouts.stages import Member, Progress, State, Step, next_step
from underpass_control.storage import alerts, rollouts, settings
from underpass_control.storage.changes import Changes, Publish
from underpass_control.storage.database import Database, DatabaseLostError

_LOG = structlog.get_logger()

# Terminals that are read and set in one transaction: others write between two.
AT_ONCE = 200
_MOST_REASON = 1_000


async def advance_for_ever(
    database: Database, changes: Changes, metrics: Metrics, every_s: float
) -> None:
    """Look now and repeatedly, until cancelled."""
    await repeat("rollouts do not go on", every_s, lambda: advance(database, changes, metrics))


async def advance(database: Database, changes: Changes, metrics: Metrics) -> None:
    """Advance every rollout as far as it can go now."""
    async with database.reading() as connection:
        numbers = await rollouts.numbers(connection)
    for number in numbers:
        try:
            await _advance(number, database, changes, metrics)
        except DatabaseLostError:
            raise
        except Exception:
            # It is tried again at the next look; the other rollouts continue.
            _LOG.exception("a rollout does not go on", rollout=number)


async def _advance(number: int, database: Database, changes: Changes, metrics: Metrics) -> None:
    while await _has_work(database, number):
        now_ms = database.clock.now_ms()
        async with changes.transaction() as (connection, publish):
            row = await rollouts.lock(connection, number)
            if row is not None:
                await _Turn(connection, publish, row, now_ms).take(metrics)


async def _has_work(database: Database, number: int) -> bool:
    now_ms = database.clock.now_ms()
    async with database.reading() as connection:
        row = await rollouts.get(connection, number)
        if row is None:
            return False
        if row.state == State.ABORTING.value or await rollouts.moved(connection, row, limit=1):
            return True
        return _changes(await _step(connection, row, now_ms), row)


async def _step(connection: AsyncConnection, row: Row[Any], now_ms: int) -> Step:
    """Return the next step of a rollout, whose terminals' moves are stored."""
    if row.state != State.RUNNING.value:
        return _as_it_is(row)
    standing = await rollouts.standing(connection, row, now_ms, limit=AT_ONCE)
    return next_step(rollouts.terms_of(row), row.stage, standing, now_ms)


def _as_it_is(row: Row[Any]) -> Step:
    return Step(State(row.state), row.stage, reason=row.reason)


def _changes(step: Step, row: Row[Any]) -> bool:
    return bool(step.send) or (step.state, step.stage) != (State(row.state), row.stage)


class _Turn:
    """One turn at a rollout that is locked."""

    def __init__(
        self, connection: AsyncConnection, publish: Publish, row: Row[Any], now_ms: int
    ) -> None:
        self._connection = connection
        self._publish = publish
        self._row = row
        self._state = State(row.state)
        self._now_ms = now_ms

    async def take(self, metrics: Metrics) -> None:
        """Do what is to be done, if another process has not done it meanwhile."""
        moved = await rollouts.moved(self._connection, self._row, limit=AT_ONCE)
        await self._note(moved)
        # What comes next is decided once all moves are known: one of them may be a failure.
        are_all = len(moved) < AT_ONCE
        if are_all and self._state is State.ABORTING:
            await self._restore()
            return
        step = _as_it_is(self._row)
        if are_all:
            step = await _step(self._connection, self._row, self._now_ms)
        if not moved and not _changes(step, self._row):
            return
        await self._send(step)
        row = await rollouts.change(
            self._connection,
            self._row.id,
            self._now_ms,
            state=step.state,
            stage=step.stage,
            reason=step.reason,
        )
        action = "progress"
        if step.state is not self._state:
            action = step.state.value
            level = _LOG.warning if step.state is State.STOPPED else _LOG.info
            level("a rollout is " + action, rollout=row.id, name=row.name, reason=step.reason)
        if step.state is State.STOPPED and self._state is State.RUNNING:
            metrics.rollouts_stopped.inc()
            await self._tell_stopped(row, metrics)
        self._publish(rollouts.change_of(row, action))

    async def _tell_stopped(self, row: Row[Any], metrics: Metrics) -> None:
        """Notify the targets of alerts, in the transaction that stops it, and so only once."""
        about = {
            "id": row.id,
            "name": row.name,
            "stage": row.stage,
            "reason": row.reason,
            "since": rfc3339(moment_of(self._now_ms)),
            "text": f"rollout {row.id} ({row.name}) has stopped: {row.reason}",
        }
        news = News("stopped", about, "rollout")
        lost = await alerts.tell(self._connection, [news], self._now_ms)
        if lost:
            metrics.alert_messages.labels("no room").inc(lost)
            _LOG.warning("too many messages wait: a stopped rollout is not told", rollout=row.id)

    async def _note(self, moved: Sequence[Member]) -> None:
        await rollouts.put_members(
            self._connection,
            self._row.id,
            (
                {
                    "terminal": member.terminal,
                    "progress": member.progress.value,
                    "confirmed_ms": member.confirmed_ms,
                    "reason": _cut(member.reason),
                }
                for member in moved
            ),
        )

    async def _send(self, step: Step) -> None:
        sent: list[dict[str, Any]] = []
        too_large: list[dict[str, Any]] = []
        some = step.send[:AT_ONCE]
        for one in await rollouts.to_set(self._connection, self._row, some) if some else ():
            document = dict(self._row.document)
            if not self._row.whole:
                document = laid_over(one.set_document or NOTHING, document)
            if not settings.fits(one.terminal, document):
                reason = "with what is set of it already, it is more than may be set"
                refused = Progress.REFUSED.value
                too_large.append({"terminal": one.terminal, "progress": refused, "reason": reason})
                continue
            sent.append(
                {
                    "terminal": one.terminal,
                    "progress": Progress.SENT.value,
                    "stage": step.stage,
                    "version": await self._set(one, document),
                    "before": one.set_document,
                    "sent_ms": self._now_ms,
                }
            )
        await rollouts.put_members(self._connection, self._row.id, sent)
        await rollouts.put_members(self._connection, self._row.id, too_large)

    async def _set(self, one: Row[Any], document: dict[str, Any]) -> int:
        """Set a terminal's settings, in the rollout's name; return their version."""
        terminal = one.terminal
        row = await settings.put(self._connection, terminal, document, self._now_ms)
        self._publish(settings.change_of(terminal, row.version, "set"))
        actor = audit.Actor("rollout", self._row.id, self._row.created_by, "")
        target = f"/v1/terminals/{terminal}/settings"
        changed = audit.Changed("set", target, one.tenant_id, one.set_document, document)
        await audit.record(self._connection, actor, [changed], self._now_ms)
        version: int = row.version
        return version

    async def _restore(self) -> None:
        """Restore the former settings of some terminals; after the last ones, it is aborted."""
        found = await rollouts.to_restore(self._connection, self._row, limit=AT_ONCE + 1)
        restored = []
        for one in found[:AT_ONCE]:
            await self._set(one, dict(one.before or NOTHING))
            restored.append({"terminal": one.terminal, "progress": Progress.RESTORED.value})
        await rollouts.put_members(self._connection, self._row.id, restored)
        is_over = len(found) <= AT_ONCE
        state = State.ABORTED if is_over else State.ABORTING
        row = await rollouts.change(self._connection, self._row.id, self._now_ms, state=state)
        self._publish(rollouts.change_of(row, state.value))


def _cut(reason: str | None) -> str | None:
    return None if reason is None else reason[:_MOST_REASON]
