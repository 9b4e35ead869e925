"""How a period is settled: the counts, the awaited reports, and the entries. Pure functions.

A terminal has a *stake* in a period if the plan gave it more or less than its fair share, or if it
owes or is owed something. For a terminal without a stake, nothing can be entered.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import NamedTuple, Protocol

from dama.ledger import Entry, Ledger, Rule, Usage, settle

# A period is one bucket of the usage counts.
PERIOD_MS = 10_000


class Share(NamedTuple):
    """A terminal's bits by the plans in force, and its fair share, in bits of capacity."""

    planned_bits: int
    fair_bits: int


_NOTHING = Share(0, 0)


class Amounts(Protocol):
    """A plan, as needed here."""

    def amounts(self, from_ms: int, to_ms: int) -> Mapping[str, tuple[int, int]]:
        """Return each terminal's planned and fair bits within a time."""


class Piece(Protocol):
    """A plan with the time in which it was, or will be, the one in force."""

    @property
    def from_ms(self) -> int:
        """Its begin, UTC, ms since the Unix epoch."""

    @property
    def to_ms(self) -> int:
        """Its end; the first ms that is no longer in it."""

    @property
    def plan(self) -> Amounts:
        """The plan."""


class PlanOfModcods(Amounts, Protocol):
    """A plan with the efficiencies that it used."""

    def efficiencies(self) -> Mapping[str, Fraction]:
        """Return the efficiencies of terminals, except those of 1."""


class PieceOfModcods(Piece, Protocol):
    """The same in its time."""

    @property
    def plan(self) -> PlanOfModcods:
        """The plan."""


@dataclass(frozen=True, slots=True)
class Report:
    """A terminal's reports of a period.

    Attributes:
        sent_bits: of capacity (efficiency 1), IP headers and retransmissions included.
        blocked: the link could not be used for some of it.
        complete: reports cover all of it; later reports change nothing.
    """

    sent_bits: int
    blocked: bool
    complete: bool


_NO_REPORT = Report(0, blocked=False, complete=False)

