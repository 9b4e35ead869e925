"""Heights of the ground from files: GeoTIFF, SRTM's HGT, or any format that GDAL reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import rasterio
from rasterio import Affine
from rasterio.errors import RasterioError
from rasterio.io import DatasetReader
from rasterio.merge import merge

from dama.sky import HeightGrid, SkyError
from dama.sky.satellite import Floats

# The most heights in one grid, of 8 bytes each: some ten tiles of SRTM at 30 m.
_MOST_CELLS = 150_000_000
# No mountain further from the roads than this hides a satellite at an elevation of 10° or more.
_MARGIN_DEG = 0.3


class TerrainError(Exception):
    """A file of heights that cannot be read or used."""


def read_terrain(
    paths: Sequence[Path], box: tuple[float, float, float, float], error_m: float
) -> HeightGrid:
    """Read the heights around a box (west, south, east, north in degrees).

    For a map on both sides of the 180th meridian, the box extends beyond 180 degrees. Files must be
    in degrees of WGS 84, as SRTM and Copernicus DEM are. `error_m` is the standard deviation of a
    height. Raises `TerrainError`.
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
        heights, transform = _merged(opened, bounds)
    except (RasterioError, ValueError) as error:
        raise TerrainError(f"{paths[0]}: {error}") from error
    finally:
        for source in opened:
            source.close()
    # Values this low are SRTM's voids, which some files do not declare.
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


def _merged(
    opened: Sequence[DatasetReader], bounds: tuple[float, float, float, float]
) -> tuple[Floats, Affine]:
    """Return the heights within bounds, and the transform of their grid.

    Files have longitudes of -180 to 180; the bounds may lie beyond.
    """
    west, south, east, north = bounds
    heights, transform = None, None
    for turn in (0.0, 360.0, -360.0):
        some = [
            source
            for source in opened
            if source.bounds.left < east + turn and source.bounds.right > west + turn
        ]
        if not some and turn != 0.0:
            continue
        bands, place = merge(
            some or opened,
            bounds=(west + turn, south, east + turn, north),
            res=opened[0].res,
            nodata=math.nan,
            dtype="float32",
            indexes=[1],
        )
        found = np.asarray(bands[0], dtype=np.float64)
        if heights is None or transform is None:
            heights, transform = found, place
        else:
            heights = np.where(np.isnan(heights), found, heights)
    assert heights is not None
    assert transform is not None
    return heights, transform
