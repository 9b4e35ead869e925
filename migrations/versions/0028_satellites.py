"""Which satellite a beam's terminals use, and which one a shadow hides."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0028"
down_revision = "0027"

# An imported shadow's id is `sky:SATELLITE:…`. One that was set over REST may have any id: where
# that says no name that a satellite may have, it goes on counting for all of them.
_NAMED = re.compile(r"sky:([A-Za-z0-9._-]{1,32}):")
_OBSTRUCTION = sa.table(
    "obstruction", sa.column("id", sa.String()), sa.column("properties", sa.JSON())
)
_AT_ONCE = 1_000

Properties = dict[str, Any]


def upgrade() -> None:
    op.add_column("beam", sa.Column("satellite", sa.String(length=32), nullable=True))
    _rewrite(_OBSTRUCTION.c.id.startswith("sky:"), _with_satellite)


def downgrade() -> None:
    text = sa.cast(_OBSTRUCTION.c.properties, sa.Text())
    _rewrite(text.contains('"satellite"'), _without_satellite)
    op.drop_column("beam", "satellite")


def _with_satellite(name: str, properties: Properties) -> Properties:
    named = _NAMED.match(name)
    if named is None or properties.get("kind") != "shadow":
        return properties
    return {**properties, "satellite": named[1]}


def _without_satellite(_name: str, properties: Properties) -> Properties:
    return {key: value for key, value in properties.items() if key != "satellite"}


def _rewrite(
    where: sa.ColumnElement[bool], changed: Callable[[str, Properties], Properties]
) -> None:
    """Change the properties of some obstructions, some at a time.

    Databases' own functions stop at what may well stand in a document: PostgreSQL's at half a
    surrogate pair or a zero in a string, SQLite's at a number that is none.
    """
    ids, properties = _OBSTRUCTION.c.id, _OBSTRUCTION.c.properties
    query = sa.select(ids, properties).where(where).order_by(ids).limit(_AT_ONCE)
    put = (
        sa.update(_OBSTRUCTION)
        .where(ids == sa.bindparam("key"))
        .values(properties=sa.bindparam("new", type_=sa.JSON()))
    )
    connection = op.get_bind()
    rows = connection.execute(query).all()
    while rows:
        news = [(name, before, changed(name, before)) for name, before in rows]
        given = [{"key": name, "new": new} for name, before, new in news if new != before]
        if given:
            connection.execute(put, given)
        rows = connection.execute(query.where(ids > rows[-1][0])).all()
