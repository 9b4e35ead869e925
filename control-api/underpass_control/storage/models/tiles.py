"""The map's ground: sets of vector tiles, each made from one map."""

from __future__ import annotations

from sqlalchemy import ForeignKey, Index, LargeBinary, SmallInteger, String, text
from sqlalchemy.orm import Mapped, mapped_column

from underpass_control.storage.models.base import Base, RowId

CURRENT = "current"
_IS_CURRENT = text(f"state = '{CURRENT}'")


class Tileset(Base):
    """The tiles of a map from one import."""

    __tablename__ = "tileset"

    # Never reused, so that it tells which tiles a browser has.
    id: Mapped[int] = mapped_column(RowId, primary_key=True)
    source: Mapped[str] = mapped_column(String(64))
    # `coming` until all tiles are stored, then `current`; `former` until they are deleted.
    state: Mapped[str] = mapped_column(String(8))
    begun_ms: Mapped[int]
    tiles: Mapped[int] = mapped_column(default=0)
    content_bytes: Mapped[int] = mapped_column(default=0)
    # The zooms and bounds (degrees) of its tiles; meaningless until it is current.
    from_zoom: Mapped[int] = mapped_column(default=0)
    to_zoom: Mapped[int] = mapped_column(default=0)
    west: Mapped[float] = mapped_column(default=0.0)
    south: Mapped[float] = mapped_column(default=0.0)
    east: Mapped[float] = mapped_column(default=0.0)
    north: Mapped[float] = mapped_column(default=0.0)

    __table_args__ = (
        # A map has one current set.
        Index(
            "ix_tileset_current",
            "source",
            unique=True,
            postgresql_where=_IS_CURRENT,
            sqlite_where=_IS_CURRENT,
        ),
        # Otherwise SQLite would reuse the id of the last set if that was deleted.
        {"sqlite_autoincrement": True},
    )


class MapTile(Base):
    """A tile: a gzipped Mapbox Vector Tile."""

    __tablename__ = "map_tile"

    tileset: Mapped[int] = mapped_column(ForeignKey("tileset.id"), primary_key=True)
    z: Mapped[int] = mapped_column(SmallInteger, primary_key=True)
    x: Mapped[int] = mapped_column(primary_key=True)
    y: Mapped[int] = mapped_column(primary_key=True)
    content: Mapped[bytes] = mapped_column(LargeBinary)
