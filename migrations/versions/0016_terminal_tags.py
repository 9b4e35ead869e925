"""Tags of terminals."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0016"
down_revision = "0015"


def upgrade() -> None:
    op.create_table(
        "terminal_tag",
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("tag", sa.String(length=32), nullable=False),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_terminal_tag_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("terminal", "tag", name="pk_terminal_tag"),
    )
    op.create_index("ix_terminal_tag_tag", "terminal_tag", ["tag"])


def downgrade() -> None:
    op.drop_table("terminal_tag")
