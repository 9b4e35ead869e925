"""Where a beam is received."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0025"
down_revision = "0024"


def upgrade() -> None:
    op.add_column("beam", sa.Column("footprint", sa.JSON(), nullable=True))


def downgrade() -> None:
    op.drop_column("beam", "footprint")
