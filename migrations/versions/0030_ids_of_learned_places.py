"""Ids of learned places that tell neither the terminal nor the time of the first loss."""

from __future__ import annotations

import json
import re
import secrets

import sqlalchemy as sa
from alembic import op

revision = "0030"
down_revision = "0029"

# As they were made: the terminal, and when its link was lost.
_TELLING = re.compile(r"learned:\d+:\d+")
_OBSTRUCTION = sa.table(
    "obstruction", sa.column("id", sa.String()), sa.column("properties", sa.JSON())
)
_NAMING = [
    sa.table(name, sa.column("obstruction", sa.String()))
    for name in ("predicted_blockage", "announcement", "intervention")
]


def upgrade() -> None:
    connection = op.get_bind()
    ids, properties = _OBSTRUCTION.c.id, _OBSTRUCTION.c.properties
    telling = sa.select(ids).where(ids.startswith("learned:"))
    for old in [one for one in connection.scalars(telling) if _TELLING.fullmatch(one)]:
        new = f"learned:{secrets.token_hex(8)}"
        text = json.dumps(connection.scalar(sa.select(properties).where(ids == old)))
        # The roads have the id before a slash, and say by it what covers them.
        for end in ('"', "/"):
            text = text.replace(f'"{old}{end}', f'"{new}{end}')
        of_old = sa.update(_OBSTRUCTION).where(ids == old)
        connection.execute(of_old.values(id=new, properties=json.loads(text)))
        for table in _NAMING:
            named = table.c.obstruction
            connection.execute(sa.update(table).where(named == old).values(obstruction=new))


def downgrade() -> None:
    # Earlier releases take any id.
    pass
