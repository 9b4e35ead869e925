"""What links were measured to carry, who told efficiencies, and what shares are fair in."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"

_TABLES = ("link_state", "link_usage")


def upgrade() -> None:
    # Not in batches, as 0002 says.
    op.add_column(
        "beam", sa.Column("fair_share", sa.String(8), nullable=False, server_default="symbols")
    )
    for table in _TABLES:
        op.add_column(
            table,
            sa.Column("efficiency_told", sa.Boolean(), nullable=False, server_default=sa.false()),
        )
        op.add_column(table, sa.Column("capacity_bps", sa.BigInteger(), nullable=True))
        op.add_column(table, sa.Column("capacity_reason", sa.String(128), nullable=True))
        # An efficiency that was not told was 1.
        name = sa.table(
            table, sa.column("efficiency", sa.Float()), sa.column("efficiency_told", sa.Boolean())
        )
        op.execute(name.update().where(name.c.efficiency != 1.0).values(efficiency_told=True))


def downgrade() -> None:
    for table in reversed(_TABLES):
        op.drop_column(table, "capacity_reason")
        op.drop_column(table, "capacity_bps")
        op.drop_column(table, "efficiency_told")
    op.drop_column("beam", "fair_share")
