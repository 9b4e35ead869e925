"""Rollouts; and how far a terminal is with its settings."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0019"
down_revision = "0018"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.add_column(
        "terminal_settings", sa.Column("reported_state", sa.String(length=16), nullable=True)
    )
    settings = sa.table(
        "terminal_settings",
        sa.column("applied", sa.Boolean()),
        sa.column("reported_state", sa.String()),
    )
    state = sa.case((settings.c.applied.is_(sa.true()), "confirmed"), else_="refused")
    known = settings.update().where(settings.c.applied.is_not(None))
    op.execute(known.values(reported_state=state))
    op.create_table(
        "rollout",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("tenant_id", sa.String(length=64), nullable=True),
        sa.Column("document", sa.JSON(), nullable=False),
        sa.Column("whole", sa.Boolean(), nullable=False),
        sa.Column("sizes", sa.JSON(), nullable=False),
        sa.Column("hold_ms", sa.BigInteger(), nullable=False),
        sa.Column("wait_ms", sa.BigInteger(), nullable=False),
        sa.Column("most_failures", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.BigInteger(), nullable=False),
        sa.Column("reason", sa.Text(), nullable=True),
        sa.Column("created_by", sa.String(length=200), nullable=False),
        sa.Column("created_ms", sa.BigInteger(), nullable=False),
        sa.Column("changed_ms", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["tenant_id"], ["tenant.id"], name="fk_rollout_tenant_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_rollout"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_rollout_tenant_id", "rollout", ["tenant_id"])
    op.create_index("ix_rollout_changed_ms", "rollout", ["changed_ms"])
    op.create_table(
        "rollout_terminal",
        sa.Column("rollout_id", _ROW_ID, nullable=False),
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("place", sa.BigInteger(), nullable=False),
        sa.Column("progress", sa.String(length=16), nullable=False),
        sa.Column("stage", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.BigInteger(), nullable=True),
        sa.Column("before", sa.JSON(), nullable=True),
        sa.Column("sent_ms", sa.BigInteger(), nullable=True),
        sa.Column("confirmed_ms", sa.BigInteger(), nullable=True),
        sa.Column("reason", sa.String(length=1000), nullable=True),
        sa.Column("is_open", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rollout_id"],
            ["rollout.id"],
            name="fk_rollout_terminal_rollout_id",
            ondelete="CASCADE",
        ),
        sa.ForeignKeyConstraint(
            ["terminal"],
            ["terminal.node"],
            name="fk_rollout_terminal_terminal",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("rollout_id", "terminal", name="pk_rollout_terminal"),
    )
    op.create_index(
        "ix_rollout_terminal_open",
        "rollout_terminal",
        ["terminal"],
        unique=True,
        postgresql_where=sa.text("is_open"),
        sqlite_where=sa.text("is_open"),
    )


def downgrade() -> None:
    op.drop_table("rollout_terminal")
    op.drop_table("rollout")
    op.drop_column("terminal_settings", "reported_state")
