"""Settlement: the amounts that really changed hands in a period, whatever was planned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from dama.ledger.accounts import Ledger
from dama.ledger.entries import Entry, Kind, LedgerError, Posting, Rule
from dama.rounding import apportion


@dataclass(frozen=True, slots=True)
class Usage:
    """A terminal's plan and traffic in a period, in bits of capacity (efficiency 1).

    Attributes:
        terminal: its account.
        fair_bits: its fair share, blockages apart.
        planned_bits: given by the plan in force.
        sent_bits: really sent, IP headers and retransmissions included.
        blocked: it was not heard for some of the period.
    """

    terminal: str
    fair_bits: int
    planned_bits: int
    sent_bits: int
    blocked: bool = False


def settle(ledger: Ledger, from_ms: int, to_ms: int, usages: Sequence[Usage]) -> list[Entry]:
    """Settle a period: enter what was lent, borrowed and repaid, and apply it to the ledger.

    - *Given* is the part of its fair share that a terminal did not send because the plan gave it
      less. If it was not heard for some of the period, it is also the planned part of its fair
      share that it did not send, up to what it owes.
    - *Taken* is the amount that a terminal sent beyond its fair share, up to the amount that the
      plan gave it beyond, or that it is owed. The rest was idle capacity that the hub shared at
      once, which is no debt.

    The smaller of both sums changes hands; the other side is reduced in proportion. Repayment that
    was offered to a creditor while its link was up, and left unused, is forgiven (`Rule.UNUSED`).

    Args:
        ledger: the accounts; the entries are applied to it.
        from_ms: UTC, ms since the Unix epoch.
        to_ms: the same; the first ms that no longer counts.
        usages: one for each terminal.

    Raises:
        LedgerError: if a terminal is there twice or an amount is negative; nothing is applied.
    """
    _check(usages)
    given = {usage.terminal: _given(usage, ledger.balance(usage.terminal)) for usage in usages}
    taken = {usage.terminal: _taken(usage, ledger.balance(usage.terminal)) for usage in usages}
    entries = []
    moved = min(sum(given.values()), sum(taken.values()))
    shared = _shared(given, moved)
    if moved:
        entries.append(
            Entry(from_ms, to_ms, Kind.SETTLED, _postings(shared, _shared(taken, moved)))
        )
        ledger.apply(entries[-1])
    left = {
        name: min(bits - shared[name], max(0, -ledger.balance(name)))
        for name, bits in given.items()
    }
    unused = {usage.terminal: _unused(usage, ledger.balance(usage.terminal)) for usage in usages}
    lapsed = min(sum(left.values()), sum(unused.values()))
    if lapsed:
        postings = _postings(_shared(left, lapsed), _shared(unused, lapsed))
        entries.append(Entry(from_ms, to_ms, Kind.FORGIVEN, postings, Rule.UNUSED))
        ledger.apply(entries[-1])
    return entries


def _check(usages: Sequence[Usage]) -> None:
    names = {usage.terminal for usage in usages}
    if len(names) < len(usages):
        raise LedgerError("a terminal is in a settlement twice")
    for usage in usages:
        if min(usage.fair_bits, usage.planned_bits, usage.sent_bits) < 0:
            raise LedgerError(f"terminal {usage.terminal} has an amount below 0")


def _given(usage: Usage, balance: int) -> int:
    given = max(0, usage.fair_bits - max(usage.planned_bits, usage.sent_bits))
    if usage.blocked:
        unsent = max(0, min(usage.planned_bits, usage.fair_bits) - usage.sent_bits)
        given += min(unsent, max(0, -balance - given))
    return given


def _taken(usage: Usage, balance: int) -> int:
    beyond = max(0, usage.sent_bits - usage.fair_bits)
    return min(beyond, max(0, usage.planned_bits - usage.fair_bits, balance))


def _unused(usage: Usage, balance: int) -> int:
    """Return the bits offered to a creditor beyond its fair share that it did not send."""
    if usage.blocked:
        return 0
    offered = usage.planned_bits - max(usage.fair_bits, usage.sent_bits)
    return max(0, min(offered, balance))


def _shared(amounts: Mapping[str, int], total: int) -> dict[str, int]:
    return dict(zip(amounts, apportion(list(amounts.values()), total), strict=True))


def _postings(given: Mapping[str, int], taken: Mapping[str, int]) -> tuple[Posting, ...]:
    postings = (Posting(name, bits - taken[name]) for name, bits in given.items())
    return tuple(posting for posting in postings if posting.bits)
