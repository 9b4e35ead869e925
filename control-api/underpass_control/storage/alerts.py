"""Alerts: rules, firing alerts, targets, and messages that wait to be sent."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, insert, select, tuple_, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.alerts.hysteresis import Firing
from underpass_control.alerts.messages import News, mail_body, webhook_body
from underpass_control.alerts.rules import Rule, RuleKind, Subject
from underpass_control.instants import moment_of, rfc3339
from underpass_control.storage.models import (
    Alert,
    AlertMessage,
    AlertPending,
    AlertRule,
    AlertTarget,
)

# The most messages that wait for a target; further ones are not sent to it.
MOST_WAITING = 2_000
# Alerts in one transaction: others write between two, and no statement has too many parameters.
AT_ONCE = 500


async def rules(connection: AsyncConnection) -> list[Rule]:
    """Return all rules."""
    rows = await connection.execute(select(AlertRule.__table__).order_by(AlertRule.id))
    return [
        Rule(
            row.id,
            row.name,
            RuleKind(row.kind),
            row.limit_ms,
            row.beam_id,
            row.for_ms,
            row.keep_firing_for_ms,
            row.version,
        )
        for row in rows
    ]


async def firing(connection: AsyncConnection) -> dict[int, Firing]:
    """Return the alerts that fire, by number."""
    columns = (Alert.id, Alert.rule_id, Alert.terminal, Alert.link, Alert.gone_ms)
    rows = await connection.execute(select(*columns).where(Alert.resolved_ms.is_(None)))
    # The number of a deleted rule is never used again.
    return {
        row.id: Firing(Subject(row.rule_id or 0, row.terminal, row.link), row.gone_ms)
        for row in rows
    }


async def pending(connection: AsyncConnection) -> dict[Subject, int]:
    """Return since when conditions hold that do not fire yet."""
    rows = await connection.execute(select(AlertPending.__table__))
    return {Subject(row.rule_id, row.terminal, row.link): row.since_ms for row in rows}


async def pend(connection: AsyncConnection, subjects: Iterable[Subject], now_ms: int) -> None:
    """Store that at most `AT_ONCE` conditions hold from now on; what pends already stays so."""
    values = [
        {"rule_id": one.rule, "terminal": one.terminal, "link": one.link, "since_ms": now_ms}
        for one in subjects
    ]
    if values:
        made = _insert(connection, AlertPending).values(values).on_conflict_do_nothing()
        await connection.execute(made)


async def forget(connection: AsyncConnection, subjects: Iterable[Subject]) -> None:
    """Delete at most `AT_ONCE` conditions that pend."""
    key = tuple_(AlertPending.rule_id, AlertPending.terminal, AlertPending.link)
    asked = [tuple(one) for one in subjects]
    if asked:
        await connection.execute(delete(AlertPending).where(key.in_(asked)))


async def mark(connection: AsyncConnection, numbers: Collection[int], gone_ms: int | None) -> None:
    """Store of at most `AT_ONCE` alerts since when their condition is gone; None: it holds."""
    if numbers:
        fires = update(Alert).where(Alert.id.in_(numbers), Alert.resolved_ms.is_(None))
        await connection.execute(fires.values(gone_ms=gone_ms))


async def fire(
    connection: AsyncConnection, found: Mapping[Subject, str], by: Iterable[Rule], now_ms: int
) -> Sequence[Row[Any]]:
    """Have at most `AT_ONCE` alerts fire.

    Return those that did not yet, whatever other processes do meanwhile.
    """
    of_rule = {rule.id: rule for rule in by}
    values = [
        {
            "rule_id": subject.rule,
            "rule": of_rule[subject.rule].name,
            "kind": of_rule[subject.rule].kind.value,
            "terminal": subject.terminal,
            "link": subject.link,
            "text": text[:300],
            "since_ms": now_ms,
        }
        for subject, text in found.items()
    ]
    if not values:
        return []
    made = _insert(connection, Alert).values(values).on_conflict_do_nothing()
    return (await connection.execute(made.returning(*Alert.__table__.columns))).all()


async def resolve(
    connection: AsyncConnection, numbers: Iterable[int], now_ms: int
) -> Sequence[Row[Any]]:
    """End at most `AT_ONCE` alerts; return those that fired until now."""
    changed = update(Alert).where(Alert.id.in_(list(numbers)), Alert.resolved_ms.is_(None))
    done = changed.values(resolved_ms=now_ms).returning(*Alert.__table__.columns)
    return (await connection.execute(done)).all()


async def resolve_of(connection: AsyncConnection, terminal: int, now_ms: int) -> Sequence[Row[Any]]:
    """End the alerts of a terminal that is about to be deleted; return those that fired until now.

    They are deleted with it.
    """
    changed = update(Alert).where(Alert.terminal == terminal, Alert.resolved_ms.is_(None))
    done = changed.values(resolved_ms=now_ms).returning(*Alert.__table__.columns)
    return (await connection.execute(done)).all()


async def acknowledge(
    connection: AsyncConnection, number: int, by: str, now_ms: int
) -> Row[Any] | None:
    """Say that somebody knows of an alert; None if it is acknowledged already."""
    known = update(Alert).where(Alert.id == number, Alert.acknowledged_ms.is_(None))
    done = known.values(acknowledged_by=by, acknowledged_ms=now_ms)
    return (await connection.execute(done.returning(*Alert.__table__.columns))).one_or_none()


async def page(
    connection: AsyncConnection, *, is_firing: bool | None, before: int | None, limit: int
) -> Sequence[Row[Any]]:
    """Return alerts, the newest first, below a number."""
    query = select(Alert.__table__).order_by(Alert.id.desc()).limit(limit)
    if is_firing is not None:
        fires = Alert.resolved_ms.is_(None)
        query = query.where(fires if is_firing else ~fires)
    if before is not None:
        query = query.where(Alert.id < before)
    return (await connection.execute(query)).all()


async def tell(connection: AsyncConnection, news: Sequence[News], now_ms: int) -> int:
    """Queue messages to all targets; return how many there is no room for."""
    if not news:
        return 0
    rows = await connection.execute(
        select(AlertTarget.id, AlertTarget.url, func.count(AlertMessage.id).label("waiting"))
        .outerjoin(AlertMessage, AlertMessage.target_id == AlertTarget.id)
        .group_by(AlertTarget.id, AlertTarget.url)
        .order_by(AlertTarget.id)
    )
    messages: list[dict[str, Any]] = []
    lost = 0
    for target in rows:
        bodies = [mail_body(news)] if target.url.startswith("mailto:") else map(webhook_body, news)
        made = [
            {"target_id": target.id, "body": body, "made_ms": now_ms, "next_ms": now_ms}
            for body in bodies
        ]
        room = max(MOST_WAITING - target.waiting, 0)
        messages += made[:room]
        lost += len(made[room:])
    if messages:
        await connection.execute(insert(AlertMessage), messages)
    return lost


@dataclass(frozen=True, slots=True)
class Message:
    """A message that is due for a target; `tries` includes the present one."""

    id: int
    target: int
    url: str
    secret: str
    body: str
    tries: int


async def due(connection: AsyncConnection, now_ms: int) -> set[int]:
    """Return the targets with a message due now."""
    query = select(AlertMessage.target_id).where(AlertMessage.next_ms <= now_ms).distinct()
    return set((await connection.scalars(query)).all())


async def claim(
    connection: AsyncConnection, target: int, now_ms: int, *, until_ms: int
) -> Message | None:
    """Return a target's next message; no other process is given it until a time."""
    first = (
        select(AlertMessage.id)
        .where(AlertMessage.target_id == target, AlertMessage.next_ms <= now_ms)
        .order_by(AlertMessage.next_ms, AlertMessage.id)
        .limit(1)
    )
    # Check the condition again: another process may have claimed it meanwhile.
    claimed = (
        update(AlertMessage)
        .where(AlertMessage.id == first.scalar_subquery(), AlertMessage.next_ms <= now_ms)
        .values(next_ms=until_ms, tries=AlertMessage.tries + 1)
        .returning(AlertMessage.id, AlertMessage.body, AlertMessage.tries)
    )
    row = (await connection.execute(claimed)).one_or_none()
    if row is None:
        return None
    query = select(AlertTarget.url, AlertTarget.secret).where(AlertTarget.id == target)
    where = (await connection.execute(query)).one()
    return Message(row.id, target, where.url, where.secret, row.body, row.tries)


