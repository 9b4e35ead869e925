"""The ledger: entries with their postings, open lots, how far it is settled, what was counted."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    op.create_table(
        "ledger_entry",
        sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), nullable=False),
        sa.Column("beam_id", sa.String(length=64), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("from_ms", sa.BigInteger(), nullable=False),
        sa.Column("to_ms", sa.BigInteger(), nullable=False),
        sa.Column("kind", sa.String(length=16), nullable=False),
        sa.Column("rule", sa.String(length=16), nullable=True),
        sa.Column("reason", sa.String(length=200), nullable=True),
        sa.Column("made_by", sa.String(length=200), nullable=True),
        sa.CheckConstraint("link IN ('forward', 'return')", name="ck_ledger_entry_link"),
        sa.CheckConstraint("(kind = 'forgiven') = (rule IS NOT NULL)", name="ck_ledger_entry_rule"),
        sa.CheckConstraint("from_ms <= to_ms", name="ck_ledger_entry_period"),
        sa.PrimaryKeyConstraint("id", name="pk_ledger_entry"),
    )
    with op.batch_alter_table("ledger_entry", schema=None) as batch_op:
        batch_op.create_index("ix_ledger_entry_beam_id", ["beam_id", "from_ms", "id"], unique=False)

    op.create_table(
        "ledger_posting",
        sa.Column("entry_id", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("terminal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bits", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["entry_id"],
            ["ledger_entry.id"],
            name="fk_ledger_posting_entry_id",
            ondelete="RESTRICT",
        ),
        sa.PrimaryKeyConstraint("entry_id", "terminal", name="pk_ledger_posting"),
    )
    with op.batch_alter_table("ledger_posting", schema=None) as batch_op:
        batch_op.create_index("ix_ledger_posting_terminal", ["terminal", "entry_id"], unique=False)

    op.create_table(
        "ledger_lot",
        sa.Column("beam_id", sa.String(length=64), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("terminal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("since_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("bits", sa.BigInteger(), nullable=False),
        sa.PrimaryKeyConstraint("beam_id", "link", "terminal", "since_ms", name="pk_ledger_lot"),
    )
    op.create_table(
        "settled",
        sa.Column("beam_id", sa.String(length=64), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("until_ms", sa.BigInteger(), nullable=False),
        sa.Column("fence", sa.BigInteger(), nullable=False),
        sa.Column("revision", sa.BigInteger(), nullable=False),
        sa.ForeignKeyConstraint(
            ["beam_id"], ["beam.id"], name="fk_settled_beam_id", ondelete="CASCADE"
        ),
        sa.PrimaryKeyConstraint("beam_id", "link", name="pk_settled"),
    )
    op.create_table(
        "settled_usage",
        sa.Column("beam_id", sa.String(length=64), nullable=False),
        sa.Column("link", sa.String(length=8), nullable=False),
        sa.Column("start_ms", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("terminal", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("fair_bits", sa.BigInteger(), nullable=False),
        sa.Column("planned_bits", sa.BigInteger(), nullable=False),
        sa.Column("sent_bits", sa.BigInteger(), nullable=False),
        sa.Column("blocked", sa.Boolean(), nullable=False),
        sa.Column("presumed", sa.Boolean(), nullable=False),
        sa.PrimaryKeyConstraint("beam_id", "link", "start_ms", "terminal", name="pk_settled_usage"),
    )
    with op.batch_alter_table("settled_usage", schema=None) as batch_op:
        batch_op.create_index("ix_settled_usage_start_ms", ["start_ms"], unique=False)


def downgrade() -> None:
    with op.batch_alter_table("settled_usage", schema=None) as batch_op:
        batch_op.drop_index("ix_settled_usage_start_ms")

    op.drop_table("settled_usage")
    op.drop_table("settled")
    op.drop_table("ledger_lot")
    with op.batch_alter_table("ledger_posting", schema=None) as batch_op:
        batch_op.drop_index("ix_ledger_posting_terminal")

    op.drop_table("ledger_posting")
    with op.batch_alter_table("ledger_entry", schema=None) as batch_op:
        batch_op.drop_index("ix_ledger_entry_beam_id")

    op.drop_table("ledger_entry")
