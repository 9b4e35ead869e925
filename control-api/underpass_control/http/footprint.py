"""Where a beam is received: an area of GeoJSON (RFC 7946)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

# Of all rings together: every list of beams has all footprints.
MOST_POSITIONS = 1_000

_Longitude = Annotated[float, Field(ge=-180, le=180, allow_inf_nan=False)]
_Latitude = Annotated[float, Field(ge=-90, le=90, allow_inf_nan=False)]
_Ring = Annotated[
    list[tuple[_Longitude, _Latitude]], Field(min_length=4, max_length=MOST_POSITIONS)
]
_Rings = Annotated[list[_Ring], Field(min_length=1, max_length=100)]


class _Area(BaseModel):
    """An area, by its rings: the outer one of each part, then those of its holes."""

    model_config = ConfigDict(extra="forbid")

    def rings(self) -> Iterator[list[tuple[float, float]]]:
        """Yield all rings."""
        raise NotImplementedError

    @model_validator(mode="after")
    def _sound(self) -> Self:
        count = 0
        for ring in self.rings():
            if ring[0] != ring[-1]:
                raise ValueError("a ring does not end where it begins")
            count += len(ring)
        if count > MOST_POSITIONS:
            raise ValueError(f"it has {count} positions, and may have {MOST_POSITIONS}")
        return self


class Polygon(_Area):
    """An area of one part."""

    type: Literal["Polygon"]
    coordinates: _Rings

    def rings(self) -> Iterator[list[tuple[float, float]]]:
        """Yield all rings."""
        yield from self.coordinates


class MultiPolygon(_Area):
    """An area of several parts, as one is that the antimeridian cuts (RFC 7946 § 3.1.9)."""

    type: Literal["MultiPolygon"]
    coordinates: Annotated[list[_Rings], Field(min_length=1, max_length=100)]

    def rings(self) -> Iterator[list[tuple[float, float]]]:
        """Yield all rings."""
        for part in self.coordinates:
            yield from part


Footprint = Annotated[Polygon | MultiPolygon, Field(discriminator="type")]
