"""Where the roads of an OpenStreetMap extract see a satellite, and where it is hidden."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from dama.prediction import Obstruction, ObstructionError
from dama.prediction.cover import obstructions_of
from dama.prediction.network import Network
from dama.sky import AntennaMask, HeightGrid, Masks, Satellite, SkyError, shade
from dama.sky.foreseen import MIN_LENGTH_M, cut_shaded, shadows_of
from dama.sky.roads import lanes_of
from underpass_control.obstructions.extract import ExtractError, Progress, quiet
from underpass_control.obstructions.surroundings import Surroundings, read_surroundings
from underpass_control.obstructions.terrain import TerrainError, read_terrain


@dataclass(frozen=True)
class View:
    """The conditions, besides the map, that decide which places see a satellite.

    `terrain` are files of heights, `terrain_error_m` is the standard deviation of a height, and
    `left_hand` is true where vehicles drive on the left.
    """

    antenna: AntennaMask
    terrain: tuple[Path, ...] = ()
    terrain_error_m: float = 5.0
    left_hand: bool = False


@dataclass(frozen=True)
class Gaps:
    """What the files lack.

    `left_out` is the number of objects without a usable shape. `unknown_m` has for each satellite
    the metres of lanes from which ground of unknown height may hide it, of `metres` in all.
    """

    left_out: int
    metres: int
    unknown_m: Mapping[str, int]


def _ignored(_gaps: Gaps) -> None:
    """Report no gaps."""


def import_sky(
    path: Path,
    satellites: tuple[Satellite, ...],
    view: View,
    *,
    progress: Progress = quiet,
    gaps: Callable[[Gaps], None] = _ignored,
) -> list[Obstruction]:
    """Read an extract's tunnels and covered ways, and where else its roads see no satellite.

    A shadow counts only for the satellite that is hidden there. Where the height of the ground is
    unknown, it hides nothing; `gaps` is called with where that is. All roads and buildings of the
    extract are in memory at once. Raises `ExtractError`.
    """
    found = _read(path, progress)
    try:
        network = Network(found.ways, found.turns, found.lights)
        masks = _masks(path, found, network, satellites, view, progress)
        gaps(_gaps(found, masks))
        cut_shaded(network, masks, left_hand=view.left_hand)
        steps = 1 + len(satellites)
        progress("obstructions", 0, steps)
        obstructions = obstructions_of(network, min_length_m=MIN_LENGTH_M)
        for done, satellite in enumerate(satellites, 1):
            progress("obstructions", done, steps)
            obstructions += shadows_of(network, satellite.name)
    except ObstructionError as error:
        raise ExtractError(f"{path}: {error}") from error
    progress("obstructions", steps, steps)
    return obstructions


def masks_of(
    path: Path,
    satellites: tuple[Satellite, ...],
    view: View,
    *,
    progress: Progress = quiet,
    gaps: Callable[[Gaps], None] = _ignored,
) -> list[Masks]:
    """Read an extract, and return for each satellite where its roads see it.

    `gaps` is called with what the files lack. Raises `ExtractError`.
    """
    found = _read(path, progress)
    try:
        network = Network(found.ways)
    except ObstructionError as error:
        raise ExtractError(f"{path}: {error}") from error
    masks = _masks(path, found, network, satellites, view, progress)
    gaps(_gaps(found, masks))
    return masks


def _read(path: Path, progress: Progress) -> Surroundings:
    found = read_surroundings(path, progress)
    if not any(len(way.line) > 1 for way in found.ways):
        raise ExtractError(f"{path}: it has no roads")
    return found


def _masks(
    path: Path,
    found: Surroundings,
    network: Network,
    satellites: tuple[Satellite, ...],
    view: View,
    progress: Progress,
) -> list[Masks]:
    lanes = lanes_of(network, left_hand=view.left_hand)
    made = []
    try:
        terrain = _terrain(found, view) if view.terrain else None
        for number, satellite in enumerate(satellites):
            progress("shadows", number, len(satellites))
            made.append(
                shade(
                    lanes,
                    found.obstacles,
                    found.heights,
                    satellite,
                    antenna=view.antenna,
                    terrain=terrain,
                )
            )
    except SkyError as error:
        raise ExtractError(f"{path}: {error}") from error
    except TerrainError as error:
        raise ExtractError(str(error)) from error
    return made


def _gaps(found: Surroundings, masks: list[Masks]) -> Gaps:
    return Gaps(
        left_out=found.without_shape,
        metres=max((one.metres for one in masks), default=0),
        unknown_m={one.satellite.name: one.unknown_m for one in masks},
    )


def _terrain(found: Surroundings, view: View) -> HeightGrid:
    lons, lats = zip(*(place for way in found.ways for place in way.line), strict=True)
    if max(lons) - min(lons) > 180.0:
        # The map lies on both sides of the 180th meridian.
        lons = tuple(lon % 360.0 for lon in lons)
    box = (min(lons), min(lats), max(lons), max(lats))
    return read_terrain(view.terrain, box, view.terrain_error_m)
