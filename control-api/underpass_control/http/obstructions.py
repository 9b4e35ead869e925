"""Obstructions: GeoJSON in and out."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Literal

from aiohttp import web
from pydantic import ConfigDict, Field, field_validator

from dama.prediction import Obstruction
from dama.prediction.geojson import GeoJsonError, from_geojson
from dama.prediction.learning import Learned
from underpass_control.access.audit import Changed
from underpass_control.http import models
from underpass_control.http.at_once import InTurn
from underpass_control.http.conditions import etag, is_known
from underpass_control.http.cursor import next_page, text_after
from underpass_control.http.endpoint import EVERYBODY, LARGEST, OPERATORS, Answer, Call, Endpoint
from underpass_control.http.problem import Problem
from underpass_control.http.tenancy import Tenancy
from underpass_control.storage import learned, obstructions, passages, scope
from underpass_control.storage.boxes import Box
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database

_MOST_AT_ONCE = 10_000
# The most obstructions, of those set at once, that the log of changes names.
_MOST_NAMED = 100
# Learned places stored in one transaction: each is compared with those around it.
_LEARNED_AT_ONCE = 50
_GIVES = "application/geo+json"
# Pages made at a time, and those that may wait: a page of thousands of roads takes memory, and time
# of the processor, and a whole fleet reads a changed map.
_PAGES_AT_ONCE, _MOST_WAITING = 4, 4_096
# A certainty that drives have corrected has one decimal: further ones would reveal the counts
# while they are small, and vehicles would have to read the map again after each passage.
_DECIMALS, _LEAST_TOLD = 1, 0.1
# The properties of a learned place that tenants see: what predictions need. Its counts, and all
# else that it may be stored with, say what other tenants' vehicles have met there.
_SHARED_OF_LEARNED = frozenset({"name", "kind", "layer", "satellite", "source", "roads"})


class ObstructionCollection(models.Model):
    """GeoJSON features: areas, axes of road tunnels, or what was exported here."""

    # Foreign members are allowed (RFC 7946, § 6.1).
    model_config = ConfigDict(extra="ignore")

    type: Literal["FeatureCollection"]
    features: Annotated[list[dict[str, Any]], Field(min_length=1, max_length=_MOST_AT_ONCE)]


class ObstructionPage(models.Model):
    """A page of obstructions, as GeoJSON."""

    type: Literal["FeatureCollection"] = "FeatureCollection"
    features: list[dict[str, Any]]
    next: str | None = None


class ObstructionQuery(models.Page):
    """Which obstructions: `bbox` is west,south,east,north in degrees (RFC 7946, § 5)."""

    bbox: Annotated[str, Field(max_length=200)] | None = None

    @field_validator("bbox")
    @classmethod
    def _on_the_map(cls, value: str | None) -> str | None:
        if value is not None:
            _box(value)
        return value


class Obstructions:
    """The endpoints of obstructions."""

    def __init__(self, database: Database, changes: Changes) -> None:
        self._database = database
        self._changes = changes
        self._turns = InTurn(_PAGES_AT_ONCE, _MOST_WAITING, "pages of obstructions")

    def endpoints(self) -> list[Endpoint]:
        """Return them."""
        return [
            Endpoint(
                "GET",
                "/v1/obstructions",
                "Obstructions, or those that touch a part of the map",
                self._page,
                EVERYBODY,
                tenancy=Tenancy.SHARED,
                query=ObstructionQuery,
                answers=ObstructionPage,
                media_type=_GIVES,
                others=[HTTPStatus.NOT_MODIFIED],
            ),
            Endpoint(
                "POST",
                "/v1/obstructions",
                "Set obstructions: those of the same id are replaced, others stay",
                self._set,
                OPERATORS,
                body=ObstructionCollection,
                most=LARGEST,
                answers=models.Accepted,
            ),
            Endpoint(
                "DELETE",
                "/v1/obstructions/{obstruction}",
                "Delete an obstruction",
                self._delete,
                OPERATORS,
            ),
        ]

    async def _page(self, call: Call) -> Answer | web.Response:
        async with self._turns.one(call):
            return await self._made(call)

    async def _made(self, call: Call) -> Answer | web.Response:
        query = call.query(ObstructionQuery)
        async with self._database.reading() as connection:
            found = await obstructions.page(
                connection,
                box=None if query.bbox is None else _box(query.bbox),
                after=text_after(query.cursor),
                limit=query.limit,
            )
        last = next_page(found, query.limit, lambda one: one["id"])
        await correct(self._database, found)
        if call.known_caller.tenant is not None:
            found = [for_tenants(one) for one in found]
        page = ObstructionPage(features=found, next=last)
        # Vehicles read the map over their own links. A page of thousands of roads is made,
        # compressed and hashed outside of the event loop.
        text, tag = await asyncio.to_thread(_content, page)
        headers = {"ETag": tag, "Vary": "Accept-Encoding"}
        if is_known(call, tag):
            return Answer(None, HTTPStatus.NOT_MODIFIED, headers)
        if "gzip" in call.request.headers.get("Accept-Encoding", ""):
            text = await asyncio.to_thread(gzip.compress, text)
            headers["Content-Encoding"] = "gzip"
        return web.Response(body=text, headers=headers, content_type=_GIVES, charset="utf-8")

    async def _set(self, call: Call) -> models.Accepted:
        try:
            features = call.body(ObstructionCollection).features
            # For a few megabytes this takes seconds, in which everything else would wait.
            found, places, others = await asyncio.to_thread(_read, features)
            async with self._changes.transaction() as (connection, publish):
                await obstructions.put(connection, publish, "rest", others)
                state = {"count": len(found), "ids": [one.id for one in found[:_MOST_NAMED]]}
                await call.record(connection, Changed("set", "/v1/obstructions", after=state))
            # Other work, such as the renewal of leases, runs between two transactions. An
            # interrupted import may be sent again.
            for begin in range(0, len(places), _LEARNED_AT_ONCE):
                async with self._changes.transaction() as (connection, publish):
                    some = places[begin : begin + _LEARNED_AT_ONCE]
                    await learned.take_in(connection, publish, some)
        except (GeoJsonError, obstructions.UnstorableError) as error:
            raise Problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error)) from error
        return models.Accepted(accepted=len(found))

    async def _delete(self, call: Call) -> Answer:
        name = call.path["obstruction"]
        async with self._changes.transaction() as (connection, publish):
            if not await obstructions.remove(connection, publish, name):
                raise Problem(HTTPStatus.NOT_FOUND, f"there is no obstruction {name}")
            await call.record(connection, Changed("delete", f"/v1/obstructions/{name}"))
        return Answer(None, HTTPStatus.NO_CONTENT)


def _read(
    features: Sequence[Mapping[str, Any]],
) -> tuple[list[Obstruction], list[Learned], list[Obstruction]]:
    """Return all obstructions of some features, learned ones apart from the others.

    Raises:
        GeoJsonError, UnstorableError: One is not an obstruction, or cannot be stored.
    """
    found = from_geojson({"type": "FeatureCollection", "features": features})
    obstructions.check(found)
    return found, *_told_apart(found, features)


def _told_apart(
    found: Sequence[Obstruction], features: Sequence[Mapping[str, Any]]
) -> tuple[list[Learned], list[Obstruction]]:
    """Return the exported learned places with their counts, and all other obstructions."""
    places, others = [], []
    for one, feature in zip(found, features, strict=True):
        place = learned.place_of(one, feature.get("properties") or {})
        if place is None:
            others.append(one)
        else:
            places.append(place)
    return places, others


async def correct(database: Database, features: Iterable[Mapping[str, Any]]) -> None:
    """Add to features of the map, as `corrected`, what drives have made of their certainty.

    It is what the service predicts with, to one decimal. The map's certainty stays beside it, so
    that an export can be imported without counting these drives twice.
    """
    of_map = {
        one["id"]: one["properties"]
        for one in features
        if one["properties"]["source"] != learned.SOURCE and "certainty" in one["properties"]
    }
    by_map = {name: properties["certainty"] for name, properties in of_map.items()}
    # The map is the same for all: drives of all tenants' vehicles count, whoever asks.
    with scope.within(None):
        async with database.reading() as connection:
            corrected = await passages.corrected(connection, by_map)
    for name, certainty in corrected.items():
        of_map[name]["corrected"] = max(round(certainty, _DECIMALS), _LEAST_TOLD)


def for_tenants(feature: dict[str, Any]) -> dict[str, Any]:
    """Return a feature as a tenant sees it: a learned place without what was observed there.

    Of the certainty one decimal is left; exactly, it would tell the counts while they are small.
    """
    properties = feature["properties"]
    if properties["source"] != learned.SOURCE:
        return feature
    shown = {name: one for name, one in properties.items() if name in _SHARED_OF_LEARNED}
    certainty = round(properties["certainty"], _DECIMALS)
    return {**feature, "properties": {**shown, "certainty": certainty}}


def _content(page: ObstructionPage) -> tuple[bytes, str]:
    """Return a page as JSON, and its ETag, which changes with the page, not with the map."""
    text = page.model_dump_json(exclude_none=True).encode()
    return text, etag(hashlib.sha256(text).hexdigest())


def _box(text: str) -> Box:
    try:
        west, south, east, north = map(float, text.split(","))
    except ValueError as error:
        raise ValueError("must be four numbers: west,south,east,north") from error
    box = Box(west, south, east, north)
    if not (-180 <= box.west <= box.east <= 180 and -90 <= box.south <= box.north <= 90):
        raise ValueError("the bbox is not on the map, or its sides are not in order")
    return box
