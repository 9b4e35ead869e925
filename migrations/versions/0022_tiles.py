"""The map's ground: vector tiles of maps."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0022"
down_revision = "0021"

_CURRENT = sa.text("state = 'current'")
_ROW_ID = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    op.create_table(
        "tileset",
        sa.Column("id", _ROW_ID, nullable=False),
        sa.Column("source", sa.String(64), nullable=False),
        sa.Column("state", sa.String(8), nullable=False),
        *(sa.Column(name, sa.BigInteger(), nullable=False) for name in ("begun_ms", "tiles")),
        *(
            sa.Column(name, sa.BigInteger(), nullable=False)
            for name in ("content_bytes", "from_zoom", "to_zoom")
        ),
        *(
            sa.Column(name, sa.Float(53), nullable=False)
            for name in ("west", "south", "east", "north")
        ),
        sa.PrimaryKeyConstraint("id", name="pk_tileset"),
        sqlite_autoincrement=True,
    )
    op.create_index(
        "ix_tileset_current",
        "tileset",
        ["source"],
        unique=True,
        postgresql_where=_CURRENT,
        sqlite_where=_CURRENT,
    )
    op.create_table(
        "map_tile",
        sa.Column("tileset", _ROW_ID, autoincrement=False, nullable=False),
        sa.Column("z", sa.SmallInteger(), autoincrement=False, nullable=False),
        sa.Column("x", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("y", sa.BigInteger(), autoincrement=False, nullable=False),
        sa.Column("content", sa.LargeBinary(), nullable=False),
        sa.ForeignKeyConstraint(["tileset"], ["tileset.id"], name="fk_map_tile_tileset"),
        sa.PrimaryKeyConstraint("tileset", "z", "x", "y", name="pk_map_tile"),
    )


def downgrade() -> None:
    op.drop_table("map_tile")
    op.drop_table("tileset")
