"""Settles a beam, period after period, for the holder of its lease."""

from __future__ import annotations

import structlog
from sqlalchemy.ext.asyncio import AsyncConnection

from dama.ledger import Ledger, LedgerError
from dama.planner import Link, Plan
from underpass_control.metrics import Metrics
from underpass_control.planning.lease import FencedError
from underpass_control.settings import Settings
from underpass_control.settlement.evidence import Records
from underpass_control.settlement.measures import Measures
from underpass_control.settlement.period import (
    PERIOD_MS,
    Evidence,
    awaited,
    count,
    enter,
    projected,
    unheard,
)
from underpass_control.storage import ledger as stored
from underpass_control.storage import settled_usage
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database

_LOG = structlog.get_logger()
# A link without any plan is settled in steps of this length.
_LOOK_MS = 600_000
# Observations of a period have arrived this long after its end.
_GRACE_MS = 3_000
# The most periods of a link settled in one call, so that planning does not wait for a backlog.
_MOST_AT_ONCE = 6


class Settler:
    """Settles the links of a beam; one for each lease held, ended by `close`.

    A period is settled in one transaction with the mark that says so, and only if the ledger has
    not changed since the period was counted. So it is settled once, despite crashes and other
    processes.
    """

    def __init__(
        self, database: Database, changes: Changes, metrics: Metrics, settings: Settings, beam: str
    ) -> None:
        self._database = database
        self._changes = changes
        self._measures = Measures(metrics, beam)
        self._beam = beam
        self._within_ms = round(settings.settle_within_s * 1000)
        self._forgive_after_ms = (
            None if settings.forgive_after_s is None else round(settings.forgive_after_s * 1000)
        )
        self._records = Records(beam)

    async def settle_due(self, now_ms: int, fence: int) -> int:
        """Settle what can be settled by now; return how many periods of a link that was.

        Args:
            now_ms: UTC, ms since the Unix epoch.
            fence: of the lease held.

        Raises:
            FencedError: A later lease has been settled under.
            DatabaseLostError: Nothing is half done; call again.
        """
        return sum([await self._settle_link(link, now_ms, fence) for link in Link])

    async def owed_bits(
        self, connection: AsyncConnection, link: Link, at_ms: int
    ) -> dict[int, int]:
        """Return the balances at a time; above 0, bits are owed to the terminal.

        Args:
            connection: to read by.
            link: of the beam.
            at_ms: UTC, ms since the Unix epoch; the plans known must be those in force until then.
        """
        mark = await stored.mark_of(connection, self._beam, link)
        if mark is None:
            return {}
        try:
            ledger = await stored.ledger_of(connection, self._beam, link)
        except LedgerError as error:
            self._tell_fault(link, error)
            self._records.forget(link)
            return {}
        shares = await self._records.unsettled(connection, link, mark.until_ms, at_ms)
        return projected(ledger, shares)

    def planned(self, link: Link, version: int, plan: Plan) -> None:
        """Take a plan that has been stored."""
        self._records.planned(link, version, plan)

    def close(self) -> None:
        """Stop measuring this beam: another process does."""
        self._measures.close()

    async def _settle_link(self, link: Link, now_ms: int, fence: int) -> int:
        async with self._database.reading() as connection:
            mark = await stored.mark_of(connection, self._beam, link)
        if mark is None:
            async with self._changes.transaction() as (connection, _):
                await stored.begin(connection, self._beam, link, _period(now_ms), fence)
            return 0
        settled = 0
        try:
            while settled < _MOST_AT_ONCE and await self._settle_next(link, now_ms, fence):
                settled += 1
        except LedgerError as error:
            self._tell_fault(link, error)
        return settled

    async def _settle_next(self, link: Link, now_ms: int, fence: int) -> bool:
        """Settle the next period; return whether it could be."""
        read = await self._read_next(link, now_ms, fence)
        if read is None:
            return False
        mark, ledger, known = read
        missing = awaited(ledger, known, self._within_ms)
        if missing and now_ms < known.end_ms + self._within_ms:
            return False
        silent = unheard(ledger, known)
        async with self._database.reading() as connection:
            presumed = await self._records.planned_within(connection, link, known, silent)
        counted = count(ledger, known, presumed)
        entries = enter(ledger, known, counted, self._forgive_after_ms)
        async with self._changes.transaction() as (connection, publish):
            if not await stored.advance(connection, mark, known.end_ms, fence):
                # The ledger has changed since it was read; the next call tries again.
                return False
            await stored.write(connection, publish, self._beam, link, entries, ledger)
            await settled_usage.keep(connection, self._beam, link, known.start_ms, counted)
        if missing:
            _LOG.warning(
                "settled without all reports",
                beam=self._beam,
                link=link.value,
                terminals=len(missing),
                from_ms=known.start_ms,
            )
        self._measures.entered(link, entries, len(missing))
        self._measures.balances(link, ledger.lots())
        self._measures.until(link, known.end_ms, now_ms)
        return True

    async def _read_next(
        self, link: Link, now_ms: int, fence: int
    ) -> tuple[stored.Mark, Ledger, Evidence] | None:
        """Read the evidence of the next period; None if none is due."""
        async with self._database.reading() as connection:
            mark = await stored.mark_of(connection, self._beam, link)
            if mark is None:
                # The beam has been deleted meanwhile.
                return None
            if mark.fence > fence:
                raise FencedError(f"beam {self._beam} is settled under the lease {mark.fence}")
            self._measures.until(link, mark.until_ms, now_ms)
            due_ms = min(_period(now_ms - _GRACE_MS), mark.until_ms + _LOOK_MS)
            if due_ms <= mark.until_ms:
                return None
            lots = await stored.lots_of(connection, self._beam, link)
            self._measures.balances(link, lots)
            known = await self._records.gather(connection, link, mark.until_ms, due_ms)
        return mark, Ledger(lots), known

    def _tell_fault(self, link: Link, error: LedgerError) -> None:
        self._measures.fault(link)
        _LOG.error("the ledger cannot be used", beam=self._beam, link=link.value, error=str(error))


def _period(time_ms: int) -> int:
    """Return the begin of the period of a time."""
    return time_ms // PERIOD_MS * PERIOD_MS
