"""Vector tiles of an extract: made, and sent to the service or stored, with progress bars."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from rich.progress import Progress

from underpass_control.commands.console import bars
from underpass_control.commands.maps import with_progress

# Geometry takes a second to import, so a verb imports it when it makes tiles.
if TYPE_CHECKING:
    from underpass_control.client import Client
    from underpass_control.storage.changes import Changes
    from underpass_control.storage.database import Database
    from underpass_control.tiles.encoding import TileContent
    from underpass_control.tiles.making import Tiles

_MEDIA_TYPE = "application/json-seq"
# A long bound: the tiles of a country are made while they are sent.
_WITHIN_S = 6 * 3_600.0
_PORTION = 200


def make_tiles(path: Path) -> Tiles:
    """Read the drawn features of an extract; if it is wrong, end with the reason."""
    from underpass_control.tiles.making import Tiles

    return with_progress(lambda tell: Tiles(path, tell))


async def put_tiles(client: Client, path: str, tiles: Tiles) -> int:
    """Send a map's tiles to the service, by the map's path; return how many there are."""
    from underpass_control.tiles.sequence import to_text

    with bars() as bar:

        async def parts() -> AsyncIterator[bytes]:
            for one in _advancing(bar, tiles):
                yield to_text(one)

        taken = await client.upload(f"{path}/tiles", _MEDIA_TYPE, parts(), _WITHIN_S)
    count: int = taken["tiles"]
    return count


async def store_tiles(database: Database, changes: Changes, source: str, tiles: Tiles) -> int:
    """Store a map's tiles; return how many there are."""
    from underpass_control.storage import tilesets

    with bars() as bar:

        async def portions() -> AsyncIterator[list[TileContent]]:
            made = _advancing(bar, tiles)
            while some := list(itertools.islice(made, _PORTION)):
                yield some

        return (await tilesets.replace(database, changes, source, portions())).tiles


def _advancing(bar: Progress, tiles: Tiles) -> Iterator[TileContent]:
    task = bar.add_task("tiles", total=tiles.most)
    for one in tiles:
        yield one
        bar.advance(task)
