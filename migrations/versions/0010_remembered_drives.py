"""The drives that are remembered of terminals."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    op.create_table(
        "remembered_drive",
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("number", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("roads", sa.JSON(), nullable=False),
        sa.Column("times", sa.Float(53), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["terminal"],
            ["terminal.node"],
            name="fk_remembered_drive_terminal",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("terminal", "number", name="pk_remembered_drive"),
    )
    op.create_index("ix_remembered_drive_last_ms", "remembered_drive", ["last_ms"])


def downgrade() -> None:
    op.drop_table("remembered_drive")
