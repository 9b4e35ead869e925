"""Tenants, users with their sessions, and the log of changes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0011"
down_revision = "0010"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
_ROLES_BEFORE = "role IN ('viewer', 'operator', 'gateway', 'terminal')"
_ROLES = "role IN ('viewer', 'operator', 'gateway', 'terminal', 'administrator')"


def upgrade() -> None:
    tenant = op.create_table(
        "tenant",
        sa.Column("id", sa.String(length=64), nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.PrimaryKeyConstraint("id", name="pk_tenant"),
    )
    op.bulk_insert(tenant, [{"id": "default", "name": "Default"}])
    # Terminals are not changed in batches, as 0002 says, so no foreign key can be added to them.
    op.add_column(
        "terminal",
        sa.Column("tenant_id", sa.String(length=64), nullable=False, server_default="default"),
    )
    op.create_index("ix_terminal_tenant_id", "terminal", ["tenant_id"])
    with op.batch_alter_table("token") as batch:
        batch.add_column(sa.Column("tenant_id", sa.String(length=64), nullable=True))
        batch.create_foreign_key(
            "fk_token_tenant_id", "tenant", ["tenant_id"], ["id"], ondelete="RESTRICT"
        )
        batch.drop_constraint("ck_token_role", type_="check")
        batch.create_check_constraint("ck_token_role", _ROLES)
    op.create_table(
        "user_account",
        sa.Column("name", sa.String(length=64), nullable=False),
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("role", sa.String(length=16), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=True),
        sa.Column("password_hash", sa.String(length=255), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.CheckConstraint(
            "role IN ('viewer', 'operator', 'administrator')", name="ck_user_account_role"
        ),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenant.id"], name="fk_user_account_tenant_id", ondelete="RESTRICT"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_user_account"),
        sa.UniqueConstraint("name", name="uq_user_account_name"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "user_session",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("digest", sa.LargeBinary(length=32), nullable=False),
        sa.Column("user_id", _ROW_ID, nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("expires_ms", sa.BigInteger(), nullable=False),
        sa.Column("idle_until_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["user_id"], ["user_account.id"], name="fk_user_session_user_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_user_session"),
        sa.UniqueConstraint("digest", name="uq_user_session_digest"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_user_session_user_id", "user_session", ["user_id"])
    op.create_index("ix_user_session_idle_until_ms", "user_session", ["idle_until_ms"])
    op.create_table(
        "audit_entry",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("time_ms", sa.BigInteger(), nullable=False),
        sa.Column("actor_kind", sa.String(length=16), nullable=False),
        sa.Column("actor_id", sa.BigInteger(), nullable=True),
        sa.Column("actor", sa.String(length=200), nullable=False),
        sa.Column("address", sa.String(length=64), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=True),
        sa.Column("action", sa.String(length=64), nullable=False),
        sa.Column("target", sa.String(length=200), nullable=False),
        sa.Column("before", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("after", sa.JSON(none_as_null=True), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_audit_entry"),
    )
    op.create_index("ix_audit_entry_time_ms", "audit_entry", ["time_ms"])
    op.create_index("ix_audit_entry_tenant_id", "audit_entry", ["tenant_id", "id"])


def downgrade() -> None:
    op.drop_table("audit_entry")
    op.drop_table("user_session")
    op.drop_table("user_account")
    # An administrator's token has no lesser role that it could be given, and a tenant's would see
    # everything.
    op.execute("DELETE FROM token WHERE role = 'administrator' OR tenant_id IS NOT NULL")
    with op.batch_alter_table("token") as batch:
        batch.drop_constraint("ck_token_role", type_="check")
        batch.create_check_constraint("ck_token_role", _ROLES_BEFORE)
        batch.drop_constraint("fk_token_tenant_id", type_="foreignkey")
        batch.drop_column("tenant_id")
    op.drop_index("ix_terminal_tenant_id", table_name="terminal")
    op.drop_column("terminal", "tenant_id")
    op.drop_table("tenant")
