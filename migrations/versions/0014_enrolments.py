"""Nodes that may be enrolled."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0014"
down_revision = "0013"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "enrolment",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("node", sa.BigInteger(), nullable=False),
        sa.Column("configuration", sa.Text(), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("revoked_ms", sa.BigInteger(), nullable=True),
        sa.Column("used_ms", sa.BigInteger(), nullable=True),
        sa.Column("key_sha256", sa.String(length=64), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_enrolment"),
        sa.UniqueConstraint("digest", name="uq_enrolment_digest"),
    )
    op.create_index("ix_enrolment_node", "enrolment", ["node"])


def downgrade() -> None:
    op.drop_table("enrolment")
