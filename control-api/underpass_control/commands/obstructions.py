"""`underpass-control obstruction`."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from underpass_control.client import Client, path_of
from underpass_control.commands.console import (
    JsonOption,
    TokenOption,
    bars,
    fail,
    tell,
    with_client,
)
from underpass_control.commands.database import DEFAULT_DATABASE, DatabaseOption, with_database
from underpass_control.commands.maps import is_geojson, read_map, with_progress
from underpass_control.commands.sky import (
    AntennaOption,
    HeightOption,
    LeftHandOption,
    TerrainErrorOption,
    TerrainOption,
    satellites_of,
    view_of,
    warn_of,
    write_masks,
)
from underpass_control.commands.tables import Column, Service, asking
from underpass_control.commands.tiles import make_tiles, put_tiles, store_tiles

if TYPE_CHECKING:
    from dama.prediction import Obstruction
    from underpass_control.obstructions.sky import Gaps
    from underpass_control.storage.database import Database
    from underpass_control.tiles.making import Tiles

obstructions = typer.Typer(help="What cuts the line of sight.", no_args_is_help=True)

_MEDIA_TYPE = "application/geo+json-seq"
_FEATURES_OF_PART = 100
# For a large map, storing takes as long as sending.
_WITHIN_S = 1_800.0
OBSTRUCTION = (
    Column("id", "id"),
    Column("name", "properties.name"),
    Column("kind", "properties.kind"),
    Column("certainty", "properties.certainty"),
    Column("satellite", "properties.satellite"),
    Column("source", "properties.source"),
)


@obstructions.command("import")
def import_obstructions(
    path: Annotated[Path, typer.Argument(help="An OpenStreetMap extract, or GeoJSON.")],
    url: Annotated[
        str | None,
        typer.Option("--url", help="By a running service, which plans with them at once."),
    ] = None,
    token: TokenOption = None,
    database: DatabaseOption = DEFAULT_DATABASE,
    satellite: Annotated[
        list[str] | None,
        typer.Option(
            help="NAME=LONGITUDE: take in, too, where an extract's roads do not see it; as often as"
            " there are satellites."
        ),
    ] = None,
    antenna: AntennaOption = None,
    antenna_height: HeightOption = 2.0,
    terrain: TerrainOption = None,
    terrain_error: TerrainErrorOption = 5.0,
    left_hand: LeftHandOption = False,
    source: Annotated[
        str | None,
        typer.Option(help="The name of the map that this replaces; without it, the file's."),
    ] = None,
    with_tiles: Annotated[
        bool,
        typer.Option(
            "--tiles/--no-tiles",
            help="Whether an extract's roads, water, land and places are the ground of maps, too.",
        ),
    ] = True,
    as_json: JsonOption = False,
) -> None:
    """Take in the road tunnels and covered ways of a map, in place of what it had before.

    With a satellite, shadows of buildings, trees, bridges and mountains are obstructions, too; they
    count for the beams of that satellite, and for those of which nobody has said a satellite.
    Maps are drawn on an OpenStreetMap extract's roads, water, land and places.

    Example: underpass-control obstruction import andorra.osm.pbf --url http://127.0.0.1:8470
    """
    told: dict[str, object] = {}
    if not satellite:
        found = read_map(path)
    elif is_geojson(path):
        fail(f"{path}: only an OpenStreetMap extract says what a satellite sees")
    else:
        from underpass_control.obstructions.sky import import_sky

        seen = satellites_of(satellite)
        view = view_of(antenna, antenna_height, terrain, terrain_error, left_hand=left_hand)
        lacks: list[Gaps] = []
        found = with_progress(
            lambda tell: import_sky(path, seen, view, progress=tell, gaps=lacks.append)
        )
        told = warn_of(lacks[0])
    name = source or path.name[:64]
    with ExitStack() as stack:
        tiles = None
        if with_tiles and not is_geojson(path):
            tiles = stack.enter_context(make_tiles(path))
        if not found and (tiles is None or not tiles.most):
            fail(f"{path}: there is nothing in it to import; `DELETE /v1/maps/` removes a map")
        if url is not None:
            done = with_client(url, token, lambda client: _put(client, name, found, tiles))
        else:
            done = _store(database, name, found, tiles)
    text = f"{len(found)} obstructions imported, {done.removed} of the former map removed"
    told = {"imported": len(found), "removed": done.removed, **told}
    if tiles is not None:
        text += f"; {done.tiles} tiles"
        told["tiles"] = done.tiles
    tell(told, text, as_json=as_json)


@obstructions.command("sky")
def write_sky(
    path: Annotated[Path, typer.Argument(help="An OpenStreetMap extract.")],
    to: Annotated[Path, typer.Argument(help="The GeoJSON file to write.")],
    satellite: Annotated[
        list[str], typer.Option(help="NAME=LONGITUDE (degrees east); as often as needed.")
    ],
    antenna: AntennaOption = None,
    antenna_height: HeightOption = 2.0,
    terrain: TerrainOption = None,
    terrain_error: TerrainErrorOption = 5.0,
    left_hand: LeftHandOption = False,
    as_json: JsonOption = False,
) -> None:
    """Write where satellites are clear, blocked, or perhaps blocked, along all lanes of a map.

    Example: underpass-control obstruction sky town.osm.pbf masks.geojson --satellite astra=19.2
    """
    view = view_of(antenna, antenna_height, terrain, terrain_error, left_hand=left_hand)
    told = write_masks(path, satellites_of(satellite), view, to)
    tell(told, f"{told['intervals']} intervals written to {to}", as_json=as_json)


@asking(obstructions, "list")
def list_obstructions(
    service: Service,
    bbox: Annotated[
        str | None, typer.Option(help="What touches west,south,east,north (degrees).")
    ] = None,
) -> None:
    """Show the obstructions that the service knows; as JSON, GeoJSON features.

    Example: underpass-control obstruction list --bbox 1.4,42.4,1.8,42.7
    """
    query = {"bbox": bbox}
    service.show_all("/v1/obstructions", "features", OBSTRUCTION, query)


class _Done(NamedTuple):
    removed: int
    tiles: int


def _store(database: str, source: str, found: Sequence[Obstruction], tiles: Tiles | None) -> _Done:
    from underpass_control.storage import obstructions as stored
    from underpass_control.storage import tilesets
    from underpass_control.storage.changes import Changes

    async def whole() -> AsyncIterator[Sequence[Obstruction]]:
        yield found

    async def run(opened: Database) -> _Done:
        changes = Changes(opened, lambda _: None, lambda: None)
        async with changes.transaction() as (connection, announce):
            removed = (await stored.replace(connection, announce, source, whole())).removed
            await tilesets.remove(connection, announce, source)
        count = 0 if tiles is None else await store_tiles(opened, changes, source, tiles)
        return _Done(removed, count)

    try:
        return with_database(database, run)
    except stored.UnstorableError as error:
        fail(str(error))


async def _put(
    client: Client, source: str, found: Sequence[Obstruction], tiles: Tiles | None
) -> _Done:
    path = path_of("maps", source)
    removed = await _put_features(client, path, found) if found else await _delete(client, source)
    count = 0 if tiles is None else await put_tiles(client, path, tiles)
    return _Done(removed, count)


async def _delete(client: Client, source: str) -> int:
    """Remove what a map had of which only tiles come now; return how many obstructions."""
    async for one in client.pages("/v1/maps", "maps"):
        if one["source"] == source:
            await client.ask("DELETE", path_of("maps", source))
            removed: int = one["obstructions"]
            return removed
    return 0


async def _put_features(client: Client, path: str, found: Sequence[Obstruction]) -> int:
    from dama.prediction.geojson import to_feature

    with bars() as bar:
        task = bar.add_task("sent", total=len(found))

        async def parts() -> AsyncIterator[bytes]:
            for start in range(0, len(found), _FEATURES_OF_PART):
                some = found[start : start + _FEATURES_OF_PART]
                yield "".join(json.dumps(to_feature(one)) + "\n" for one in some).encode()
                bar.advance(task, len(some))

        taken = await client.upload(path, _MEDIA_TYPE, parts(), _WITHIN_S)
    removed: int = taken["removed"]
    return removed
