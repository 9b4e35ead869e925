"""Beams, terminals, positions, obstructions, tokens."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "beam",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("forward_capacity_bps", sa.BigInteger(), nullable=False),
        sa.Column("return_capacity_bps", sa.BigInteger(), nullable=False),
        sa.Column("one_way_delay_ms", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_beam"),
    )
    op.create_table(
        "obstruction",
        sa.Column("id", sa.String(length=128), nullable=False),
        sa.Column("source", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=True),
        sa.Column("geometry", sa.JSON(), nullable=False),
        sa.Column("properties", sa.JSON(), nullable=False),
        sa.Column("west", sa.Float(precision=53), nullable=False),
        sa.Column("south", sa.Float(precision=53), nullable=False),
        sa.Column("east", sa.Float(precision=53), nullable=False),
        sa.Column("north", sa.Float(precision=53), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_obstruction"),
    )
    with op.batch_alter_table("obstruction", schema=None) as batch_op:
        batch_op.create_index(
            "ix_obstruction_box", ["west", "south", "east", "north"], unique=False
        )
        batch_op.create_index("ix_obstruction_source", ["source"], unique=False)

    op.create_table(
        "token",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("node", sa.BigInteger(), nullable=True),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=True),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.CheckConstraint("role <> 'terminal' OR node IS NOT NULL", name="ck_token_terminal_node"),
        sa.CheckConstraint(
            "role IN ('viewer', 'operator', 'gateway', 'terminal')", name="ck_token_role"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_token"),
        sa.UniqueConstraint("digest", name="uq_token_digest"),
    )
    op.create_table(
        "terminal",
        sa.Column("node", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("beam_id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("weight", sa.BigInteger(), nullable=False),
        sa.Column("forward_minimum_bps", sa.BigInteger(), nullable=False),
        sa.Column("forward_maximum_bps", sa.BigInteger(), nullable=True),
        sa.Column("return_minimum_bps", sa.BigInteger(), nullable=False),
        sa.Column("return_maximum_bps", sa.BigInteger(), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint("weight > 0", name="ck_terminal_weight"),
        sa.ForeignKeyConstraint(
            ["beam_id"], ["beam.id"], name="fk_terminal_beam_id", ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("node", name="pk_terminal"),
    )
    with op.batch_alter_table("terminal", schema=None) as batch_op:
        batch_op.create_index("ix_terminal_beam_id", ["beam_id"], unique=False)

    op.create_table(
        "position_report",
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("time_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("longitude", sa.Float(precision=53), nullable=False),
        sa.Column("latitude", sa.Float(precision=53), nullable=False),
        sa.Column("speed_mps", sa.Float(precision=53), nullable=True),
        sa.Column("heading_deg", sa.Float(precision=53), nullable=True),
        sa.Column("altitude_m", sa.Float(precision=53), nullable=True),
        sa.Column("gnss_time_ms", sa.BigInteger(), nullable=True),
        sa.Column("node_time_ms", sa.BigInteger(), nullable=True),
        sa.Column("received_ms", sa.BigInteger(), nullable=False),
        sa.Column("clocks_differ", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_position_report_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("terminal", "time_ms", name="pk_position_report"),
    )
    with op.batch_alter_table("position_report", schema=None) as batch_op:
        batch_op.create_index("ix_position_report_time_ms", ["time_ms"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("position_report", schema=None) as batch_op:
        batch_op.drop_index("ix_position_report_time_ms")

    op.drop_table("position_report")
    with op.batch_alter_table("terminal", schema=None) as batch_op:
        batch_op.drop_index("ix_terminal_beam_id")

    op.drop_table("terminal")
    op.drop_table("token")
    with op.batch_alter_table("obstruction", schema=None) as batch_op:
        batch_op.drop_index("ix_obstruction_source")
        batch_op.drop_index("ix_obstruction_box")

    op.drop_table("obstruction")
    op.drop_table("beam")
