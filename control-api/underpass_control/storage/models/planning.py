"""The capacity of a beam's links, the process that plans them, and the plans."""

from __future__ import annotations

from sqlalchemy import ForeignKey, ForeignKeyConstraint, Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, OfBeamLink, OfNamedLink


class CapacityStep(OfBeamLink, Base):
    """A link's capacity from a time on; before the first step, the beam's own figure holds."""

    __tablename__ = "capacity_step"

    from_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rate_bps: Mapped[int]


class Lease(Base):
    """The process that plans a beam, and until when, by the database's clock."""

    __tablename__ = "lease"

    beam_id: Mapped[str] = mapped_column(
        ForeignKey("beam.id", ondelete="CASCADE"), primary_key=True
    )
    holder: Mapped[str] = mapped_column(String(128))
    # Rises with every new holder, so that writes of a former one can be refused.
    fence: Mapped[int]
    until_ms: Mapped[int]


class Plan(OfBeamLink, Base):
    """A plan of a link of a beam; never changed after it is stored."""

    __tablename__ = "plan"

    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    issued_ms: Mapped[int]
    start_ms: Mapped[int]
    end_ms: Mapped[int]
    # The fence of the lease under which it was made.
    fence: Mapped[int]
    # Why the plan was made.
    reason: Mapped[str] = mapped_column(String(32))
    # As `dama.planner.text` writes it.
    document: Mapped[str] = mapped_column(Text())

    __table_args__ = (
        Index("ix_plan_start_ms", "beam_id", "link", "start_ms"),
        # Pruned by age.
        Index("ix_plan_end_ms", "end_ms"),
    )


class Acknowledgement(OfNamedLink, Base):
    """A node's confirmation that it applied a plan."""

    __tablename__ = "acknowledgement"

    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    applied_ms: Mapped[int]

    __table_args__ = (
        ForeignKeyConstraint(
            ["beam_id", "link", "version"],
            ["plan.beam_id", "plan.link", "plan.version"],
            ondelete="CASCADE",
            name="fk_acknowledgement_plan",
        ),
    )
