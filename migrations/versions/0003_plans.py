"""Capacity over time, leases, plans and their acknowledgements."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    op.create_table(
        "capacity_step",
        sa.Column("beam_id", sa.String(length=64), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("from_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("rate_bps", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["beam_id"], ["beam.id"], name="fk_capacity_step_beam_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("beam_id", "link", "from_ms", name="pk_capacity_step"),
    )
    op.create_table(
        "lease",
        sa.Column("beam_id", sa.String(length=64), nullable=False),
        sa.Column("holder", sa.String(length=128), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["beam_id"], ["beam.id"], name="fk_lease_beam_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("beam_id", name="pk_lease"),
    )
    op.create_table(
        "plan",
        sa.Column("beam_id", sa.String(length=64), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("issued_ms", sa.BigInteger(), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), nullable=False),
        sa.Column("end_ms", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.String(length=32), nullable=False),
        sa.Column("document", sa.Text(), nullable=False),
        sa.ForeignKeyConstraint(
            ["beam_id"], ["beam.id"], name="fk_plan_beam_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("beam_id", "link", "version", name="pk_plan"),
    )
    with op.batch_alter_table("plan", schema=None) as batch_op:
        batch_op.create_index("ix_plan_start_ms", ["beam_id", "link", "start_ms"], unique=False)
        batch_op.create_index("ix_plan_end_ms", ["end_ms"], unique=False)

    op.create_table(
        "acknowledgement",
        sa.Column("beam_id", sa.String(length=64), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("version", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("applied_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["beam_id", "link", "version"],
            ["plan.beam_id", "plan.link", "plan.version"],
            name="fk_acknowledgement_plan",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("beam_id", "link", "version", "node", name="pk_acknowledgement"),
    )


def downgrade() -> None:
    op.drop_table("acknowledgement")
    with op.batch_alter_table("plan", schema=None) as batch_op:
        batch_op.drop_index("ix_plan_end_ms")
        batch_op.drop_index("ix_plan_start_ms")

    op.drop_table("plan")
    op.drop_table("lease")
    op.drop_table("capacity_step")
