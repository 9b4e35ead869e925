"""Since when no loss of link has confirmed a learned place."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0031"
down_revision = "0030"


def upgrade() -> None:
    # For places that are there, the service notes the present time.
    op.add_column("obstruction", sa.Column("unconfirmed_since_ms", sa.BigInteger(), nullable=True))


def downgrade() -> None:
    op.drop_column("obstruction", "unconfirmed_since_ms")
