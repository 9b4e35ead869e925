"""How often terminals lost their links in the map's shadows, and how often they held."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0032"
down_revision = "0031"


def upgrade() -> None:
    op.create_table(
        "obstruction_count",
        sa.Column("obstruction", sa.String(length=128), nullable=False),
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("lost", sa.Float(53), nullable=False),
        sa.Column("held", sa.Float(53), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["terminal"],
            ["terminal.node"],
            name="fk_obstruction_count_terminal",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("obstruction", "terminal", name="pk_obstruction_count"),
    )
    op.create_index("ix_obstruction_count_last_ms", "obstruction_count", ["last_ms"])
    # A deleted terminal's rows are found by it.
    op.create_index("ix_obstruction_count_terminal", "obstruction_count", ["terminal"])


def downgrade() -> None:
    op.drop_table("obstruction_count")
