"""How often targets of alerts have failed; mails of several alerts; when enrolments expire."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0018"
down_revision = "0017"


def upgrade() -> None:
    op.add_column(
        "alert_target", sa.Column("failures", sa.BigInteger(), nullable=False, server_default="0")
    )
    op.create_index("ix_enrolment_expires_ms", "enrolment", ["expires_ms"])
    _forget_mails()


def downgrade() -> None:
    op.drop_index("ix_enrolment_expires_ms", "enrolment")
    op.drop_column("alert_target", "failures")
    _forget_mails()


def _forget_mails() -> None:
    """Delete the mails that wait: before and after, their bodies are of another form."""
    target = sa.table("alert_target", sa.column("id"), sa.column("url"))
    message = sa.table("alert_message", sa.column("target_id"))
    mailed = sa.select(target.c.id).where(target.c.url.startswith("mailto:"))
    op.execute(message.delete().where(message.c.target_id.in_(mailed)))