# The start, and the end (excluded), in ms since the Unix epoch.
Interval = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Counted:
    """The amounts counted for a terminal in a period, in bits of capacity."""

    terminal: int
    fair_bits: int
    planned_bits: int
    sent_bits: int
    blocked: bool
    # A part of the period is not reported; in it the terminal is assumed to have followed the plan.
    presumed: bool


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that is known of a period.

    Attributes:
        start_ms: UTC, ms since the Unix epoch.
        end_ms: the same; the first ms that no longer counts.
        shares: of each terminal that a plan in force knew.
        reports: the reports so far.
        blocked: when terminals were observed to be blocked, in order of time.
        heard_ms: when each terminal last reported anything.
        members: the terminals of the beam.
    """

    start_ms: int
    end_ms: int
    shares: Mapping[int, Share]
    reports: Mapping[int, Report]
    blocked: Mapping[int, Sequence[Interval]]
    heard_ms: Mapping[int, int]
    members: Collection[int]


def shares_of(pieces: Iterable[Piece]) -> dict[int, Share]:
    """Return the sum of the shares that consecutive plans gave each terminal."""
    whole = together(
        {
            int(name): Share(planned, fair)
            for name, (planned, fair) in piece.plan.amounts(piece.from_ms, piece.to_ms).items()
        }
        for piece in pieces
    )
    # Amounts up to any time are exact to a bit. So in a time in which a terminal gets less than a
    # bit, rounding may make its amount -1.
    return {
        terminal: share._replace(planned_bits=max(0, share.planned_bits))
        for terminal, share in whole.items()
    }


def efficiencies_of(pieces: Iterable[PieceOfModcods]) -> dict[int, Fraction]:
    """Return the mean efficiencies that consecutive plans used, except those of 1.

    Each is weighted by the capacity that the terminal was given at it: a terminal that sent all
    that it was given sent it at this mean efficiency.
    """
    found: dict[str, list[tuple[int, Fraction]]] = {}
    pieces = tuple(pieces)
    by_piece = [piece.plan.efficiencies() for piece in pieces]
    named = {name for efficiencies in by_piece for name in efficiencies}
    if not named:
        return {}
    for piece, efficiencies in zip(pieces, by_piece, strict=True):
        amounts = piece.plan.amounts(piece.from_ms, piece.to_ms)
        for name in named & amounts.keys():
            efficiency = efficiencies.get(name, Fraction(1))
            found.setdefault(name, []).append((amounts[name][0], efficiency))
    return {int(name): _mean(parts) for name, parts in found.items()}


def _mean(parts: Sequence[tuple[int, Fraction]]) -> Fraction:
    """Return the mean efficiency, weighted by bits of capacity; without any bits, the last one."""
    whole = sum(bits for bits, _ in parts)
    if not whole:
        return parts[-1][1]
    return sum((bits * efficiency for bits, efficiency in parts), Fraction()) / whole


def together(parts: Iterable[Mapping[int, Share]]) -> dict[int, Share]:
    """Return the sums of shares over several times."""
    whole: dict[int, Share] = {}
    for shares in parts:
        for terminal, (planned, fair) in shares.items():
            before = whole.get(terminal, _NOTHING)
            whole[terminal] = Share(before.planned_bits + planned, before.fair_bits + fair)
    return whole


def awaited(ledger: Ledger, known: Evidence, within_ms: int) -> set[int]:
    """Return the terminals whose reports may still come and could change the entries.

    A terminal that has left the beam, or had been silent for `within_ms` when the period began, is
    not awaited. If no plan was in force, none is: nothing could be given.
    """
    if not known.shares:
        return set()
    return {
        terminal
        for terminal in _with_stake(ledger, known.shares)
        if terminal in known.members
        and known.heard_ms.get(terminal, 0) >= known.start_ms - within_ms
        and not (terminal in known.reports and known.reports[terminal].complete)
    }


def unheard(ledger: Ledger, known: Evidence) -> dict[int, list[Interval]]:
    """Return when terminals with a stake were neither heard nor observed to be blocked.

    Up to a terminal's last report, its counters tell how much it sent.
    """
    found = {}
    for terminal in _with_stake(ledger, known.shares):
        report = known.reports.get(terminal)
        if report is None or not report.complete:
            at_ms = known.start_ms
            if report is not None:
                at_ms = max(at_ms, known.heard_ms.get(terminal, 0))
            found[terminal] = list(_without(at_ms, known.end_ms, known.blocked.get(terminal, ())))
    return {terminal: intervals for terminal, intervals in found.items() if intervals}


def count(ledger: Ledger, known: Evidence, presumed: Mapping[int, int]) -> list[Counted]:
    """Return the amounts counted for each terminal in a plan or with a balance.

    Args:
        ledger: as it is settled so far.
        known: the evidence of the period.
        presumed: the bits of capacity that the plans gave terminals while they were `unheard`;
            they are assumed to have sent these.
    """
    counted = []
    for terminal in sorted(known.shares.keys() | _with_stake(ledger, {})):
        planned, fair = known.shares.get(terminal, _NOTHING)
        report = known.reports.get(terminal, _NO_REPORT)
        # For a short time, rounding may make a plan's amount -1.
        sent = report.sent_bits + max(0, presumed.get(terminal, 0))
        blocked = report.blocked or bool(known.blocked.get(terminal))
        counted.append(Counted(terminal, fair, planned, sent, blocked, terminal in presumed))
    return counted


def enter(
    ledger: Ledger, known: Evidence, counted: Iterable[Counted], forgive_after_ms: int | None
) -> list[Entry]:
    """Settle a period, and forgive debts that are too old or of terminals that have left.

    Return the entries, which are applied to the ledger.
    """
    usages = [
        Usage(str(one.terminal), one.fair_bits, one.planned_bits, one.sent_bits, one.blocked)
        for one in counted
    ]
    entries = settle(ledger, known.start_ms, known.end_ms, usages)
    gone = {
        account: abs(bits)
        for account, bits in ledger.balances().items()
        if int(account) not in known.members
    }
    if gone:
        entries.append(ledger.forgive_all(gone, Rule.LEFT, known.end_ms))
        ledger.apply(entries[-1])
    if forgive_after_ms is not None:
        entries += ledger.expire(known.end_ms - forgive_after_ms, known.end_ms)
    return entries


def projected(ledger: Ledger, shares: Mapping[int, Share]) -> dict[int, int]:
    """Return the balances after the plans that are not settled yet, if they are followed.

    A plan made from settled balances alone would lend, or repay, the amounts moved since a second
    time.

    Args:
        ledger: as it is settled.
        shares: of each terminal by the plans in force since then.
    """
    ahead = Ledger(ledger.lots())
    usages = [
        Usage(str(terminal), share.fair_bits, share.planned_bits, share.planned_bits)
        for terminal, share in shares.items()
    ]
    settle(ahead, 0, 0, usages)
    return {int(name): bits for name, bits in ahead.balances().items()}


def _with_stake(ledger: Ledger, shares: Mapping[int, Share]) -> set[int]:
    moved = {
        terminal for terminal, share in shares.items() if share.planned_bits != share.fair_bits
    }
    return moved | {int(name) for name in ledger.balances()}


def _without(from_ms: int, to_ms: int, blocked: Iterable[Interval]) -> Iterator[Interval]:
    for entry_ms, exit_ms in blocked:
        if from_ms < entry_ms:
            yield from_ms, entry_ms
        from_ms = max(from_ms, exit_ms)
    if from_ms < to_ms:
        yield from_ms, to_ms
