"""Between which moments the entry and the exit of an expected blockage lie."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"

_COLUMNS = ("entry_p10_ms", "entry_p90_ms", "exit_p10_ms", "exit_p90_ms")


def upgrade() -> None:
    # Not in batches, as 0002 says.
    for name in _COLUMNS:
        op.add_column("predicted_blockage", sa.Column(name, sa.BigInteger(), nullable=True))


def downgrade() -> None:
    for name in reversed(_COLUMNS):
        op.drop_column("predicted_blockage", name)
