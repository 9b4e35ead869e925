"""What nodes say of themselves; how long conditions of alerts hold before they count."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0020"
down_revision = "0019"

_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "node_report",
        sa.Column("node", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("role", sa.String(length=8), nullable=False),
        sa.Column("terminal", sa.BigInteger(), nullable=True),
        sa.Column("version", sa.String(length=64), nullable=False),
        sa.Column("certificate_end_ms", sa.BigInteger(), nullable=True),
        sa.Column("time_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_node_report_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("node", "role", name="pk_node_report"),
    )
    op.create_index("ix_node_report_terminal", "node_report", ["terminal"])
    for name, default in (("for_ms", "0"), ("keep_firing_for_ms", "60000")):
        op.add_column(
            "alert_rule", sa.Column(name, sa.BigInteger(), nullable=False, server_default=default)
        )
    op.add_column("alert_rule", sa.Column("version", sa.String(length=64), nullable=True))
    op.add_column("alert", sa.Column("gone_ms", sa.BigInteger(), nullable=True))
    op.create_table(
        "alert_pending",
        sa.Column("rule_id", _ROW_ID, nullable=False),
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("since_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["rule_id"], ["alert_rule.id"], name="fk_alert_pending_rule_id", ondelete="CASCADE"
        ),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_alert_pending_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("rule_id", "terminal", "link", name="pk_alert_pending"),
    )
    op.create_index("ix_alert_pending_terminal", "alert_pending", ["terminal"])


def downgrade() -> None:
    op.drop_table("alert_pending")
    # Before there were these kinds, a rule of one is no rule.
    rule = sa.table("alert_rule", sa.column("kind"))
    op.execute(rule.delete().where(rule.c.kind.in_(["certificate", "version"])))
    op.drop_column("alert", "gone_ms")
    for name in ("version", "keep_firing_for_ms", "for_ms"):
        op.drop_column("alert_rule", name)
    op.drop_table("node_report")