async def taken(connection: AsyncConnection, message: Message, now_ms: int) -> None:
    """Store that a target has taken a message."""
    good = {"last_ms": now_ms, "last_failure": None, "failures": 0}
    await connection.execute(
        update(AlertTarget).where(AlertTarget.id == message.target).values(good)
    )
    await connection.execute(delete(AlertMessage).where(AlertMessage.id == message.id))


async def failed(
    connection: AsyncConnection,
    message: Message,
    failure: str,
    now_ms: int,
    wait_ms: Callable[[int], int],
) -> None:
    """Store that a target has not accepted a message, and postpone all messages to it.

    `wait_ms` gives the wait for a number of failures in a row: of the target, which may be away,
    and of the message, which the target may refuse.
    """
    changed = (
        update(AlertTarget)
        .where(AlertTarget.id == message.target)
        .values(last_ms=now_ms, last_failure=failure[:200], failures=AlertTarget.failures + 1)
    )
    result = await connection.execute(changed.returning(AlertTarget.failures))
    failures = result.scalar_one_or_none()
    if failures is None:
        return
    again_ms = now_ms + wait_ms(message.tries)
    await connection.execute(
        update(AlertMessage).where(AlertMessage.id == message.id).values(next_ms=again_ms)
    )
    off_ms = now_ms + wait_ms(failures)
    others = update(AlertMessage).where(
        AlertMessage.target_id == message.target, AlertMessage.next_ms < off_ms
    )
    await connection.execute(others.values(next_ms=off_ms))


async def give_up(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` messages that were made before a time; return how many."""
    some = select(AlertMessage.id).where(AlertMessage.made_ms < before_ms).limit(limit)
    return (
        await connection.execute(delete(AlertMessage).where(AlertMessage.id.in_(some)))
    ).rowcount


async def prune(connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
    """Delete at most `limit` alerts that were resolved before a time; return how many."""
    some = select(Alert.id).where(Alert.resolved_ms < before_ms).limit(limit)
    return (await connection.execute(delete(Alert).where(Alert.id.in_(some)))).rowcount


def shown(row: Row[Any]) -> dict[str, Any]:
    """Return an alert as events and messages show it."""
    found = {
        "id": row.id,
        "rule": row.rule,
        "kind": row.kind,
        "terminal": row.terminal,
        "link": row.link or None,
        "text": row.text,
        "since": rfc3339(moment_of(row.since_ms)),
        "resolved": None if row.resolved_ms is None else rfc3339(moment_of(row.resolved_ms)),
        "acknowledged": (
            None if row.acknowledged_ms is None else rfc3339(moment_of(row.acknowledged_ms))
        ),
    }
    return {name: value for name, value in found.items() if value is not None}


def _insert(connection: AsyncConnection, table: type[Alert] | type[AlertPending]) -> Any:
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    return dialect.insert(table)
