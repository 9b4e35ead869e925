"""Tiles of an extract: its features cut into pieces, sorted by tile on the disk, and encoded.

Memory holds one tile at a time, whatever the extract's size; what is sorted lies in a temporary
file, of some three times the extract's size. A tile is gzipped Mapbox Vector Tile 2.1.
"""

from __future__ import annotations

import contextlib
import gzip
import itertools
import json
import sqlite3
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Self

import shapely
from shapely.errors import GEOSException

from underpass_control.obstructions.extract import Progress, quiet
from underpass_control.tiles.encoding import TileContent, encoded
from underpass_control.tiles.features import Feature, features
from underpass_control.tiles.grid import Tile, TooManyPiecesError, pieces, projected
from underpass_control.tiles.kinds import LAYERS

FROM_ZOOM, TO_ZOOM = 4, 13
# Limits the cost of one object. A sea of 500 by 500 km is in 30,000 tiles of the last zoom.
_MOST_PIECES = 50_000
_AT_ONCE = 2_000
_PACKED_BITS = 24
# No time in the gzip header, so that the same extract gives the same bytes.
_NO_TIME = 0


class Tiles:
    """The tiles of an extract, made one after the other; a context manager."""

    def __init__(self, path: Path, progress: Progress = quiet) -> None:
        """Cut all features of the extract that are drawn.

        Raises:
            ExtractError: The extract cannot be read.
        """
        # The number of objects whose shape cannot be drawn, or that lie in too many tiles.
        self.left_out = 0
        self._closing = contextlib.ExitStack()
        with self._closing:
            folder = self._closing.enter_context(tempfile.TemporaryDirectory())
            self._pieces = sqlite3.connect(Path(folder) / "pieces", isolation_level=None)
            self._closing.callback(self._pieces.close)
            self._sort(features(path, progress))
            row = self._pieces.execute("SELECT COUNT(DISTINCT tile) FROM piece").fetchone()
            # The most tiles there can be: in some of them nothing may be left to draw.
            self.most: int = row[0]
            self._closing = self._closing.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()

    def __iter__(self) -> Iterator[TileContent]:
        rows = self._pieces.execute(
            "SELECT tile, layer, properties, geometry FROM piece ORDER BY tile, layer, number"
        )
        by_tile = itertools.groupby(rows, key=lambda row: row[0])
        for packed, of_tile in by_tile:
            content = encoded(
                (layer, properties, shapely.from_wkb(geometry))
                for _, layer, properties, geometry in of_tile
            )
            if content is not None:
                yield TileContent(_unpacked(packed), gzip.compress(content, mtime=_NO_TIME))

    def _sort(self, found: Iterable[Feature]) -> None:
        # The file need not survive a crash.
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "temp_store=FILE"):
            self._pieces.execute(f"PRAGMA {pragma}")
        self._pieces.execute(
            "CREATE TABLE piece (tile INTEGER, layer INTEGER, number INTEGER, properties TEXT, "
            "geometry BLOB)"
        )
        rows = self._rows(found)
        while some := list(itertools.islice(rows, _AT_ONCE)):
            self._pieces.execute("BEGIN")
            self._pieces.executemany("INSERT INTO piece VALUES (?, ?, ?, ?, ?)", some)
            self._pieces.execute("COMMIT")
        self._pieces.execute("CREATE INDEX piece_tile ON piece (tile, layer, number)")

    def _rows(self, found: Iterable[Feature]) -> Iterator[tuple[int, int, int, str, bytes]]:
        for number, feature in enumerate(found):
            layer = LAYERS.index(feature.kind.layer)
            properties = json.dumps(dict(feature.kind.properties))
            from_zoom = max(feature.kind.from_zoom, FROM_ZOOM)
            try:
                for part in projected(feature.geometry):
                    for tile, geometry in pieces(part, from_zoom, TO_ZOOM, _MOST_PIECES):
                        yield _packed(tile), layer, number, properties, shapely.to_wkb(geometry)
            except (GEOSException, ValueError, TooManyPiecesError):
                # Some of its pieces may be stored already; these are correct in their tiles.
                self.left_out += 1


def _packed(tile: Tile) -> int:
    return (tile.z << 2 * _PACKED_BITS) | (tile.x << _PACKED_BITS) | tile.y


def _unpacked(packed: int) -> Tile:
    mask = (1 << _PACKED_BITS) - 1
    return Tile(packed >> 2 * _PACKED_BITS, packed >> _PACKED_BITS & mask, packed & mask)
