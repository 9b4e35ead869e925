"""Maps from files, for people who wait."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console
from rich.progress import Progress, TaskID

from dama.prediction import Obstruction
from dama.prediction.geojson import GeoJsonError
from underpass_control.commands.console import fail
from underpass_control.obstructions.geojson import import_geojson
from underpass_control.obstructions.osm import ExtractError, import_osm


def read_map(path: Path) -> list[Obstruction]:
    """Read GeoJSON, or an OpenStreetMap extract; end with what is wrong with it."""
    try:
        if path.suffix in (".json", ".geojson"):
            return import_geojson(path)
        with Progress(console=Console(stderr=True), transient=True) as bar:
            tasks: dict[str, TaskID] = {}

            def tell(step: str, done: int, total: int | None) -> None:
                if step not in tasks:
                    tasks[step] = bar.add_task(step, total=total)
                bar.update(tasks[step], completed=done, total=total)

            return import_osm(path, progress=tell)
    except (ExtractError, GeoJsonError) as error:
        fail(str(error))
