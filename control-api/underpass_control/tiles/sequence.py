"""Tiles as a JSON text sequence (RFC 7464), which an import sends to the service.

Each text is `{"tile": [z, x, y], "content": "…"}`; the content is gzipped Mapbox Vector Tile, in
base64.
"""

from __future__ import annotations

import base64
import json
import zlib
from typing import Any

from google.protobuf.message import DecodeError
from mapbox_vector_tile.Mapbox import vector_tile_pb2

from underpass_control.tiles.encoding import MOST_TILE_BYTES, TileContent
from underpass_control.tiles.grid import EXTENT, MOST_ZOOM, Tile
from underpass_control.tiles.kinds import LAYERS

# A content that hardly compresses, in base64, with the JSON around it.
MOST_TEXT_BYTES = MOST_TILE_BYTES * 4 // 3 + 1000
_GZIP = 16 + zlib.MAX_WBITS


class TileError(ValueError):
    """A text that is not a tile."""


def to_text(one: TileContent) -> bytes:
    """Return a tile as a text of the sequence, with the record separator."""
    content = base64.b64encode(one.content).decode("ascii")
    return b"\x1e" + json.dumps({"tile": one.tile, "content": content}).encode() + b"\n"


def from_text(text: bytes) -> TileContent:
    """Read a text, without separators.

    Browsers get the content as it is, so it is checked here: it is unpacked, up to the greatest
    length allowed, and its layers are validated.

    Raises:
        TileError: It is not a tile of the map's ground.
    """
    try:
        document = json.loads(text)
        content = base64.b64decode(document["content"], validate=True)
        tile = _tile(document["tile"])
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        if isinstance(error, TileError):
            raise
        raise TileError("it has not the members tile and content, or they are no such") from error
    _check(unpacked(content))
    return TileContent(tile, content)


def unpacked(content: bytes) -> bytes:
    """Return the uncompressed content.

    Raises:
        TileError: It is not gzipped, or too long.
    """
    unpacking = zlib.decompressobj(_GZIP)
    try:
        raw = unpacking.decompress(content, MOST_TILE_BYTES + 1)
    except zlib.error as error:
        raise TileError("its content is not gzipped") from error
    if len(raw) > MOST_TILE_BYTES:
        raise TileError(f"its content has more than {MOST_TILE_BYTES} bytes")
    if not unpacking.eof or unpacking.unused_data:
        raise TileError("its content is not one whole gzip member")
    return raw


def _tile(given: Any) -> Tile:
    if not isinstance(given, list) or len(given) != 3 or {type(one) for one in given} != {int}:
        raise TileError("its tile is not three whole numbers")
    tile = Tile(*given)
    if not tile.is_on_map:
        raise TileError(f"there is no tile {given} up to zoom {MOST_ZOOM}")
    return tile


def _check(raw: bytes) -> None:
    made = vector_tile_pb2.tile()
    try:
        made.ParseFromString(raw)
    except DecodeError as error:
        raise TileError("its content is no vector tile") from error
    names = [layer.name for layer in made.layers]
    if not names or len(set(names)) < len(names) or not set(names) <= set(LAYERS):
        raise TileError(f"its layers are not some of {', '.join(LAYERS)}")
    if any(layer.version != 2 or layer.extent != EXTENT for layer in made.layers):
        raise TileError(f"a layer is not of version 2 with an extent of {EXTENT}")
