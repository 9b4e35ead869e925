"""Alerts: rules, what fires by them, who is told, and what is still to be told."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0013"
down_revision = "0012"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "alert_rule",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("limit_ms", sa.BigInteger(), nullable=False),
        sa.Column("beam_id", sa.String(length=64), nullable=True),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["beam_id"], ["beam.id"], name="fk_alert_rule_beam_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_alert_rule"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "alert",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("rule_id", _ROW_ID, nullable=True),
        sa.Column("rule", sa.String(length=200), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("text", sa.String(length=300), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.Column("resolved_ms", sa.BigInteger(), nullable=True),
        sa.Column("acknowledged_by", sa.String(length=200), nullable=True),
        sa.Column("acknowledged_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["rule_id"], ["alert_rule.id"], name="fk_alert_rule_id", ondelete="SET NULL"
        ),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_alert_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_alert"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_alert_firing",
        "alert",
        ["rule_id", "terminal", "link"],
        unique=True,
        postgresql_where=sa.text("resolved_ms IS NULL"),
        sqlite_where=sa.text("resolved_ms IS NULL"),
    )
    op.create_index("ix_alert_terminal", "alert", ["terminal"])
    op.create_index("ix_alert_resolved_ms", "alert", ["resolved_ms"])
    op.create_table(
        "alert_target",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("name", sa.String(length=200), nullable=False),
        sa.Column("url", sa.Text(), nullable=False),
        sa.Column("secret", sa.String(length=64), nullable=False),
        sa.Column("last_ms", sa.BigInteger(), nullable=True),
        sa.Column("last_failure", sa.String(length=200), nullable=True),
        sa.PrimaryKeyConstraint("id", name="pk_alert_target"),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "alert_message",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("target_id", _ROW_ID, nullable=False),
        sa.Column("body", sa.Text(), nullable=False),
        sa.Column("made_ms", sa.BigInteger(), nullable=False),
        sa.Column("tries", sa.BigInteger(), nullable=False),
        sa.Column("next_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["target_id"],
            ["alert_target.id"],
            name="fk_alert_message_target_id",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_alert_message"),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_alert_message_target_id", "alert_message", ["target_id"])
    op.create_index("ix_alert_message_next_ms", "alert_message", ["next_ms"])


def downgrade() -> None:
    for table in ("alert_message", "alert_target", "alert", "alert_rule"):
        op.drop_table(table)
