"""Temporary settings by which operators overrule the planner."""

from __future__ import annotations

from sqlalchemy import CheckConstraint, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, RowId


class Intervention(Base):
    """A freeze, set rate, maintenance window or withdrawn blockage, of a beam or a terminal."""

    __tablename__ = "intervention"

    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    # A value of `underpass_control.planning.interventions.Kind`.
    kind: Mapped[str] = mapped_column(String(16))
    beam_id: Mapped[str | None] = mapped_column(ForeignKey("beam.id", ondelete="CASCADE"))
    terminal: Mapped[int | None] = mapped_column(ForeignKey("terminal.node", ondelete="CASCADE"))
    from_ms: Mapped[int]
    until_ms: Mapped[int]
    # For a rate: the terminal's rate. For a beam's maintenance: the capacity that remains.
    forward_bps: Mapped[int | None]
    return_bps: Mapped[int | None]
    # For a withdrawal: the blockage as last predicted.
    obstruction: Mapped[str | None] = mapped_column(String(128))
    entry_ms: Mapped[int | None]
    exit_ms: Mapped[int | None]
    note: Mapped[str | None] = mapped_column(String(200))
    # Who set it or last changed it, and when.
    set_by: Mapped[str] = mapped_column(String(200))
    set_ms: Mapped[int]
    # Rises with every change by an operator, for conditional requests.
    revision: Mapped[int] = mapped_column(default=1)

    __table_args__ = (
        CheckConstraint("(beam_id IS NULL) <> (terminal IS NULL)", "target"),
        CheckConstraint("from_ms < until_ms", "times"),
        Index("ix_intervention_beam_id", "beam_id", "until_ms"),
        Index("ix_intervention_terminal", "terminal", "until_ms"),
        Index("ix_intervention_until_ms", "until_ms"),
        # Ids are never reused: a caller may still send the ETag of a deleted intervention.
        {"sqlite_autoincrement": True},
    )
