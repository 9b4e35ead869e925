"""The area in which a beam is received, as GeoJSON (RFC 7946)."""

from __future__ import annotations

from itertools import chain
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

# The most positions of all rings together: every list of beams has all footprints.
MOST_POSITIONS = 1_000


def _closed(ring: list[tuple[float, float]]) -> list[tuple[float, float]]:
    if ring[0] != ring[-1]:
        raise ValueError("a ring does not end where it begins")
    return ring


_Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]
_Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
_Ring = Annotated[
    list[tuple[_Longitude, _Latitude]],
    Field(min_length=4, max_length=MOST_POSITIONS),
    AfterValidator(_closed),
]
# The outer ring, then those of its holes.
_Rings = Annotated[list[_Ring], Field(min_length=1, max_length=100)]


class Polygon(BaseModel):
    """An area of one part."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["Polygon"]
    coordinates: _Rings


class MultiPolygon(BaseModel):
    """An area of several parts, as one is that the antimeridian cuts (RFC 7946 § 3.1.9)."""

    model_config = ConfigDict(extra="forbid")

    type: Literal["MultiPolygon"]
    coordinates: Annotated[list[_Rings], Field(min_length=1, max_length=100)]


def _bounded(area: Polygon | MultiPolygon) -> Polygon | MultiPolygon:
    parts = [area.coordinates] if isinstance(area, Polygon) else area.coordinates
    count = sum(map(len, chain.from_iterable(parts)))
    if count > MOST_POSITIONS:
        raise ValueError(f"it has {count} positions, and may have {MOST_POSITIONS}")
    return area


Footprint = Annotated[Polygon | MultiPolygon, Field(discriminator="type"), AfterValidator(_bounded)]
