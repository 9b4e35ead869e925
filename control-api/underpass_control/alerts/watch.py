"""Looks every few seconds what is wrong by the rules, and has it told.

Every process looks. An alert fires once whoever finds it first, since the database has one that
fires of each rule, terminal and link at most; only who has made it, or ended it, tells of it.
"""

from __future__ import annotations

import asyncio
import json

import structlog
from sqlalchemy.exc import IntegrityError

from underpass_control.alerts import evidence
from underpass_control.alerts.rules import Subject, wrong
from underpass_control.metrics import Metrics
from underpass_control.storage import alerts
from underpass_control.storage.changes import Changes, listed
from underpass_control.storage.database import Database, DatabaseLostError

_LOG = structlog.get_logger()


async def watch_for_ever(
    database: Database, changes: Changes, metrics: Metrics, every_s: float
) -> None:
    """Look, now and so often, until cancelled."""
    while True:
        try:
            await look(database, changes, metrics)
        except (DatabaseLostError, IntegrityError) as error:
            # A rule or terminal may have been deleted meanwhile.
            _LOG.warning("alerts are not looked for", error=str(error))
        await asyncio.sleep(every_s)


async def look(database: Database, changes: Changes, metrics: Metrics) -> None:
    """Have fire what is wrong, and end what is no longer."""
    now_ms = database.clock.now_ms()
    async with database.reading() as connection:
        rules = await alerts.rules(connection)
        standing = await alerts.firing(connection)
        facts = await evidence.read(connection, now_ms) if rules else []
    found = wrong(rules, facts, now_ms)
    metrics.alerts_firing.set(len(found))
    # A rule that has been deleted finds nothing.
    known = {row.id: Subject(row.rule_id or 0, row.terminal, row.link) for row in standing}
    new = {subject: found[subject] for subject in found.keys() - set(known.values())}
    over = [number for number, subject in known.items() if subject not in found]
    if not new and not over:
        return
    async with changes.transaction() as (connection, publish):
        fired = await alerts.fire(connection, new, rules, now_ms)
        resolved = await alerts.resolve(connection, over, now_ms)
        told = [("firing", row) for row in fired] + [("resolved", row) for row in resolved]
        for change in listed("alerts", (alerts.shown(row) for _, row in told)):
            publish(change)
        bodies = [
            json.dumps({"event": event, "alert": alerts.shown(row)}, separators=(",", ":"))
            for event, row in told
        ]
        lost = await alerts.tell(connection, bodies, now_ms)
    metrics.alerts_fired.inc(len(fired))
    if lost:
        metrics.alert_messages.labels("no room").inc(lost)
        _LOG.warning("too many messages of alerts wait: some are not sent", count=lost)
