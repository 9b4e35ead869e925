"""Which satellite a beam's terminals use, and which one a shadow hides."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"
branch_labels = None
depends_on = None

# An imported shadow's id is `sky:SATELLITE:…`. One that was set over REST may have any id: where
# that says no name that a satellite may have, it goes on counting for all of them.
_SAY_IT = {
    "sqlite": "UPDATE obstruction SET properties = json_set(properties, '$.satellite',"
    " substr(id, 5, instr(substr(id, 5), ':') - 1))"
    " WHERE id GLOB 'sky:*:*' AND instr(substr(id, 5), ':') BETWEEN 2 AND 33"
    " AND substr(id, 5, instr(substr(id, 5), ':') - 1) NOT GLOB '*[^A-Za-z0-9._-]*'"
    " AND json_extract(properties, '$.kind') = 'shadow'",
    "postgresql": "UPDATE obstruction SET properties = (properties::jsonb"
    " || jsonb_build_object('satellite', split_part(id, ':', 2)))::json"
    " WHERE id ~ '^sky:[A-Za-z0-9._-]{1,32}:' AND properties ->> 'kind' = 'shadow'",
}
_TAKE_IT_BACK = {
    "sqlite": "UPDATE obstruction SET properties = json_remove(properties, '$.satellite')"
    " WHERE json_extract(properties, '$.satellite') IS NOT NULL",
    "postgresql": "UPDATE obstruction SET properties = (properties::jsonb - 'satellite')::json"
    " WHERE properties ->> 'satellite' IS NOT NULL",
}


def upgrade() -> None:
    """Apply it."""
    op.add_column("beam", sa.Column("satellite", sa.String(length=32), nullable=True))
    # Driver's SQL: a colon before a word would be a parameter.
    op.get_bind().exec_driver_sql(_SAY_IT[op.get_bind().dialect.name])


def downgrade() -> None:
    """Take it back."""
    op.get_bind().exec_driver_sql(_TAKE_IT_BACK[op.get_bind().dialect.name])
    op.drop_column("beam", "satellite")
