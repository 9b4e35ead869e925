"""The debts between terminals, and how far they are settled."""

from __future__ import annotations

from sqlalchemy import BigInteger, CheckConstraint, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, OfBeamLink, OfNamedLink, RowId


class LedgerEntry(Base):
    """The amounts that changed hands in a period; written once, never changed, deleted when old.

    It has no foreign keys: the ledger outlives the beams and terminals that it names.
    """

    __tablename__ = "ledger_entry"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    beam_id: Mapped[str] = mapped_column(String(64))
    link: Mapped[str] = mapped_column(String(8))
    from_ms: Mapped[int]
    # The first ms that no longer counts.
    to_ms: Mapped[int]
    kind: Mapped[str] = mapped_column(String(16))
    # The rule by which debts were forgiven.
    rule: Mapped[str | None] = mapped_column(String(16))
    # An operator's reason, and the name of the token.
    reason: Mapped[str | None] = mapped_column(String(200))
    made_by: Mapped[str | None] = mapped_column(String(200))

    __table_args__ = (
        CheckConstraint("link IN ('forward', 'return')", "link"),
        CheckConstraint("(kind = 'forgiven') = (rule IS NOT NULL)", "rule"),
        CheckConstraint("from_ms <= to_ms", "period"),
        Index("ix_ledger_entry_beam_id", "beam_id", "from_ms", "id"),
    )


class LedgerPosting(Base):
    """One terminal's side of an entry: above 0 it is owed that many more bits of capacity."""

    __tablename__ = "ledger_posting"

    entry_id: Mapped[int] = mapped_column(
        BigInteger, ForeignKey("ledger_entry.id", ondelete="RESTRICT"), primary_key=True
    )
    terminal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    bits: Mapped[int]

    __table_args__ = (Index("ix_ledger_posting_terminal", "terminal", "entry_id"),)


class LedgerLot(OfNamedLink, Base):
    """A part of a terminal's balance with its age; the entries' result, stored for quick access."""

    __tablename__ = "ledger_lot"

    terminal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    since_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    bits: Mapped[int]


class LedgerOpening(OfNamedLink, Base):
    """The lots left by a link's deleted entries, on which its first remaining entry builds."""

    __tablename__ = "ledger_opening"

    terminal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    since_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    bits: Mapped[int]


class Settled(OfBeamLink, Base):
    """How far a link of a beam is settled. A writer of its ledger changes this row first.

    Deleting the beam deletes it, along with the leases whose fences it records.
    """

    __tablename__ = "settled"

    until_ms: Mapped[int]
    # The highest fence that has settled; a lower one belongs to a lease that has ended.
    fence: Mapped[int]
    # Rises with every change to this link's ledger.
    revision: Mapped[int]


class SettledUsage(OfNamedLink, Base):
    """A settlement's figures for a terminal in a period of 10 s, in bits of capacity."""

    __tablename__ = "settled_usage"

    start_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    terminal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    fair_bits: Mapped[int]
    planned_bits: Mapped[int]
    sent_bits: Mapped[int]
    blocked: Mapped[bool]
    # No report covered what was sent, so it is taken to be what the plan gave.
    presumed: Mapped[bool]

    # Pruned by age.
    __table_args__ = (Index("ix_settled_usage_start_ms", "start_ms"),)
