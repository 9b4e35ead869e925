"""What is known of a link beyond what plans go by: round trip, queue, loss, custody, classes."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0023"
down_revision = "0022"


def upgrade() -> None:
    op.add_column("link_state", sa.Column("figures", sa.Text(), nullable=True))


def downgrade() -> None:
    with op.batch_alter_table("link_state") as table:
        table.drop_column("figures")
