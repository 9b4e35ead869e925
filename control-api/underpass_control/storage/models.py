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
    ForeignKeyConstraint,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Text,
    UniqueConstraint,
    text,
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
    # Where an OpenSAND NCC shares out the return link: `opensand://host:port`.
    opensand: Mapped[str | None] = mapped_column(String(200))
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
    # The gateway that serves it: as an operator says, else the one that its reports came by.
    gateway: Mapped[int | None]
    heard_by: Mapped[int | None]
    # The satellite terminal that it is to the beam's NCC.
    opensand_id: Mapped[int | None]
    revision: Mapped[int] = mapped_column(default=1)

    __table_args__ = (
        CheckConstraint("weight > 0", "weight"),
        Index("ix_terminal_opensand_id", "beam_id", "opensand_id", unique=True),
    )


class Route(Base):
    """The line that a terminal will drive, where that is known."""

    __tablename__ = "route"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True, autoincrement=False
    )
    # As a LineString of GeoJSON (RFC 7946).
    geometry: Mapped[dict[str, Any]]
    revision: Mapped[int] = mapped_column(default=1)


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


class LinkState(Base):
    """What a direction of a terminal's link does: the newest report of it."""

    __tablename__ = "link_state"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True
    )
    link: Mapped[str] = mapped_column(String(8), primary_key=True)
    # Whose report it is: of a higher incarnation, or of the same and a higher uptime, is later.
    node: Mapped[int]
    incarnation: Mapped[int]
    uptime_ms: Mapped[int]
    time_ms: Mapped[int]
    received_ms: Mapped[int]
    # The gateway that sent the report here.
    gateway: Mapped[int]
    path: Mapped[str] = mapped_column(String(128))
    state: Mapped[str] = mapped_column(String(8))
    # Counts since the node's start.
    offered_bytes: Mapped[int]
    sent_bytes: Mapped[int]
    backlogged_bytes: Mapped[int]
    streams: Mapped[int]
    rate_bps: Mapped[int | None]
    # The version of the plan in force.
    plan: Mapped[int | None]
    # Bits per unit of the beam's capacity.
    efficiency: Mapped[float] = mapped_column(default=1.0)
    # How far the node's clock is ahead, and whether it is synchronised by itself.
    clock_offset_ms: Mapped[int | None]
    synchronised: Mapped[bool]


class LinkUsage(Base):
    """What the reports of one run of a node say of a link within 10 s: counts, not differences.

    The first and the last report of the time, and masks of its seconds: they are merged by least,
    greatest and or, so that reports may come in any order, and again.
    """

    __tablename__ = "link_usage"

    terminal: Mapped[int] = mapped_column(
        ForeignKey("terminal.node", ondelete="CASCADE"), primary_key=True
    )
    link: Mapped[str] = mapped_column(String(8), primary_key=True)
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
    # Bit n: there was a report in second n; there was one that could not send.
    seen: Mapped[int]
    blocked: Mapped[int]
    # As the last report has it.
    efficiency: Mapped[float]

    # Pruned by age.
    __table_args__ = (Index("ix_link_usage_start_ms", "start_ms"),)


class PredictedBlockage(Base):
    """A blockage that was expected, as it was last expected before it came."""

    __tablename__ = "predicted_blockage"

    id: Mapped[int] = mapped_column(_RowId, primary_key=True)
    terminal: Mapped[int] = mapped_column(ForeignKey("terminal.node", ondelete="CASCADE"))
    obstruction: Mapped[str | None] = mapped_column(String(128))
    entry_ms: Mapped[int]
    exit_ms: Mapped[int]
    confidence: Mapped[float]
    source: Mapped[str] = mapped_column(String(16))
    # When it was first expected, and the fix or announcement that it goes back to.
    first_ms: Mapped[int]
    based_on_ms: Mapped[int]
    state: Mapped[str] = mapped_column(String(16))

    __table_args__ = (
        Index("ix_predicted_blockage_terminal_entry_ms", "terminal", "entry_ms"),
        Index("ix_predicted_blockage_entry_ms", "entry_ms"),
        # Of all that there ever were, few are still to come.
        Index(
            "ix_predicted_blockage_ahead",
            "terminal",
            postgresql_where=text("state = 'predicted'"),
            sqlite_where=text("state = 'predicted'"),
        ),
    )


class Blockage(Base):
    """A blockage that a node has observed on a link that it sends on."""

    __tablename__ = "blockage"

    id: Mapped[int] = mapped_column(_RowId, primary_key=True)
    terminal: Mapped[int] = mapped_column(ForeignKey("terminal.node", ondelete="CASCADE"))
    link: Mapped[str] = mapped_column(String(8))
    path: Mapped[str] = mapped_column(String(128))
    entry_ms: Mapped[int]
    # None while it lasts.
    exit_ms: Mapped[int | None]
    # Whether the node itself has said so; else the link was seen to be up again.
    exit_reported: Mapped[bool]
    source: Mapped[str] = mapped_column(String(16))
    received_ms: Mapped[int]
    # What was expected of it, and by how much too late.
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


