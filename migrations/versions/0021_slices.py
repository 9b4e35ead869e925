"""Slices of functions, and tokens of the agents that run them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0021"
down_revision = "0020"

_ROLES = "role IN ('viewer', 'operator', 'gateway', 'terminal', 'administrator', 'agent')"
_ROLES_BEFORE = "role IN ('viewer', 'operator', 'gateway', 'terminal', 'administrator')"


def upgrade() -> None:
    op.create_table(
        "slice",
        sa.Column("name", sa.String(length=31), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=False),
        sa.Column("site", sa.String(length=31), nullable=False),
        sa.Column("number", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.Column("body", sa.JSON(), nullable=False),
        sa.Column("set_ms", sa.BigInteger(), nullable=False),
        sa.Column("ending", sa.Boolean(), nullable=False),
        sa.Column("reported_revision", sa.BigInteger(), nullable=True),
        sa.Column("reported_ms", sa.BigInteger(), nullable=True),
        sa.Column("reported", sa.String(length=16), nullable=True),
        sa.Column("detail", sa.String(length=1000), nullable=True),
        sa.Column("containers", sa.JSON(none_as_null=True), nullable=True),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenant.id"], name="fk_slice_tenant_id", ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("name", name="pk_slice"),
        sa.UniqueConstraint("number", name="uq_slice_number"),
    )
    op.create_index("ix_slice_tenant_id", "slice", ["tenant_id"])
    op.create_index("ix_slice_site", "slice", ["site"])
    _allow(_ROLES)


def downgrade() -> None:
    op.execute("DELETE FROM token WHERE role = 'agent'")
    _allow(_ROLES_BEFORE)
    op.drop_table("slice")


def _allow(roles: str) -> None:
    with op.batch_alter_table("token") as batch:
        batch.drop_constraint("ck_token_role", type_="check")
        batch.create_check_constraint("ck_token_role", roles)
