"""Users have revisions, for conditional requests."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0027"
down_revision = "0026"


def upgrade() -> None:
    op.add_column(
        "user_account", sa.Column("revision", sa.BigInteger(), nullable=False, server_default="1")
    )


def downgrade() -> None:
    op.drop_column("user_account", "revision")
