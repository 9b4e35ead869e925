"""What a provider sets of terminals from afar, and what has become of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0017"
down_revision = "0016"


def upgrade() -> None:
    op.create_table(
        "terminal_settings",
        sa.Column("terminal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("set_ms", sa.BigInteger(), nullable=False),
        sa.Column("reported_version", sa.BigInteger(), nullable=True),
        sa.Column("applied", sa.Boolean(), nullable=True),
        sa.Column("reason", sa.String(length=1000), nullable=True),
        sa.Column("reported_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["terminal"],
            ["terminal.node"],
            name="fk_terminal_settings_terminal_terminal",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("terminal", name="pk_terminal_settings"),
    )


def downgrade() -> None:
    op.drop_table("terminal_settings")
