"""Alerts: rules, what fires, who is told, and messages that wait to be sent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import Row
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.alerts.rules import Rule, RuleKind, Subject
from underpass_control.instants import moment_of, rfc3339
from underpass_control.storage.models import Alert, AlertMessage, AlertRule, AlertTarget

# What waits to be sent, of all targets together; what comes then is not sent at all.
MOST_WAITING = 10_000
# Alerts in one transaction: others write between two, and no statement has too many parameters.
AT_ONCE = 500


async def rules(connection: AsyncConnection) -> list[Rule]:
    """Return all rules."""
    rows = await connection.execute(select(AlertRule.__table__).order_by(AlertRule.id))
    return [Rule(row.id, row.name, RuleKind(row.kind), row.limit_ms, row.beam_id) for row in rows]


async def firing(connection: AsyncConnection) -> Sequence[Row[Any]]:
    """Return the alerts that fire."""
    query = select(Alert.__table__).where(Alert.resolved_ms.is_(None))
    return (await connection.execute(query)).all()


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
    dialect = sqlite if connection.dialect.name == "sqlite" else postgresql
    made = dialect.insert(Alert).values(values).on_conflict_do_nothing()
    return (await connection.execute(made.returning(*Alert.__table__.columns))).all()


async def resolve(
    connection: AsyncConnection, numbers: Iterable[int], now_ms: int
) -> Sequence[Row[Any]]:
    """End at most `AT_ONCE` alerts; return those that fired until now."""
    changed = update(Alert).where(Alert.id.in_(list(numbers)), Alert.resolved_ms.is_(None))
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


async def tell(connection: AsyncConnection, bodies: Sequence[str], now_ms: int) -> int:
    """Have all targets told; return how many messages there is no room for."""
    targets = (await connection.scalars(select(AlertTarget.id).order_by(AlertTarget.id))).all()
    waiting = (await connection.execute(select(func.count(AlertMessage.id)))).scalar_one()
    messages = [
        {"target_id": target, "body": body, "made_ms": now_ms, "next_ms": now_ms, "tries": 0}
        for body in bodies
        for target in targets
    ]
    room = max(MOST_WAITING - waiting, 0)
    if messages[:room]:
        await connection.execute(insert(AlertMessage), messages[:room])
    return len(messages[room:])


@dataclass(frozen=True, slots=True)
class Message:
    """What a target is to be told now, for the so-manieth time."""

    id: int
    target: int
    url: str
    secret: str
    body: str
    made_ms: int
    tries: int


async def claim(
    connection: AsyncConnection, now_ms: int, *, until_ms: int, limit: int
) -> list[Message]:
    """Return messages that are due; no other process is given them until a time."""
    due = (
        select(AlertMessage.id)
        .where(AlertMessage.next_ms <= now_ms)
        .order_by(AlertMessage.next_ms, AlertMessage.id)
        .limit(limit)
    )
    # The condition once more: another process may have taken them meanwhile.
    taken = (
        update(AlertMessage)
        .where(AlertMessage.id.in_(due.scalar_subquery()), AlertMessage.next_ms <= now_ms)
        .values(next_ms=until_ms, tries=AlertMessage.tries + 1)
        .returning(*AlertMessage.__table__.columns)
    )
    rows = (await connection.execute(taken)).all()
    query = select(AlertTarget.__table__).where(AlertTarget.id.in_({row.target_id for row in rows}))
    targets = {row.id: row for row in await connection.execute(query)}
    return [
        Message(
            row.id,
            row.target_id,
            targets[row.target_id].url,
            targets[row.target_id].secret,
            row.body,
            row.made_ms,
            row.tries,
        )
        for row in sorted(rows, key=lambda row: row.id)
        if row.target_id in targets
    ]


async def sent(
    connection: AsyncConnection,
    message: Message,
    now_ms: int,
    failure: str | None,
    again_ms: int | None,
) -> None:
    """Store how sending went: it is sent again at `again_ms`, or never."""
    last = {"last_ms": now_ms, "last_failure": None if failure is None else failure[:200]}
    await connection.execute(
        update(AlertTarget).where(AlertTarget.id == message.target).values(last)
    )
    if again_ms is None:
        await connection.execute(delete(AlertMessage).where(AlertMessage.id == message.id))
        return
    later = update(AlertMessage).where(AlertMessage.id == message.id)
    await connection.execute(later.values(next_ms=again_ms))


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
