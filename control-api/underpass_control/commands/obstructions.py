"""`underpass-control obstruction`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import Progress

from dama.prediction import Obstruction
from dama.prediction.geojson import to_feature, to_geojson
from underpass_control.client import Client
from underpass_control.commands.console import (
    DEFAULT_URL,
    JsonOption,
    TokenOption,
    UrlOption,
    fail,
    tell,
    with_client,
)
from underpass_control.commands.database import DEFAULT_DATABASE, DatabaseOption, with_database
from underpass_control.commands.maps import read_map
from underpass_control.commands.tables import Column, Service
from underpass_control.storage import obstructions as stored
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database

obstructions = typer.Typer(help="What cuts the line of sight.", no_args_is_help=True)

# A request has 8 MiB at most; an obstruction with its roads some kilobytes.
_MOST_FEATURES, _MOST_BYTES = 500, 4 << 20
OBSTRUCTION = (
    Column("id", "id"),
    Column("name", "properties.name"),
    Column("kind", "properties.kind"),
    Column("certainty", "properties.certainty"),
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
    as_json: JsonOption = False,
) -> None:
    """Take in the road tunnels and covered ways of a map; again, it changes nothing.

    Example: underpass-control obstruction import andorra.osm.pbf --url http://127.0.0.1:8470
    """
    found = read_map(path)
    if url is not None:
        with_client(url, token, lambda client: _post(client, found))
    else:
        _store(database, path.name[:64], found)
    tell({"imported": len(found)}, f"{len(found)} obstructions imported", as_json=as_json)


@obstructions.command("list")
def list_obstructions(
    bbox: Annotated[
        str | None, typer.Option(help="What touches west,south,east,north (degrees).")
    ] = None,
    url: UrlOption = DEFAULT_URL,
    token: TokenOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show the obstructions that the service knows; as JSON, GeoJSON features.

    Example: underpass-control obstruction list --bbox 1.4,42.4,1.8,42.7
    """
    query = {"bbox": bbox}
    Service(url, token, as_json).show_all("/v1/obstructions", "features", OBSTRUCTION, query)


def _store(database: str, source: str, found: Sequence[Obstruction]) -> None:
    async def run(opened: Database) -> None:
        changes = Changes(opened, lambda _: None, lambda: None)
        async with changes.transaction() as (connection, announce):
            await stored.put(connection, announce, source, found)

    try:
        with_database(database, run)
    except stored.UnstorableError as error:
        fail(str(error))


async def _post(client: Client, found: Sequence[Obstruction]) -> None:
    with Progress(console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("sent", total=len(found))
        for part in _parts(found):
            body: dict[str, Any] = to_geojson(part)
            await client.ask("POST", "/v1/obstructions", body=body)
            bar.advance(task, len(part))


def _parts(found: Sequence[Obstruction]) -> Iterator[list[Obstruction]]:
    part: list[Obstruction] = []
    size = 0
    for one in found:
        adds = len(json.dumps(to_feature(one)))
        if part and (len(part) == _MOST_FEATURES or size + adds > _MOST_BYTES):
            yield part
            part, size = [], 0
        part.append(one)
        size += adds
    if part:
        yield part
