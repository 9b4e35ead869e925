"""What a provider sets of gateways themselves, and what has become of it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0024"
down_revision = "0023"


def upgrade() -> None:
    op.create_table(
        "gateway_settings",
        sa.Column("gateway", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("version", sa.BigInteger(), nullable=False),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("set_ms", sa.BigInteger(), nullable=False),
        sa.Column("reported_version", sa.BigInteger(), nullable=True),
        sa.Column("applied", sa.Boolean(), nullable=True),
        sa.Column("reported_state", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.String(length=1000), nullable=True),
        sa.Column("reported_ms", sa.BigInteger(), nullable=True),
        sa.PrimaryKeyConstraint("gateway", name="pk_gateway_settings"),
    )


def downgrade() -> None:
    op.drop_table("gateway_settings")
