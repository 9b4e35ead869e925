"""Beams whose return link an OpenSAND NCC shares out."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    # Not in batches, as 0002 says.
    op.add_column("beam", sa.Column("opensand", sa.String(length=200), nullable=True))
    op.add_column("terminal", sa.Column("opensand_id", sa.BigInteger(), nullable=True))
    op.create_index("ix_terminal_opensand_id", "terminal", ["beam_id", "opensand_id"], unique=True)


def downgrade() -> None:
    op.drop_index("ix_terminal_opensand_id", table_name="terminal")
    op.drop_column("terminal", "opensand_id")
    op.drop_column("beam", "opensand")
