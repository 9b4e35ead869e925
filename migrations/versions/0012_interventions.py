"""What operators set against the planner for a time."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "intervention",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("beam_id", sa.String(length=64), nullable=True),
        sa.Column("terminal", sa.BigInteger(), nullable=True),
        sa.Column("from_ms", sa.BigInteger(), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("forward_bps", sa.BigInteger(), nullable=True),
        sa.Column("return_bps", sa.BigInteger(), nullable=True),
        sa.Column("obstruction", sa.String(length=128), nullable=True),
        sa.Column("entry_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_ms", sa.BigInteger(), nullable=True),
        sa.Column("note", sa.String(length=200), nullable=True),
        sa.Column("set_by", sa.String(length=200), nullable=False),
        sa.Column("set_ms", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "(beam_id IS NULL) <> (terminal IS NULL)", name="ck_intervention_target"
        ),
        sa.CheckConstraint("from_ms < until_ms", name="ck_intervention_times"),
        sa.ForeignKeyConstraint(
            ["beam_id"], ["beam.id"], name="fk_intervention_beam_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_intervention_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_intervention"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_intervention_beam_id", "intervention", ["beam_id", "until_ms"])
    op.create_index("ix_intervention_terminal", "intervention", ["terminal", "until_ms"])
    op.create_index("ix_intervention_until_ms", "intervention", ["until_ms"])


def downgrade() -> None:
    op.drop_table("intervention")
