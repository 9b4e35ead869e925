"""Nodes' reports about the links of terminals."""

from __future__ import annotations

from sqlalchemy import Index, String, Text
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, OfTerminalLink


class LinkState(OfTerminalLink, Base):
    """The state of a terminal's link in one direction, by the newest report."""

    __tablename__ = "link_state"

    # The reporting node. Its reports are ordered by incarnation, then by uptime.
    node: Mapped[int]
    incarnation: Mapped[int]
    uptime_ms: Mapped[int]
    time_ms: Mapped[int]
    received_ms: Mapped[int]
    # The gateway that sent the report here.
    gateway: Mapped[int]
    path: Mapped[str] = mapped_column(String(128))
    state: Mapped[str] = mapped_column(String(8))
    # Counters since the node's start.
    offered_bytes: Mapped[int]
    sent_bytes: Mapped[int]
    backlogged_bytes: Mapped[int]
    streams: Mapped[int]
    rate_bps: Mapped[int | None]
    # The version of the plan in force.
    plan: Mapped[int | None]
    # Bits per unit of the beam's capacity, and whether a modem or an operator set it.
    efficiency: Mapped[float] = mapped_column(default=1.0)
    efficiency_told: Mapped[bool] = mapped_column(default=False)
    # The link's capacity as the node measured it, in bit/s of IP bytes, and the basis of that.
    capacity_bps: Mapped[int | None]
    capacity_reason: Mapped[str | None] = mapped_column(String(128))
    # How far the node's clock is ahead, and whether that clock is synchronised.
    clock_offset_ms: Mapped[int | None]
    synchronised: Mapped[bool]
    # Further figures as JSON, which plans do not use. They are only shown, never queried.
    figures: Mapped[str | None] = mapped_column(Text)


class LinkUsage(OfTerminalLink, Base):
    """The reports of one run of a node about a link within 10 s: counters, not differences.

    It has the first and the last report of that time, and masks of its seconds. These are merged
    by minimum, maximum and bitwise or, so reports may come in any order, and repeatedly.
    """

    __tablename__ = "link_usage"

    start_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    node: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    incarnation: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    path: Mapped[str] = mapped_column(String(128), primary_key=True)
    first_uptime_ms: Mapped[int]
    first_time_ms: Mapped[int]
    first_sent_bytes: Mapped[int]
    first_offered_bytes: Mapped[int]
    last_uptime_ms: Mapped[int]
    last_time_ms: Mapped[int]
    last_sent_bytes: Mapped[int]
    last_offered_bytes: Mapped[int]
    # Bit n of `seen`: there was a report in second n; of `blocked`: one that could not send.
    seen: Mapped[int]
    blocked: Mapped[int]
    # The values of the last report.
    efficiency: Mapped[float]
    efficiency_told: Mapped[bool] = mapped_column(default=False)
    capacity_bps: Mapped[int | None]
    capacity_reason: Mapped[str | None] = mapped_column(String(128))

    # Pruned by age.
    __table_args__ = (Index("ix_link_usage_start_ms", "start_ms"),)
