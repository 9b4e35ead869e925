"""What hides the sky around a place, by the obstructions that are stored."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Annotated, Any

import shapely
from pydantic import Field

from dama.prediction.areas import area_of
from dama.prediction.places import METRES_PER_DEGREE, Course, Plane, Position
from underpass_control.http import models
from underpass_control.http.at_once import InTurn
from underpass_control.http.endpoint import EVERYBODY, Call, Endpoint
from underpass_control.http.obstructions import correct, for_tenants
from underpass_control.http.tenancy import Tenancy
from underpass_control.storage import obstructions
from underpass_control.storage.boxes import Box
from underpass_control.storage.database import Database

# The most obstructions that are compared with a place, and the most stretches that are shown.
_MOST_COMPARED, _MOST_SHOWN = 200, 1_000
# Places looked at at a time, and those that may wait: each takes memory and time of the processor.
_AT_ONCE, _MOST_WAITING = 2, 1_024
# A degree of latitude is up to half a per cent shorter than on average.
_MARGIN = 1.01
_SHOWN = ("name", "kind", "satellite", "source")


class SkyQuery(models.Model):
    """Which place, and how far around it; of which satellite, None: of any."""

    longitude: models.Longitude
    latitude: models.Latitude
    radius_m: Annotated[float, Field(gt=0, le=1_000, allow_inf_nan=False)] = 50.0
    satellite: models.SatelliteName | None = None


class Hidden(models.Model):
    """A stretch of road in one direction of driving, or an area, where the sky is hidden.

    `satellite` is absent where all are hidden, `heading_deg` for areas. `certainty` is what the
    service predicts with: the map's, or what drives have made of it.
    """

    obstruction: str
    name: str
    kind: str
    satellite: str | None = None
    certainty: float
    source: str
    distance_m: float
    heading_deg: float | None = None
    geometry: dict[str, Any]


class HiddenAround(models.Model):
    """Where the sky is hidden around a place, the nearest first; `is_whole` if that is all."""

    hidden: list[Hidden]
    is_whole: bool


class Sky:
    """The endpoint of the sky around a place."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._turns = InTurn(_AT_ONCE, _MOST_WAITING, "places")

    def endpoints(self) -> list[Endpoint]:
        """Return it."""
        return [
            Endpoint(
                "GET",
                "/v1/sky",
                "What hides the sky on roads around a place, the nearest first",
                self._around,
                EVERYBODY,
                tenancy=Tenancy.SHARED,
                query=SkyQuery,
                answers=HiddenAround,
            )
        ]

    async def _around(self, call: Call) -> HiddenAround:
        async with self._turns.one(call):
            return await self._found(call)

    async def _found(self, call: Call) -> HiddenAround:
        query = call.query(SkyQuery)
        place = query.longitude, query.latitude
        box = _box(place, query.radius_m)
        async with self._database.reading() as connection:
            found = await obstructions.around(connection, place, box, limit=_MOST_COMPARED)
        is_whole = len(found) < _MOST_COMPARED
        await correct(self._database, found)
        compared: Iterable[dict[str, Any]] = found
        if call.known_caller.tenant is not None:
            compared = map(for_tenants, compared)
        # A large obstruction has some thousand roads.
        hidden, is_all = await asyncio.to_thread(_hidden, compared, place, query)
        return HiddenAround(hidden=hidden, is_whole=is_whole and is_all)


def _box(place: Position, radius_m: float) -> Box:
    """Return the part of the map around a place."""
    lon, lat = place
    north = _MARGIN * radius_m / METRES_PER_DEGREE
    east = north / max(math.cos(math.radians(lat)), 1e-3)
    return Box(lon - east, lat - north, lon + east, lat + north)


def _hidden(
    features: Iterable[Mapping[str, Any]], place: Position, query: SkyQuery
) -> tuple[list[Hidden], bool]:
    """Return the nearest stretches, as many as are shown, and whether these are all."""
    found = []
    for feature in features:
        of = feature["properties"]
        if query.satellite is not None and of.get("satellite") not in (None, query.satellite):
            continue
        for distance_m, heading_deg, geometry in _parts(feature["geometry"], place):
            if distance_m <= query.radius_m:
                order = round(distance_m, 1), feature["id"], heading_deg or 0.0
                found.append((order, heading_deg, geometry, of))
    found.sort(key=lambda one: one[0])
    shown = [
        Hidden(
            obstruction=name,
            distance_m=distance_m,
            heading_deg=heading_deg,
            geometry=geometry,
            certainty=of.get("corrected", of["certainty"]),
            **{key: of[key] for key in _SHOWN if key in of},
        )
        for (distance_m, name, _), heading_deg, geometry, of in found[:_MOST_SHOWN]
    ]
    return shown, len(found) <= _MOST_SHOWN


def _parts(
    geometry: Mapping[str, Any], place: Position
) -> Iterator[tuple[float, float | None, dict[str, Any]]]:
    """Yield the distance of each road, or of the area, from a place; its heading; the geometry."""
    lines = [[(lon, lat) for lon, lat in line] for line in geometry["coordinates"]]
    if geometry["type"] == "Polygon":
        plane = Plane(place)
        area = area_of([plane.xy(corner) for corner in ring] for ring in lines)
        # The distance of an area that encloses nothing is no number.
        yield area.distance(shapely.Point(0.0, 0.0)), None, dict(geometry)
        return
    for line in lines:
        foot = Course(tuple(line)).foot(place, 0, len(line) - 1)
        drawn = {"type": "LineString", "coordinates": line}
        yield foot.lateral_m, round(foot.heading_deg, 1), drawn
