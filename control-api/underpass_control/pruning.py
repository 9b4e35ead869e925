"""Deletes old data: position reports, blockages, learned places, plans, usage, the ledger."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog
from prometheus_client import Counter
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.ledger import LedgerError
from underpass_control.access import audit, enrolments
from underpass_control.access.sessions import prune_sessions
from underpass_control.alerts.sending import OLDEST_S as OLDEST_MESSAGE_S
from underpass_control.clock import host_ms
from underpass_control.metrics import Metrics
from underpass_control.planning import lease
from underpass_control.planning import stored as plans
from underpass_control.settings import Settings
from underpass_control.storage import (
    alerts,
    habits,
    history,
    interventions,
    learned,
    ledger,
    passages,
    positions,
    rollouts,
    settled_usage,
    tilesets,
    usage,
)
from underpass_control.storage.changes import Change, Changes
from underpass_control.storage.database import Database, DatabaseLostError
from underpass_control.storage.portions import delete_all

_LOG = structlog.get_logger()
# After their end: their configurations may hold secrets, and the log of changes has the rest.
_ENROLMENTS_KEPT_S = 30 * 86_400.0
# A starting service has requests to answer first, and other processes may start beside it.
_FIRST_AFTER_S = 10.0
# The longest time of an import.
_TILES_COME_WITHIN_S = 86_400.0


class Prune(Protocol):
    """Deletes at most `limit` rows older than a time, and returns how many."""

    def __call__(
        self, connection: AsyncConnection, before_ms: int, *, limit: int
    ) -> Coroutine[Any, Any, int]:
        """Delete them."""


@dataclass(frozen=True)
class _Kind:
    name: str
    keep_s: float | None
    prunes: Sequence[Prune]
    pruned: Counter
    # The event that is published of it, beside how many.
    told: Change | None = None


async def prune_for_ever(
    database: Database, changes: Changes, settings: Settings, metrics: Metrics
) -> None:
    """Delete what is old, soon and each `prune_every_s`, until cancelled."""
    kinds = _kinds(settings, metrics)
    await asyncio.sleep(min(_FIRST_AFTER_S, settings.prune_every_s))
    while True:
        for kind in kinds:
            await _prune_kind(database, changes, kind)
        await asyncio.sleep(settings.prune_every_s)


def _kinds(settings: Settings, metrics: Metrics) -> Sequence[_Kind]:
    return (
        _Kind("positions", settings.keep_positions_s, [positions.prune], metrics.positions_pruned),
        _Kind("blockages", settings.keep_positions_s, [history.prune], metrics.blockages_pruned),
        _Kind("drives", settings.keep_positions_s, [habits.prune], metrics.drives_pruned),
        _Kind("passages", settings.keep_positions_s, [passages.prune], metrics.passages_pruned),
        _Kind(
            "learned places",
            learned.FADES_S,
            [learned.fade],
            metrics.places_pruned,
            {"kind": "obstructions", "action": "set", "source": learned.SOURCE},
        ),
        _Kind(
            "usage",
            settings.keep_usage_s,
            [usage.prune, settled_usage.prune],
            metrics.usage_pruned,
        ),
        _Kind(
            "acknowledgements",
            settings.keep_plans_s,
            [plans.prune_acknowledgements],
            metrics.acknowledgements_pruned,
        ),
        _Kind("plans", settings.keep_plans_s, [plans.prune], metrics.plans_pruned),
        _Kind("alerts", settings.keep_audit_s, [alerts.prune], metrics.alerts_pruned),
        _Kind("rollouts", settings.keep_audit_s, [rollouts.prune], metrics.rollouts_pruned),
        _Kind(
            "interventions",
            settings.keep_plans_s,
            [interventions.prune],
            metrics.interventions_pruned,
        ),
        _Kind("ledger", settings.keep_ledger_s, [ledger.prune], metrics.ledger_pruned),
        _Kind(
            "messages of alerts",
            OLDEST_MESSAGE_S,
            [alerts.give_up],
            metrics.alert_messages.labels("given up"),
        ),
        _Kind(
            "enrolments",
            _ENROLMENTS_KEPT_S,
            [enrolments.prune_enrolments],
            metrics.enrolments_pruned,
        ),
        _Kind("tiles", _TILES_COME_WITHIN_S, [tilesets.prune], metrics.tiles_pruned),
        _Kind("changes", settings.keep_audit_s, [audit.prune], metrics.audit_pruned),
        _Kind("sessions", 0.0, [prune_sessions], metrics.sessions_pruned),
    )


async def _prune_kind(database: Database, changes: Changes, kind: _Kind) -> None:
    if kind.keep_s is None:
        return
    try:
        async with database.reading() as connection:
            # Rows have times of either clock. A row that is young by one of them stays, so a host's
            # clock that is far ahead deletes nothing.
            now_ms = min(await lease.now_ms(connection), round(host_ms()))
        before_ms = now_ms - round(kind.keep_s * 1000)
        count = sum([await prune(database, one, before_ms) for one in kind.prunes])
        if count and kind.told is not None:
            async with changes.transaction() as (_, publish):
                publish({**kind.told, "count": count})
    except (DatabaseLostError, LedgerError, ledger.PruneError) as error:
        _LOG.warning("what is old could not be deleted", what=kind.name, error=str(error))
        return
    except Exception:
        # The other kinds are still deleted, and this one is tried again later.
        _LOG.exception("what is old could not be deleted", what=kind.name)
        return
    if count:
        kind.pruned.inc(count)
        _LOG.info("what is old is deleted", what=kind.name, count=count)


async def prune(database: Database, delete: Prune, before_ms: int) -> int:
    """Delete rows older than a time, some in each transaction; return how many."""

    def portion(connection: AsyncConnection, *, limit: int) -> Coroutine[Any, Any, int]:
        return delete(connection, before_ms, limit=limit)

    return await delete_all(database, portion)
