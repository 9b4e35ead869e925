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
      less.
    - *Taken* is the amount that a terminal sent beyond its fair share, up to the amount that the
      plan gave it beyond, or that it is owed. The rest was idle capacity that the hub shared at
      once, which is no debt.

    The smaller of both sums changes hands; the other side is reduced in proportion. What is taken
    beyond that by terminals that are owed something repays debtors that gave less than the plan had
    them give, or left more than that, each up to what it owes (`_late`). Repayment that was offered
    to a creditor while its link was up, and left unused, is forgiven (`Rule.UNUSED`).

    Args:
        ledger: the accounts; the entries are applied to it.
        from_ms: UTC, ms since the Unix epoch.
        to_ms: the same; the first ms that no longer counts.
        usages: one for each terminal.

    Raises:
        LedgerError: if a terminal is there twice or an amount is negative; nothing is applied.
    """
    _check(usages)
    given = {usage.terminal: _given(usage) for usage in usages}
    taken = {usage.terminal: _taken(usage, ledger.balance(usage.terminal)) for usage in usages}
    gave, took = _exchanged(given, taken)
    balances = {name: ledger.balance(name) + bits - took[name] for name, bits in gave.items()}
    late = {
        usage.terminal: _late(usage, -balances[usage.terminal], len(usages)) for usage in usages
    }
    claimed = {name: min(bits - took[name], max(0, balances[name])) for name, bits in taken.items()}
    gave_late, took_late = _exchanged(late, claimed)
    entries = []
    postings = _postings(_sums(gave, gave_late), _sums(took, took_late))
    if postings:
        entries.append(Entry(from_ms, to_ms, Kind.SETTLED, postings))
        ledger.apply(entries[-1])
    left = {
        name: min(bits - gave[name], max(0, -ledger.balance(name))) for name, bits in given.items()
    }
    unused = {usage.terminal: _unused(usage, ledger.balance(usage.terminal)) for usage in usages}
    postings = _postings(*_exchanged(left, unused))
    if postings:
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


def _given(usage: Usage) -> int:
    return max(0, usage.fair_bits - max(usage.planned_bits, usage.sent_bits))


def _taken(usage: Usage, balance: int) -> int:
    beyond = max(0, usage.sent_bits - usage.fair_bits)
    return min(beyond, max(0, usage.planned_bits - usage.fair_bits, balance))


def _late(usage: Usage, owes: int, rounding: int) -> int:
    """Return what a debtor may repay beside what it has given, as far as creditors took it.

    A sender follows its plan to within some bundles. What it sent too much is made up for when it
    sends less: so what it leaves beyond the plan counts. So does the part of its fair share that
    the plan took from it and idle capacity gave back, since creditors had what they were promised.

    Rounding may put a bit of each terminal into another period. A debt of no more than `rounding`
    bits is repaid by any that creditors took.
    """
    if owes <= rounding:
        return max(0, owes)
    least, most = sorted((usage.planned_bits, usage.sent_bits))
    return min(owes, max(0, usage.fair_bits - least) - max(0, usage.fair_bits - most))


def _unused(usage: Usage, balance: int) -> int:
    """Return the bits offered to a creditor beyond its fair share that it did not send."""
    if usage.blocked:
        return 0
    offered = usage.planned_bits - max(usage.fair_bits, usage.sent_bits)
    return max(0, min(offered, balance))


def _exchanged(
    given: Mapping[str, int], taken: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """Reduce the larger side to the sum of the smaller one, in proportion."""
    moved = min(sum(given.values()), sum(taken.values()))
    return _shared(given, moved), _shared(taken, moved)


def _shared(amounts: Mapping[str, int], total: int) -> dict[str, int]:
    return dict(zip(amounts, apportion(list(amounts.values()), total), strict=True))


def _sums(one: Mapping[str, int], other: Mapping[str, int]) -> dict[str, int]:
    return {name: bits + other[name] for name, bits in one.items()}


def _postings(given: Mapping[str, int], taken: Mapping[str, int]) -> tuple[Posting, ...]:
    postings = (Posting(name, bits - taken[name]) for name, bits in given.items())
    return tuple(posting for posting in postings if posting.bits)
