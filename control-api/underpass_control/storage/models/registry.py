"""Beams and terminals, as operators define them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import JSON, CheckConstraint, ForeignKey, Index, String
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, first_revision


class Beam(Base):
    """A pool of capacity that its terminals share."""

    __tablename__ = "beam"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    forward_capacity_bps: Mapped[int]
    return_capacity_bps: Mapped[int]
    one_way_delay_ms: Mapped[int]
    # The unit in which fair shares are equal: `symbols` or `bits` (`dama.planner.FairShare`).
    fair_share: Mapped[str] = mapped_column(String(8), default="symbols")
    # The address of the OpenSAND NCC that allocates the return link: `opensand://host:port`.
    opensand: Mapped[str | None] = mapped_column(String(200))
    # The satellite that its terminals use, as obstructions name it; None: obstructions of all
    # satellites count.
    satellite: Mapped[str | None] = mapped_column(String(32))
    # The area in which it is received, as GeoJSON (RFC 7946).
    footprint: Mapped[dict[str, Any] | None] = mapped_column(JSON(none_as_null=True))
    # Rises with every change of it, for conditional requests.
    revision: Mapped[int] = mapped_column(default=first_revision)


class Terminal(Base):
    """A terminal, named by its ipn node number."""

    __tablename__ = "terminal"

    node: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    beam_id: Mapped[str] = mapped_column(ForeignKey("beam.id", ondelete="RESTRICT"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    # SQLite cannot add a foreign key to a table that others refer to, so deleting a tenant checks
    # this column first.
    tenant_id: Mapped[str] = mapped_column(
        String(64), index=True, default="default", server_default="default"
    )
    # When the terminal came from another tenant, which alone sees the records from before; 0:
    # it never moved.
    tenant_since_ms: Mapped[int] = mapped_column(default=0, server_default="0")
    weight: Mapped[int] = mapped_column(default=1)
    forward_minimum_bps: Mapped[int] = mapped_column(default=0)
    forward_maximum_bps: Mapped[int | None]
    return_minimum_bps: Mapped[int] = mapped_column(default=0)
    return_maximum_bps: Mapped[int | None]
    # The gateway that serves it: the one an operator set, otherwise the one its reports came by.
    gateway: Mapped[int | None]
    heard_by: Mapped[int | None]
    # Its former gateway, and when it moved from there; None until a report of its own has come.
    former_gateway: Mapped[int | None]
    moved_ms: Mapped[int | None]
    # Its satellite terminal id at the beam's NCC.
    opensand_id: Mapped[int | None]
    revision: Mapped[int] = mapped_column(default=first_revision)

    __table_args__ = (
        CheckConstraint("weight > 0", "weight"),
        Index("ix_terminal_opensand_id", "beam_id", "opensand_id", unique=True),
    )


class TerminalTag(Base):
    """A word that operators group terminals by."""

    __tablename__ = "terminal_tag"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True
    )
    tag: Mapped[str] = mapped_column(String(32), primary_key=True)

    __table_args__ = (Index("ix_terminal_tag_tag", "tag"),)
