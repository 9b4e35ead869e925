"""Debts that an operator forgives; the other rules apply while settling."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncConnection

from dama.ledger import LedgerError, Rule
from dama.planner import Link
from underpass_control.storage import ledger as stored
from underpass_control.storage.changes import Publish


async def forgive(
    connection: AsyncConnection,
    publish: Publish,
    beam: str,
    link: Link,
    terminal: int,
    bits: int | None,
    authorship: stored.Authorship,
    at_ms: int,
) -> stored.StoredEntry:
    """Forgive what a terminal owes or is owed, all of it or a number of bits.

    Raises:
        LedgerError: Its balance, as far as it is settled, is less than that, or nothing.
    """
    held = await stored.hold(connection, beam, link)
    ledger = await stored.ledger_of(connection, beam, link)
    if not held or not ledger.balance(str(terminal)):
        raise LedgerError(f"terminal {terminal} owes nothing and is owed nothing")
    entry = ledger.forgive(str(terminal), Rule.OPERATOR, at_ms, bits)
    ledger.apply(entry)
    (made,) = await stored.write(connection, publish, beam, link, [entry], ledger, authorship)
    return made
