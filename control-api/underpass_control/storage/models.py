"""The tables: SQLite and PostgreSQL have the same ones.

Times are integer milliseconds since the Unix epoch, rates bit/s, amounts bits, positions WGS 84 in
degrees, speeds m/s, headings degrees from true north.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    JSON,
    BigInteger,
    CheckConstraint,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

# Constraints need names to be changed by a migration, on SQLite above all.
_NAMES = {
    "ix": "ix_%(column_0_label)s",
    "uq": "uq_%(table_name)s_%(column_0_name)s",
    "ck": "ck_%(table_name)s_%(constraint_name)s",
    "fk": "fk_%(table_name)s_%(column_0_name)s",
    "pk": "pk_%(table_name)s",
}
# SQLite counts rows up by themselves only in a column of exactly this type.
_RowId = BigInteger().with_variant(Integer(), "sqlite")


class Base(DeclarativeBase):
    """All tables."""

    metadata = MetaData(naming_convention=_NAMES)
    type_annotation_map = {int: BigInteger, float: Float(53), dict[str, Any]: JSON}  # noqa: RUF012


class Beam(Base):
    """A pool of capacity that its terminals share."""

    __tablename__ = "beam"

    id: Mapped[str] = mapped_column(String(64), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    forward_capacity_bps: Mapped[int]
    return_capacity_bps: Mapped[int]
    one_way_delay_ms: Mapped[int]
    # Rises with every change of it, for conditional requests.
    revision: Mapped[int] = mapped_column(default=1)


class Terminal(Base):
    """A terminal, named by its ipn node number."""

    __tablename__ = "terminal"

    node: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    beam_id: Mapped[str] = mapped_column(ForeignKey("beam.id", ondelete="RESTRICT"), index=True)
    name: Mapped[str] = mapped_column(String(200))
    weight: Mapped[int] = mapped_column(default=1)
    forward_minimum_bps: Mapped[int] = mapped_column(default=0)
    forward_maximum_bps: Mapped[int | None]
    return_minimum_bps: Mapped[int] = mapped_column(default=0)
    return_maximum_bps: Mapped[int | None]
    revision: Mapped[int] = mapped_column(default=1)

    __table_args__ = (CheckConstraint("weight > 0", "weight"),)


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
    gnss_time_ms: Mapped[int | None]
    node_time_ms: Mapped[int | None]
    received_ms: Mapped[int]
    # GNSS and node time are more than 2 s apart.
    clocks_differ: Mapped[bool] = mapped_column(default=False)

    # Pruned by age, whoever reported.
    __table_args__ = (Index("ix_position_report_time_ms", "time_ms"),)


class Obstruction(Base):
    """What may cut the line of sight: a line (a road tunnel's axis with its approaches) or area."""

    __tablename__ = "obstruction"

    id: Mapped[str] = mapped_column(String(128), primary_key=True)
    source: Mapped[str] = mapped_column(String(64), index=True)
    name: Mapped[str | None] = mapped_column(String(200))
    # As GeoJSON (RFC 7946).
    geometry: Mapped[dict[str, Any]]
    properties: Mapped[dict[str, Any]]
    west: Mapped[float]
    south: Mapped[float]
    east: Mapped[float]
    north: Mapped[float]

    __table_args__ = (Index("ix_obstruction_box", "west", "south", "east", "north"),)


class Token(Base):
    """A bearer token; only its SHA-256 is kept, which is enough for 256 random bits."""

    __tablename__ = "token"

    id: Mapped[int] = mapped_column(_RowId, primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    digest: Mapped[bytes] = mapped_column(LargeBinary(32), unique=True)
    role: Mapped[str] = mapped_column(String(16))
    # The node that a terminal's or gateway's token is for.
    node: Mapped[int | None]
    created_ms: Mapped[int]
    expires_ms: Mapped[int | None]
    revoked_ms: Mapped[int | None]

    __table_args__ = (
        CheckConstraint("role IN ('viewer', 'operator', 'gateway', 'terminal')", "role"),
        CheckConstraint("role <> 'terminal' OR node IS NOT NULL", "terminal_node"),
    )
