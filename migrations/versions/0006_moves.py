"""Where a terminal was before its gateway, and since when it is there."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    # Not in batches, as 0002 says.
    op.add_column("terminal", sa.Column("former_gateway", sa.BigInteger(), nullable=True))
    op.add_column("terminal", sa.Column("moved_ms", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("terminal", "moved_ms")
    op.drop_column("terminal", "former_gateway")
