"""What deleted entries of the ledger came to."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    op.create_table(
        "ledger_opening",
        sa.Column("beam_id", sa.String(64), nullable=False),
        sa.Column("link", sa.String(8), nullable=False),
        sa.Column("terminal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("since_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bits", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint(
            "beam_id", "link", "terminal", "since_ms", name="pk_ledger_opening"
        ),
    )


def downgrade() -> None:
    """Take it back: the audit then misses what was deleted; balances stay."""
    op.drop_table("ledger_opening")
