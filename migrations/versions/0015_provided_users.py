"""Users who sign in by an OpenID Connect provider."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0015"
down_revision = "0014"


def upgrade() -> None:
    # Not in a batch: on SQLite, users would be made anew, and their sessions would end.
    op.add_column("user_account", sa.Column("issuer", sa.String(length=255), nullable=True))
    op.add_column("user_account", sa.Column("subject", sa.String(length=255), nullable=True))
    op.create_index("ix_user_account_subject", "user_account", ["issuer", "subject"], unique=True)


def downgrade() -> None:
    # Without the provider they cannot sign in, and must not have sessions that they could not end.
    op.execute("DELETE FROM user_account WHERE issuer IS NOT NULL")
    op.drop_index("ix_user_account_subject", table_name="user_account")
    op.drop_column("user_account", "subject")
    op.drop_column("user_account", "issuer")
