"""Positions of terminals, the routes ahead of them, and their past drives."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, first_revision


class Route(Base):
    """The line that a terminal will drive, if known."""

    __tablename__ = "route"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    # A GeoJSON LineString (RFC 7946).
    geometry: Mapped[dict[str, Any]]
    revision: Mapped[int] = mapped_column(default=first_revision)


class PositionReport(Base):
    """A terminal's position at a time; a repeated report changes nothing."""

    __tablename__ = "position_report"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True
    )
    # The time that counts (`dama.prediction.fix.ruling_time`).
    time_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    longitude: Mapped[float]
    latitude: Mapped[float]
    speed_mps: Mapped[float | None]
    heading_deg: Mapped[float | None]
    altitude_m: Mapped[float | None]
    # One standard deviation of the horizontal error.
    accuracy_m: Mapped[float | None]
    gnss_time_ms: Mapped[int | None]
    node_time_ms: Mapped[int | None]
    received_ms: Mapped[int]
    # GNSS and node time are more than 2 s apart.
    clocks_differ: Mapped[bool] = mapped_column(default=False)

    # Pruned by age, for all terminals together.
    __table_args__ = (Index("ix_position_report_time_ms", "time_ms"),)


class RememberedDrive(Base):
    """A past drive of a terminal: the roads of the map that it took, in order."""

    __tablename__ = "remembered_drive"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    roads: Mapped[list[str]]
    # How often it was made, as of the last time; older drives count less.
    times: Mapped[float]
    last_ms: Mapped[int]
    # The speed on each of the roads, in percent of what the map expects, 0 where unknown.
    paces: Mapped[list[int]] = mapped_column(server_default="[]")

    __table_args__ = (Index("ix_remembered_drive_last_ms", "last_ms"),)
