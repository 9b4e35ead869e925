"""Reports of gateways: link states, usage, blockages, announcements; routes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    op.create_table(
        "announcement",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("announced_ms", sa.BigInteger(), nullable=False),
        sa.Column("entry_ms", sa.BigInteger(), nullable=False),
        sa.Column("duration_ms", sa.BigInteger(), nullable=False),
        sa.Column("confidence", sa.Float(precision=53), nullable=False),
        sa.Column("obstruction", sa.String(length=128), nullable=True),
        sa.Column("received_ms", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_announcement_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_announcement"),
        sa.UniqueConstraint(
            "terminal", "announced_ms", "entry_ms", name="uq_announcement_terminal"
        ),
    )
    with op.batch_alter_table("announcement", schema=None) as batch_op:
        batch_op.create_index("ix_announcement_entry_ms", ["entry_ms"], unique=False)

    op.create_table(
        "link_state",
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("node", sa.BigInteger(), nullable=False),
        sa.Column("incarnation", sa.BigInteger(), nullable=False),
        sa.Column("uptime_ms", sa.BigInteger(), nullable=False),
        sa.Column("time_ms", sa.BigInteger(), nullable=False),
        sa.Column("received_ms", sa.BigInteger(), nullable=False),
        sa.Column("gateway", sa.BigInteger(), nullable=False),
        sa.Column("path", sa.String(length=128), nullable=False),
        sa.Column("state", sa.String(length=8), nullable=False),
        sa.Column("offered_bytes", sa.BigInteger(), nullable=False),
        sa.Column("sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("backlogged_bytes", sa.BigInteger(), nullable=False),
        sa.Column("streams", sa.BigInteger(), nullable=False),
        sa.Column("rate_bps", sa.BigInteger(), nullable=True),
        sa.Column("plan", sa.BigInteger(), nullable=True),
        sa.Column("efficiency", sa.Float(precision=53), nullable=False),
        sa.Column("clock_offset_ms", sa.BigInteger(), nullable=True),
        sa.Column("synchronised", sa.Boolean(), nullable=False),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_link_state_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("terminal", "link", name="pk_link_state"),
    )
    op.create_table(
        "link_usage",
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("node", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("incarnation", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("path", sa.String(length=128), nullable=False),
        sa.Column("first_uptime_ms", sa.BigInteger(), nullable=False),
        sa.Column("first_time_ms", sa.BigInteger(), nullable=False),
        sa.Column("first_sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("first_offered_bytes", sa.BigInteger(), nullable=False),
        sa.Column("last_uptime_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_time_ms", sa.BigInteger(), nullable=False),
        sa.Column("last_sent_bytes", sa.BigInteger(), nullable=False),
        sa.Column("last_offered_bytes", sa.BigInteger(), nullable=False),
        sa.Column("seen", sa.BigInteger(), nullable=False),
        sa.Column("blocked", sa.BigInteger(), nullable=False),
        sa.Column("efficiency", sa.Float(precision=53), nullable=False),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_link_usage_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint(
            "terminal", "link", "start_ms", "node", "incarnation", "path", name="pk_link_usage"
        ),
    )
    with op.batch_alter_table("link_usage", schema=None) as batch_op:
        batch_op.create_index("ix_link_usage_start_ms", ["start_ms"], unique=False)

    op.create_table(
        "predicted_blockage",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("obstruction", sa.String(length=128), nullable=True),
        sa.Column("entry_ms", sa.BigInteger(), nullable=False),
        sa.Column("exit_ms", sa.BigInteger(), nullable=False),
        sa.Column("confidence", sa.Float(precision=53), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("first_ms", sa.BigInteger(), nullable=False),
        sa.Column("based_on_ms", sa.BigInteger(), nullable=False),
        sa.Column("state", sa.String(length=16), nullable=False),
        sa.ForeignKeyConstraint(
            ["terminal"],
            ["terminal.node"],
            name="fk_predicted_blockage_terminal",
            ondelete="CASCADE",
        ),
        sa.PrimaryKeyConstraint("id", name="pk_predicted_blockage"),
    )
    with op.batch_alter_table("predicted_blockage", schema=None) as batch_op:
        batch_op.create_index(
            "ix_predicted_blockage_ahead",
            ["terminal"],
            unique=False,
            postgresql_where=sa.text("state = 'predicted'"),
            sqlite_where=sa.text("state = 'predicted'"),
        )
        batch_op.create_index("ix_predicted_blockage_entry_ms", ["entry_ms"], unique=False)
        batch_op.create_index(
            "ix_predicted_blockage_terminal_entry_ms", ["terminal", "entry_ms"], unique=False
        )

    op.create_table(
        "route",
        sa.Column("terminal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("geometry", sa.JSON(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_route_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("terminal", name="pk_route"),
    )
    op.create_table(
        "blockage",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("terminal", sa.BigInteger(), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("path", sa.String(length=128), nullable=False),
        sa.Column("entry_ms", sa.BigInteger(), nullable=False),
        sa.Column("exit_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_reported", sa.Boolean(), nullable=False),
        sa.Column("source", sa.String(length=16), nullable=False),
        sa.Column("received_ms", sa.BigInteger(), nullable=False),
        sa.Column("predicted", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=True),
        sa.Column("entry_error_ms", sa.BigInteger(), nullable=True),
        sa.Column("exit_error_ms", sa.BigInteger(), nullable=True),
        sa.ForeignKeyConstraint(
            ["predicted"],
            ["predicted_blockage.id"],
            name="fk_blockage_predicted",
            ondelete="SET NULL",
        ),
        sa.ForeignKeyConstraint(
            ["terminal"], ["terminal.node"], name="fk_blockage_terminal", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("id", name="pk_blockage"),
        sa.UniqueConstraint("terminal", "link", "path", "entry_ms", name="uq_blockage_terminal"),
    )
    with op.batch_alter_table("blockage", schema=None) as batch_op:
        batch_op.create_index("ix_blockage_entry_ms", ["entry_ms"], unique=False)
        batch_op.create_index(
            "ix_blockage_lasting",
            ["terminal"],
            unique=False,
            postgresql_where=sa.text("exit_ms IS NULL"),
            sqlite_where=sa.text("exit_ms IS NULL"),
        )
        batch_op.create_index("ix_blockage_predicted", ["predicted"], unique=False)

    op.add_column("terminal", sa.Column("gateway", sa.BigInteger(), nullable=True))
    op.add_column("terminal", sa.Column("heard_by", sa.BigInteger(), nullable=True))
    accuracy = sa.Column("accuracy_m", sa.Float(precision=53), nullable=True)
    op.add_column("position_report", accuracy)


def downgrade() -> None:
    # Not in a batch: that would copy the table, and its end would take all that refers to it along.
    op.drop_column("position_report", "accuracy_m")
    op.drop_column("terminal", "heard_by")
    op.drop_column("terminal", "gateway")
    with op.batch_alter_table("blockage", schema=None) as batch_op:
        batch_op.drop_index("ix_blockage_predicted")
        batch_op.drop_index(
            "ix_blockage_lasting",
            postgresql_where=sa.text("exit_ms IS NULL"),
            sqlite_where=sa.text("exit_ms IS NULL"),
        )
        batch_op.drop_index("ix_blockage_entry_ms")

    op.drop_table("blockage")
    op.drop_table("route")
    with op.batch_alter_table("predicted_blockage", schema=None) as batch_op:
        batch_op.drop_index("ix_predicted_blockage_terminal_entry_ms")
        batch_op.drop_index("ix_predicted_blockage_entry_ms")
        batch_op.drop_index(
            "ix_predicted_blockage_ahead",
            postgresql_where=sa.text("state = 'predicted'"),
            sqlite_where=sa.text("state = 'predicted'"),
        )

    op.drop_table("predicted_blockage")
    with op.batch_alter_table("link_usage", schema=None) as batch_op:
        batch_op.drop_index("ix_link_usage_start_ms")

    op.drop_table("link_usage")
    op.drop_table("link_state")
    with op.batch_alter_table("announcement", schema=None) as batch_op:
        batch_op.drop_index("ix_announcement_entry_ms")

    op.drop_table("announcement")