class Announcement(Base):
    """A blockage ahead that a terminal has recognised itself."""

    __tablename__ = "announcement"

    id: Mapped[int] = mapped_column(_RowId, primary_key=True)
    terminal: Mapped[int] = mapped_column(ForeignKey("terminal.node", ondelete="CASCADE"))
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


class CapacityStep(Base):
    """What a link of a beam carries from a time on; before the first step, what the beam says."""

    __tablename__ = "capacity_step"

    beam_id: Mapped[str] = mapped_column(
        ForeignKey("beam.id", ondelete="CASCADE"), primary_key=True
    )
    link: Mapped[str] = mapped_column(String(8), primary_key=True)
    from_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    rate_bps: Mapped[int]


class Lease(Base):
    """Which process plans a beam, and until when, by the database's clock."""

    __tablename__ = "lease"

    beam_id: Mapped[str] = mapped_column(
        ForeignKey("beam.id", ondelete="CASCADE"), primary_key=True
    )
    holder: Mapped[str] = mapped_column(String(128))
    # Rises with every holder: what a former one writes is told by it.
    fence: Mapped[int]
    until_ms: Mapped[int]


class Plan(Base):
    """A plan of a link of a beam; never changed once it is there."""

    __tablename__ = "plan"

    beam_id: Mapped[str] = mapped_column(
        ForeignKey("beam.id", ondelete="CASCADE"), primary_key=True
    )
    link: Mapped[str] = mapped_column(String(8), primary_key=True)
    version: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    issued_ms: Mapped[int]
    start_ms: Mapped[int]
    end_ms: Mapped[int]
    # Of the holder of the lease that made it.
    fence: Mapped[int]
    # Why there is a new one.
    reason: Mapped[str] = mapped_column(String(32))
    # As `dama.planner.text` writes it.
    document: Mapped[str] = mapped_column(Text())

    __table_args__ = (
        Index("ix_plan_start_ms", "beam_id", "link", "start_ms"),
        # Pruned by age.
        Index("ix_plan_end_ms", "end_ms"),
    )


class Acknowledgement(Base):
    """A node has taken a plan over."""

    __tablename__ = "acknowledgement"

    beam_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    link: Mapped[str] = mapped_column(String(8), primary_key=True)
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


class LedgerEntry(Base):
    """What changed hands in a period; written once and never changed.

    No foreign keys: the ledger outlives the beams and terminals that it tells of.
    """

    __tablename__ = "ledger_entry"

    id: Mapped[int] = mapped_column(_RowId, primary_key=True)
    beam_id: Mapped[str] = mapped_column(String(64))
    link: Mapped[str] = mapped_column(String(8))
    from_ms: Mapped[int]
    # The first ms that no longer counts.
    to_ms: Mapped[int]
    kind: Mapped[str] = mapped_column(String(16))
    # By which debts were forgiven.
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
    """One terminal's side of an entry: above 0 it is owed so many bits of capacity more."""

    __tablename__ = "ledger_posting"

    entry_id: Mapped[int] = mapped_column(
        BigInteger, ForeignKey("ledger_entry.id", ondelete="RESTRICT"), primary_key=True
    )
    terminal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    bits: Mapped[int]

    __table_args__ = (Index("ix_ledger_posting_terminal", "terminal", "entry_id"),)


class LedgerLot(Base):
    """A part of a terminal's balance with its age: what all entries come to, kept at hand."""

    __tablename__ = "ledger_lot"

    beam_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    link: Mapped[str] = mapped_column(String(8), primary_key=True)
    terminal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    since_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    bits: Mapped[int]


class Settled(Base):
    """How far a link of a beam is settled. Whoever writes its ledger changes this row first.

    It goes with the beam, as the leases do whose fences it knows.
    """

    __tablename__ = "settled"

    beam_id: Mapped[str] = mapped_column(
        ForeignKey("beam.id", ondelete="CASCADE"), primary_key=True
    )
    link: Mapped[str] = mapped_column(String(8), primary_key=True)
    until_ms: Mapped[int]
    # The highest that has settled: a lower one is of a lease that is over.
    fence: Mapped[int]
    # Rises with every change of this link's ledger.
    revision: Mapped[int]


class SettledUsage(Base):
    """What a settlement counted for a terminal in a period of 10 s, in bits of capacity."""

    __tablename__ = "settled_usage"

    beam_id: Mapped[str] = mapped_column(String(64), primary_key=True)
    link: Mapped[str] = mapped_column(String(8), primary_key=True)
    start_ms: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    terminal: Mapped[int] = mapped_column(primary_key=True, autoincrement=False)
    fair_bits: Mapped[int]
    planned_bits: Mapped[int]
    sent_bits: Mapped[int]
    blocked: Mapped[bool]
    # No report said what was sent: it is what the plan gave it.
    presumed: Mapped[bool]

    # Pruned by age.
    __table_args__ = (Index("ix_settled_usage_start_ms", "start_ms"),)
