"""Reads maps from files, with progress bars."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from rich.progress import TaskID

from underpass_control.commands.console import bars, fail

# Geometry and readers of extracts take a second to import, so a verb imports them when it runs.
if TYPE_CHECKING:
    from dama.prediction import Obstruction
    from underpass_control.obstructions.extract import Progress as Tell

R = TypeVar("R")


def is_geojson(path: Path) -> bool:
    """Tell whether a file is GeoJSON by its name."""
    return path.suffix in (".json", ".geojson")


def read_map(path: Path, *, corrected: bool = False) -> list[Obstruction]:
    """Read GeoJSON, or an OpenStreetMap extract; if it is wrong, end with the reason.

    With `corrected`, the certainties are those that a service's drives have made of the map's.
    """
    from dama.prediction.geojson import GeoJsonError
    from underpass_control.obstructions.geojson import import_geojson
    from underpass_control.obstructions.osm import import_osm

    if is_geojson(path):
        try:
            return import_geojson(path, corrected=corrected)
        except GeoJsonError as error:
            fail(str(error))
    return with_progress(lambda tell: import_osm(path, progress=tell))


def with_progress(read: Callable[[Tell], R]) -> R:
    """Read an extract and show the progress; if it is wrong, end with the reason."""
    from underpass_control.obstructions.extract import ExtractError

    try:
        with bars() as bar:
            tasks: dict[str, TaskID] = {}

            def tell(step: str, done: int, total: int | None) -> None:
                if step not in tasks:
                    tasks[step] = bar.add_task(step, total=total)
                bar.update(tasks[step], completed=done, total=total)

            return read(tell)
    except ExtractError as error:
        fail(str(error))
