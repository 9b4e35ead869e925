"""Entries: the ledger's records, which never change."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from enum import StrEnum


class LedgerError(ValueError):
    """An entry that is refused, with the reason."""


class Kind(StrEnum):
    """Why an entry was made."""

    SETTLED = "settled"
    FORGIVEN = "forgiven"


class Rule(StrEnum):
    """The rules by which debts are forgiven; there are no others.

    UNUSED: it was offered in repayment while the link was up, and the creditor left it unused.
    EXPIRED: it is older than debts may get.
    LEFT: the terminal has left the beam.
    OPERATOR: an operator decided so.
    """

    UNUSED = "unused"
    EXPIRED = "expired"
    LEFT = "left"
    OPERATOR = "operator"


@dataclass(frozen=True, slots=True)
class Lot:
    """A part of a balance with its age.

    Attributes:
        since_ms: UTC, ms since the Unix epoch: when it arose.
        bits: of capacity; above 0 the account is owed them, below it owes them.
    """

    since_ms: int
    bits: int


@dataclass(frozen=True, slots=True)
class Posting:
    """One account's side of an entry: above 0 it is owed so many bits of capacity more."""

    account: str
    bits: int


@dataclass(frozen=True, slots=True)
class Entry:
    """The amounts that changed hands in a period. Its postings sum to zero.

    Attributes:
        from_ms: UTC, ms since the Unix epoch.
        to_ms: the same; the first ms that no longer counts.
        kind: why it was made.
        rule: the rule by which it was forgiven; None for other kinds.
        postings: at most one for each account.

    Raises:
        LedgerError: if the postings do not sum to zero, or an account is there twice.
    """

    from_ms: int
    to_ms: int
    kind: Kind
    postings: tuple[Posting, ...]
    rule: Rule | None = None

    def __post_init__(self) -> None:
        if sum(posting.bits for posting in self.postings):
            raise LedgerError("the postings of an entry do not sum to zero")
        accounts = Counter(posting.account for posting in self.postings)
        if accounts and max(accounts.values()) > 1:
            raise LedgerError(f"account {accounts.most_common(1)[0][0]} is in an entry twice")
        if (self.kind is Kind.FORGIVEN) != (self.rule is not None):
            raise LedgerError("what is forgiven, and nothing else, needs a rule")
        if self.from_ms > self.to_ms:
            raise LedgerError("an entry ends before it begins")
