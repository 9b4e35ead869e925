"""Which strip of the map an obstruction is in, to find those that touch a part of it."""

from __future__ import annotations

import math

import sqlalchemy as sa
from alembic import op

revision = "0033"
down_revision = "0032"

# In degrees; strips are numbered by their size first.
_SIZES = (0.01, 0.1, 1.0, 10.0, 360.0)
_STRIPS = 1_000_000
_SIDES = ("west", "south", "east", "north")
_OBSTRUCTION = sa.table(
    "obstruction",
    sa.column("id", sa.String()),
    *(sa.column(side, sa.Float(53)) for side in _SIDES),
    sa.column("strip", sa.BigInteger()),
)
_AT_ONCE = 1_000


def upgrade() -> None:
    op.add_column(
        "obstruction", sa.Column("strip", sa.BigInteger(), nullable=False, server_default="0")
    )
    _fill()
    op.drop_index("ix_obstruction_box", "obstruction")
    op.create_index("ix_obstruction_strip", "obstruction", ["strip", *_SIDES, "id"])


def downgrade() -> None:
    op.drop_index("ix_obstruction_strip", "obstruction")
    op.create_index("ix_obstruction_box", "obstruction", list(_SIDES))
    op.drop_column("obstruction", "strip")


def _fill() -> None:
    """Set the strips of all obstructions, some at a time."""
    ids = _OBSTRUCTION.c.id
    query = sa.select(ids, *(_OBSTRUCTION.c[side] for side in _SIDES)).order_by(ids).limit(_AT_ONCE)
    put = (
        sa.update(_OBSTRUCTION)
        .where(ids == sa.bindparam("key"))
        .values(strip=sa.bindparam("new", type_=sa.BigInteger()))
    )
    connection = op.get_bind()
    rows = connection.execute(query).all()
    while rows:
        connection.execute(put, [{"key": row.id, "new": _strip(*row[1:])} for row in rows])
        rows = connection.execute(query.where(ids > rows[-1].id)).all()


def _strip(west: float, south: float, east: float, north: float) -> int:
    size = max(east - west, north - south)
    number = next(number for number, most in enumerate(_SIZES) if size <= most)
    return number * _STRIPS + math.floor((south + 90.0) / _SIZES[number])
