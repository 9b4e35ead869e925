"""Where terminals are, and where they will drive."""

from __future__ import annotations

from typing import Any

from sqlalchemy import ForeignKey, Index
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, first_revision


class Route(Base):
    """The line that a terminal will drive, where that is known."""

    __tablename__ = "route"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    # As a LineString of GeoJSON (RFC 7946).
    geometry: Mapped[dict[str, Any]]
    revision: Mapped[int] = mapped_column(default=first_revision)


class PositionReport(Base):
    """Where a terminal was at a time; a report that comes again changes nothing."""

    __tablename__ = "position_report"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True
    )
    # The time that counts: the node's if its clock is synchronised, else the receiver's.
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

    # Pruned by age, whoever reported.
    __table_args__ = (Index("ix_position_report_time_ms", "time_ms"),)


class RememberedDrive(Base):
    """A drive that a terminal has made: the roads of the map that it took, in order."""

    __tablename__ = "remembered_drive"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True
    )
    number: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    roads: Mapped[list[str]]
    # How often it has been made, as of the last time: what is long ago counts less.
    times: Mapped[float]
    last_ms: Mapped[int]
    # What was driven on each of the roads, in percent of what the map expects, 0 where unknown.
    paces: Mapped[list[int]] = mapped_column(server_default="[]")

    __table_args__ = (Index("ix_remembered_drive_last_ms", "last_ms"),)
