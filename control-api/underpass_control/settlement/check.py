"""The audit of the ledger: all entries are applied again, from the opening lots that deleted
entries left, and the result is compared with the stored open lots."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

from sqlalchemy.ext.asyncio import AsyncConnection

from dama.ledger import Ledger, LedgerError, Lot
from dama.planner import Link
from underpass_control.storage import ledger as stored

# Entries in memory at a time: those of a large beam have thousands of postings each.
_AT_ONCE = 200
# Called with the number of further entries that have been checked.
Tell = Callable[[int], None]


@dataclass
class Audit:
    """The result of the audit of one link of a beam.

    Attributes:
        entries: how many there are.
        postings: how many they have together.
        balances: by terminal, in bits of capacity, the sum of all entries, deleted ones included.
        faults: the faults found; empty if there are none.
    """

    beam: str
    link: Link
    entries: int = 0
    postings: int = 0
    balances: dict[int, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


async def audit(connection: AsyncConnection, tell: Tell = lambda _: None) -> AsyncIterator[Audit]:
    """Audit every link of every beam, one after the other.

    The connection has to see one state of the database: a service may continue to settle.
    """
    for beam, link in await stored.books(connection):
        yield await _audit(connection, beam, link, tell)


async def _audit(connection: AsyncConnection, beam: str, link: Link, tell: Tell) -> Audit:
    found = Audit(beam, link)
    opening = await stored.opening_of(connection, beam, link)
    found.balances = {
        int(name): sum(lot.bits for lot in account) for name, account in opening.items()
    }
    try:
        ledger = Ledger(opening)
    except LedgerError as error:
        found.faults.append(f"what deleted entries came to: {error}")
        return found
    last = 0
    while batch := await stored.replay(connection, beam, link, last, _AT_ONCE):
        for one in batch:
            last = one.id
            found.entries += 1
            found.postings += len(one.postings)
            for posting in one.postings:
                terminal = int(posting.account)
                found.balances[terminal] = found.balances.get(terminal, 0) + posting.bits
            try:
                ledger.apply(one.entry())
            except LedgerError as error:
                found.faults.append(f"entry {one.id}: {error}")
        tell(len(batch))
    found.balances = {terminal: bits for terminal, bits in found.balances.items() if bits}
    if total := sum(found.balances.values()):
        found.faults.append(f"the balances sum to {total} bits, not to 0")
    if not found.faults:
        # With wrong entries there are no balances to compare.
        found.faults += _differences(ledger.lots(), await stored.lots_of(connection, beam, link))
    return found


def _differences(made: dict[str, tuple[Lot, ...]], kept: dict[str, tuple[Lot, ...]]) -> list[str]:
    return [
        f"terminal {name}: its entries come to {_bits(made, name)} bits in"
        f" {len(made.get(name, ()))} lots, kept are {_bits(kept, name)} in"
        f" {len(kept.get(name, ()))}"
        for name in sorted(made.keys() | kept.keys(), key=int)
        if made.get(name, ()) != kept.get(name, ())
    ]


def _bits(lots: dict[str, tuple[Lot, ...]], name: str) -> int:
    return sum(lot.bits for lot in lots.get(name, ()))
