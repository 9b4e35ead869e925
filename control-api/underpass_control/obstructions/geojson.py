"""Obstructions from a GeoJSON file."""

from __future__ import annotations

import json
from pathlib import Path

from dama.prediction import Obstruction
from dama.prediction.geojson import GeoJsonError, from_geojson

# The obstructions of a country with their roads take some tens of megabytes.
_MAX_BYTES = 512 * 1024 * 1024


def import_geojson(path: Path, *, corrected: bool = False) -> list[Obstruction]:
    """Read the obstructions of a file, as `from_geojson` does.

    Raises `GeoJsonError`, which says where the error is.
    """
    try:
        if path.stat().st_size > _MAX_BYTES:
            raise GeoJsonError(f"{path}: larger than {_MAX_BYTES} bytes")
        document = json.loads(path.read_bytes())
    except OSError as error:
        raise GeoJsonError(f"{path}: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        if isinstance(error, GeoJsonError):
            raise
        raise GeoJsonError(f"{path}: no JSON: {error}") from error
    return from_geojson(document, corrected=corrected)
