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
# They may also name places that have been forgotten.
_NAMING = [
    sa.table(name, sa.column("obstruction", sa.String()))
    for name in ("predicted_blockage", "announcement", "intervention")
]
_DRIVE = sa.table(
    "remembered_drive",
    sa.column("terminal", sa.BigInteger()),
    sa.column("number", sa.BigInteger()),
    sa.column("roads", sa.JSON()),
)
_AT_ONCE = 1_000


class _NewIds(dict[str, str]):
    """The new ids by the telling ones, made as they are asked for."""

    def __missing__(self, old: str) -> str:
        self[old] = f"learned:{secrets.token_hex(8)}"
        return self[old]

    def of_road(self, road: str) -> str:
        """Return a road's new id: it has the place's before a slash."""
        place, slash, rest = road.partition("/")
        return self[place] + slash + rest if _TELLING.fullmatch(place) else road


def upgrade() -> None:
    connection = op.get_bind()
    new_ids = _NewIds()
    _rename_places(connection, new_ids)
    _rename_naming(connection, new_ids)
    _rename_drives(connection, new_ids)


def downgrade() -> None:
    # Earlier releases take any id.
    pass


def _telling(connection: sa.Connection, column: sa.ColumnElement[str]) -> list[str]:
    found = connection.scalars(sa.select(column).distinct().where(column.startswith("learned:")))
    return [one for one in found if _TELLING.fullmatch(one)]


def _rename_places(connection: sa.Connection, new_ids: _NewIds) -> None:
    ids, properties = _OBSTRUCTION.c.id, _OBSTRUCTION.c.properties
    for old in _telling(connection, ids):
        new = new_ids[old]
        text = json.dumps(connection.scalar(sa.select(properties).where(ids == old)))
        # The roads have the id before a slash, and say by it what covers them.
        for end in ('"', "/"):
            text = text.replace(f'"{old}{end}', f'"{new}{end}')
        of_old = sa.update(_OBSTRUCTION).where(ids == old)
        connection.execute(of_old.values(id=new, properties=json.loads(text)))


def _rename_naming(connection: sa.Connection, new_ids: _NewIds) -> None:
    """Rename the places that blockages name: these tables are large, and read once each."""
    renamed = op.create_table(
        "renamed_place",
        sa.Column("old", sa.String(length=128), primary_key=True),
        sa.Column("new", sa.String(length=128), nullable=False),
        prefixes=["TEMPORARY"],
    )
    telling = {old for table in _NAMING for old in _telling(connection, table.c.obstruction)}
    op.bulk_insert(renamed, [{"old": old, "new": new_ids[old]} for old in sorted(telling)])
    for table in _NAMING if telling else ():
        named = table.c.obstruction
        new = sa.select(renamed.c.new).where(renamed.c.old == named).scalar_subquery()
        is_telling = named.in_(sa.select(renamed.c.old))
        connection.execute(sa.update(table).where(is_telling).values(obstruction=new))
    op.drop_table("renamed_place")


def _rename_drives(connection: sa.Connection, new_ids: _NewIds) -> None:
    """Rename the roads of remembered drives, some drives at a time."""
    terminal, number, roads = _DRIVE.c.terminal, _DRIVE.c.number, _DRIVE.c.roads
    query = (
        sa.select(terminal, number, roads)
        .where(sa.cast(roads, sa.Text()).contains('"learned:'))
        .order_by(terminal, number)
        .limit(_AT_ONCE)
    )
    rows = connection.execute(query).all()
    while rows:
        for row in rows:
            new = [new_ids.of_road(road) for road in row.roads]
            if new != row.roads:
                of_drive = (terminal == row.terminal) & (number == row.number)
                connection.execute(sa.update(_DRIVE).where(of_drive).values(roads=new))
        last = rows[-1]
        beyond = (terminal > last.terminal) | ((terminal == last.terminal) & (number > last.number))
        rows = connection.execute(query.where(beyond)).all()
