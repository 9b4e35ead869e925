"""Options for satellites and the antenna; and where a satellite is hidden."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from underpass_control.commands.console import fail, warn
from underpass_control.commands.maps import with_progress

if TYPE_CHECKING:
    from dama.sky import Masks, Satellite
    from underpass_control.obstructions.sky import Gaps, View

_SATELLITE = re.compile(r"([A-Za-z0-9._-]{1,32})=(-?\d{1,3}(?:\.\d{1,4})?)", re.ASCII)
_ANTENNA_POINT = re.compile(r"(\d{1,3}(?:\.\d+)?):(\d{1,2}(?:\.\d+)?)", re.ASCII)

AntennaOption = Annotated[
    str | None,
    typer.Option(
        "--antenna",
        help="Least elevation by azimuth from the nose, in degrees: 0:10,180:25. One number holds"
        " all around; default 5.",
    ),
]
HeightOption = Annotated[
    float, typer.Option("--antenna-height", help="Of the antenna above the road, in metres.")
]
TerrainOption = Annotated[
    list[Path] | None,
    typer.Option("--terrain", help="Heights of the ground, GeoTIFF or HGT; as often as needed."),
]
TerrainErrorOption = Annotated[
    float, typer.Option("--terrain-error", help="Standard deviation of such a height, in metres.")
]
LeftHandOption = Annotated[bool, typer.Option("--left-hand", help="One drives on the left.")]


def satellite_of(text: str) -> Satellite:
    """Return the satellite that `NAME=LONGITUDE` names; if it is wrong, end with the reason."""
    from dama.sky import Satellite, SkyError

    found = _SATELLITE.fullmatch(text)
    if found is None:
        fail(f"{text!r} is no NAME=LONGITUDE, as astra=19.2 (degrees east)")
    try:
        return Satellite(found[1], float(found[2]))
    except SkyError as error:
        fail(str(error))


def satellites_of(texts: Sequence[str]) -> tuple[Satellite, ...]:
    """Return the named satellites; if they are wrong, end with the reason."""
    found = tuple(satellite_of(text) for text in texts)
    if len({one.name for one in found}) != len(found):
        fail("two satellites have the same name")
    return found


def view_of(
    antenna: str | None,
    height_m: float,
    terrain: list[Path] | None,
    terrain_error_m: float,
    *,
    left_hand: bool,
) -> View:
    """Return the options' view; if they are wrong, end with the reason."""
    from dama.sky import AntennaMask, SkyError
    from underpass_control.obstructions.sky import View

    points: tuple[tuple[float, float], ...] = AntennaMask().points
    if antenna is not None:
        parts = [_ANTENNA_POINT.fullmatch(part) for part in _all_around(antenna).split(",")]
        if not all(parts):
            fail(f"{antenna!r} is no elevation, nor AZIMUTH:ELEVATION,…")
        points = tuple((float(part[1]), float(part[2])) for part in parts if part)
    try:
        return View(AntennaMask(points, height_m), tuple(terrain or ()), terrain_error_m, left_hand)
    except SkyError as error:
        fail(str(error))


def _all_around(text: str) -> str:
    return text if ":" in text else f"0:{text}"


def warn_of(gaps: Gaps) -> dict[str, Any]:
    """Warn of what the files lack; return the same for programs."""
    for satellite, unknown_m in gaps.unknown_m.items():
        if unknown_m:
            warn(
                f"ground of unknown height may hide {satellite} along {unknown_m / 1000:.1f} of "
                f"{gaps.metres / 1000:.1f} km of lanes, and is ignored there: --terrain lacks it"
            )
    if gaps.left_out:
        warn(f"objects left out, since they have no usable shape: {gaps.left_out}")
    return {"left_out": gaps.left_out, "unknown_m": dict(gaps.unknown_m)}


def write_masks(
    path: Path, satellites: tuple[Satellite, ...], view: View, to: Path
) -> dict[str, Any]:
    """Write where satellites are hidden from an extract's roads; return how many intervals.

    Also return what the files lack, after a warning.
    """
    from underpass_control.obstructions.sky import masks_of

    lacks: list[Gaps] = []
    made = with_progress(
        lambda tell: masks_of(path, satellites, view, progress=tell, gaps=lacks.append)
    )
    count = 0
    try:
        # One feature a line: such files are large, and many programs read them line by line.
        with to.open("w") as file:
            file.write('{"type":"FeatureCollection","features":[')
            for masks in made:
                for feature in _features(masks):
                    file.write((",\n" if count else "\n") + json.dumps(feature))
                    count += 1
            file.write("\n]}\n")
    except OSError as error:
        fail(f"{to}: {error.strerror}")
    return {"intervals": count, **warn_of(lacks[0])}


def _features(masks: Masks) -> Iterator[dict[str, Any]]:
    for lane in masks.lanes:
        for interval in masks.of(lane.id):
            line = masks.line_of(lane.id, interval)
            yield {
                "type": "Feature",
                "geometry": {
                    "type": "LineString",
                    "coordinates": [[round(lon, 7), round(lat, 7)] for lon, lat in line],
                },
                "properties": {
                    "satellite": masks.satellite.name,
                    "lane": lane.id,
                    "from_m": round(interval.from_m, 1),
                    "to_m": round(interval.to_m, 1),
                    "state": interval.state.value,
                    "probability": round(interval.probability, 3),
                },
            }
