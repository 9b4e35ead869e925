"""Blockages, whether expected, announced or observed, and the obstructions that cause them."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index, String, UniqueConstraint, text
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import FIRST, Base, RowId


class _OfTerminal:
    """A numbered row about a terminal's blockage; deleting the terminal deletes it."""

    id: Mapped[int] = mapped_column(RowId, primary_key=True, sort_order=FIRST)
    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), sort_order=FIRST
    )


class PredictedBlockage(_OfTerminal, Base):
    """An expected blockage, as it was last expected before its entry."""

    __tablename__ = "predicted_blockage"

    obstruction: Mapped[str | None] = mapped_column(String(128))
    entry_ms: Mapped[int]
    exit_ms: Mapped[int]
    confidence: Mapped[float]
    source: Mapped[str] = mapped_column(String(16))
    # When it was first expected, and the time of the fix or announcement that it is based on.
    first_ms: Mapped[int]
    based_on_ms: Mapped[int]
    # The quantiles 0.1 and 0.9 of its entry and exit; None if unknown.
    entry_p10_ms: Mapped[int | None]
    entry_p90_ms: Mapped[int | None]
    exit_p10_ms: Mapped[int | None]
    exit_p90_ms: Mapped[int | None]
    state: Mapped[str] = mapped_column(String(16))

    __table_args__ = (
        Index("ix_predicted_blockage_terminal_entry_ms", "terminal", "entry_ms"),
        Index("ix_predicted_blockage_entry_ms", "entry_ms"),
        # Only a few of all rows are of blockages still to come.
        Index(
            "ix_predicted_blockage_ahead",
            "terminal",
            postgresql_where=text("state = 'predicted'"),
            sqlite_where=text("state = 'predicted'"),
        ),
    )


class Blockage(_OfTerminal, Base):
    """A blockage that a node observed on a link on which it sends."""

    __tablename__ = "blockage"

    link: Mapped[str] = mapped_column(String(8))
    path: Mapped[str] = mapped_column(String(128))
    entry_ms: Mapped[int]
    # None while it lasts.
    exit_ms: Mapped[int | None]
    # Whether the node reported the exit. If not, it is inferred from a later report, in which the
    # path was up or absent.
    exit_reported: Mapped[bool]
    source: Mapped[str] = mapped_column(String(16))
    received_ms: Mapped[int]
    # The expected blockage that it matches, and by how much that was expected too late.
    predicted: Mapped[int | None] = mapped_column(
        ForeignKey("predicted_blockage.id", ondelete="SET NULL"), index=True
    )
    entry_error_ms: Mapped[int | None]
    exit_error_ms: Mapped[int | None]

    __table_args__ = (
        UniqueConstraint("terminal", "link", "path", "entry_ms"),
        Index("ix_blockage_entry_ms", "entry_ms"),
        Index(
            "ix_blockage_lasting",
            "terminal",
            postgresql_where=text("exit_ms IS NULL"),
            sqlite_where=text("exit_ms IS NULL"),
        ),
    )


class Announcement(_OfTerminal, Base):
    """A blockage ahead that a terminal itself recognised."""

    __tablename__ = "announcement"

    announced_ms: Mapped[int]
    entry_ms: Mapped[int]
    duration_ms: Mapped[int]
    confidence: Mapped[float]
    obstruction: Mapped[str | None] = mapped_column(String(128))
    received_ms: Mapped[int]

    __table_args__ = (
        UniqueConstraint("terminal", "announced_ms", "entry_ms"),
        Index("ix_announcement_entry_ms", "entry_ms"),
    )


class Obstruction(Base):
    """An object that may cut the line of sight: a road tunnel's axis and approaches, or an area."""

    __tablename__ = "obstruction"

    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    source: Mapped[str] = mapped_column(String(64), index=True)
    name: Mapped[str | None] = mapped_column(String(200))
    # GeoJSON (RFC 7946).
    geometry: Mapped[dict[str, Any]]
    properties: Mapped[dict[str, Any]]
    west: Mapped[float]
    south: Mapped[float]
    east: Mapped[float]
    north: Mapped[float]
    # Which strip of the map the box is in (`storage/boxes.py`); the default is for migrations.
    strip: Mapped[int] = mapped_column(server_default="0")
    # Since when no loss has confirmed a learned one, or since its counts were halved for that; None
    # until the next pruning after a loss, and for all others.
    unconfirmed_since_ms: Mapped[int | None]

    __table_args__ = (
        # With all that parts of the map are searched by.
        Index("ix_obstruction_strip", "strip", "west", "south", "east", "north", "id"),
    )


class ObstructionCount(Base):
    """How often a terminal's link was lost at an obstruction of the map, and how often it held.

    The obstruction may be absent for a while, when its map is imported anew.
    """

    __tablename__ = "obstruction_count"

    obstruction: Mapped[str] = mapped_column(String(128), primary_key=True)
    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True, index=True
    )
    # As of the last time; older passages count less.
    lost: Mapped[float]
    held: Mapped[float]
    last_ms: Mapped[int]

    __table_args__ = (Index("ix_obstruction_count_last_ms", "last_ms"),)
