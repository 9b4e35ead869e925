"""Since when terminals belong to their tenants; those that are there, from the beginning."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0029"
down_revision = "0028"


def upgrade() -> None:
    op.add_column(
        "terminal",
        sa.Column("tenant_since_ms", sa.BigInteger(), nullable=False, server_default="0"),
    )


def downgrade() -> None:
    op.drop_column("terminal", "tenant_since_ms")
