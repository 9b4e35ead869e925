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

# Terminals that are set in one transaction: others write between two.
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
        async with changes.transaction() as (connection, publish):
            turn = await _Turn.begun(connection, publish, number, database.clock.now_ms())
            if turn is not None:
                await turn.take(metrics)


async def _has_work(database: Database, number: int) -> bool:
    now_ms = database.clock.now_ms()
    async with database.reading() as connection:
        row = await rollouts.get(connection, number)
        if row is None:
            return False
        members = await rollouts.standing(connection, row)
    return _Turn(row, members, now_ms).has_work


class _Turn:
    """One look at a rollout."""

    def __init__(self, row: Row[Any], standing: Sequence[Row[Any]], now_ms: int) -> None:
        self._row = row
        self._standing = standing
        self._now_ms = now_ms
        self._members = [rollouts.member_of(one, row) for one in standing]
        self._state = State(row.state)
        self._step = Step(self._state, row.stage, reason=row.reason)
        if self._state is State.RUNNING:
            self._step = next_step(rollouts.terms_of(row), row.stage, self._members, now_ms)
        self._moved = [
            (one, member)
            for one, member in zip(standing, self._members, strict=True)
            if one.progress != member.progress
        ]
        self._to_restore: list[Row[Any]] = []
        if self._state is State.ABORTING:
            self._to_restore = [one for one in standing if _is_ours(one, row)]
        self._connection: AsyncConnection
        self._publish: Publish

    @classmethod
    async def begun(
        cls, connection: AsyncConnection, publish: Publish, number: int, now_ms: int
    ) -> _Turn | None:
        """Return a look at a rollout that is now locked; None if it no longer exists."""
        row = await rollouts.lock(connection, number)
        if row is None:
            return None
        turn = cls(row, await rollouts.standing(connection, row), now_ms)
        turn._connection, turn._publish = connection, publish
        return turn

    @property
    def has_work(self) -> bool:
        """Whether there is anything to be done."""
        return bool(self._moved) or self._changes or self._state is State.ABORTING

    @property
    def _changes(self) -> bool:
        step, row = self._step, self._row
        return bool(step.send) or (step.state, step.stage) != (self._state, row.stage)

    async def take(self, metrics: Metrics) -> None:
        """Do it."""
        if not self.has_work:
            return
        await self._note_moved()
        if self._state is State.ABORTING:
            await self._restore()
            return
        step = self._step
        await self._send(step)
        row = await rollouts.change(
            self._connection,
            self._row.id,
            self._now_ms,
            state=step.state.value,
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

    async def _note_moved(self) -> None:
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
                for _, member in self._moved
            ),
        )

    async def _send(self, step: Step) -> None:
        of_terminal = {one.terminal: one for one in self._standing}
        sent: list[dict[str, Any]] = []
        too_large: list[dict[str, Any]] = []
        for terminal in step.send[:AT_ONCE]:
            one = of_terminal[terminal]
            document = dict(self._row.document)
            if not self._row.whole:
                document = laid_over(one.set_document or NOTHING, document)
            if not settings.fits(terminal, document):
                reason = "with what is set of it already, it is more than may be set"
                refused = Progress.REFUSED.value
                too_large.append({"terminal": terminal, "progress": refused, "reason": reason})
                continue
            sent.append(
                {
                    "terminal": terminal,
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
        some = self._to_restore[:AT_ONCE]
        restored = []
        for one in some:
            await self._set(one, dict(one.before or NOTHING))
            restored.append({"terminal": one.terminal, "progress": Progress.RESTORED.value})
        await rollouts.put_members(self._connection, self._row.id, restored)
        is_over = len(some) == len(self._to_restore)
        state = State.ABORTED if is_over else State.ABORTING
        row = await rollouts.change(self._connection, self._row.id, self._now_ms, state=state.value)
        self._publish(rollouts.change_of(row, state.value))


def _is_ours(one: Row[Any], rollout: Row[Any]) -> bool:
    """Tell whether a terminal has the rollout's settings, and may be given others by it."""
    member: Member = rollouts.member_of(one, rollout)
    has_left = rollout.tenant_id not in (None, one.tenant_id)
    is_set = one.version is not None and one.set_version == one.version
    return is_set and not has_left and member.progress is not Progress.RESTORED


def _cut(reason: str | None) -> str | None:
    return None if reason is None else reason[:_MOST_REASON]
