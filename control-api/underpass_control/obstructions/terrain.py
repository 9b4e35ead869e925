"""Heights of the ground from files: GeoTIFF, SRTM's HGT, and what else GDAL reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import rasterio
from rasterio.errors import RasterioError
from rasterio.merge import merge

from dama.sky import HeightGrid, SkyError

# Memory for one grid, as 8 bytes each: some ten tiles of SRTM at 30 m.
_MOST_CELLS = 150_000_000
# Further around the roads than this no mountain hides a satellite that is 10° high or more.
_MARGIN_DEG = 0.3


class TerrainError(Exception):
    """A file of heights that cannot be read or used."""


def read_terrain(
    paths: Sequence[Path], box: tuple[float, float, float, float], error_m: float
) -> HeightGrid:
    """Read the heights around a box (west, south, east, north in degrees).

    Files must be in degrees of WGS 84, as SRTM and Copernicus DEM are. `error_m` is the standard
    deviation of a height. Raises `TerrainError`.
    """
    west, south, east, north = box
    bounds = (west - _MARGIN_DEG, south - _MARGIN_DEG, east + _MARGIN_DEG, north + _MARGIN_DEG)
    opened = []
    try:
        for path in paths:
            if not path.is_file():
                raise TerrainError(f"{path}: no such file")
            source = rasterio.open(path)
            opened.append(source)
            if source.crs is None or not source.crs.is_geographic:
                raise TerrainError(f"{path}: its heights are not on a grid of degrees (EPSG:4326)")
        step_x, step_y = opened[0].res
        cells = math.prod(
            math.ceil((high - low) / step)
            for low, high, step in ((bounds[0], bounds[2], step_x), (bounds[1], bounds[3], step_y))
        )
        if cells > _MOST_CELLS:
            raise TerrainError(f"{cells} heights around the roads: take the map in parts")
        bands, transform = merge(
            opened, bounds=bounds, nodata=math.nan, dtype="float32", indexes=[1]
        )
    except (RasterioError, ValueError) as error:
        raise TerrainError(f"{paths[0]}: {error}") from error
    finally:
        for source in opened:
            source.close()
    heights = np.asarray(bands[0], dtype=np.float64)
    # SRTM's voids, where a file does not declare them.
    heights[heights < -1_000.0] = math.nan
    try:
        return HeightGrid(
            west=transform.c + transform.a / 2.0,
            north=transform.f + transform.e / 2.0,
            step_deg=(transform.a, -transform.e),
            heights=heights,
            error_m=error_m,
        )
    except SkyError as error:
        raise TerrainError(f"{paths[0]}: {error}") from error
