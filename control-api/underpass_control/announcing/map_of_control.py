"""The map of a control service, read over the vehicle's own link.

The link may be slow, and blocked for minutes. So pages are small, a failed page is requested again
without those before it, and unchanged pages are not sent again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from dama.prediction import Obstruction, ObstructionMap
from dama.prediction.geojson import MAX_FEATURES, GeoJsonError, from_geojson
from underpass_control.client import Client, RefusedError

_PATH = "/v1/obstructions"
# Compressed, some 50 kB: seconds at 64 kbit/s.
_PAGE = 100
# As long as the service waits until an answer is read: a blockage may last two minutes.
_SILENT_S = 120.0


@dataclass(frozen=True)
class _Page:
    tag: str | None
    obstructions: list[Obstruction]
    next: str | None


class MapOfControl:
    """Reads the map, again and again."""

    def __init__(self, client: Client, satellite: str | None = None) -> None:
        """Also take the satellite whose map to read; None: the obstructions of all."""
        self._client = client
        self._satellite = satellite
        # The map as it was last returned.
        self._whole: list[_Page] = []
        # By cursor, the pages that may be unchanged; and the pages read since.
        self._known: dict[str | None, _Page] = {}
        self._read: dict[str | None, _Page] = {}
        self._cursor: str | None = None

    @property
    def pages_read(self) -> int:
        """How many pages of an incomplete map have come."""
        return len(self._read)

    async def renew(self) -> ObstructionMap | None:
        """Return the map; None if it is the same as the one returned last.

        Pages that came before a `LostError` are kept: the next call continues after them.

        Raises:
            client.LostError: The service does not answer.
            client.RefusedError: It refuses, or its map cannot be read.
        """
        try:
            while True:
                page = await self._page(self._cursor)
                self._read[self._cursor] = page
                if page.next is None:
                    break
                self._cursor = page.next
                self._check()
        except RefusedError:
            # Perhaps the service no longer accepts the cursor.
            self._known |= self._read
            self._begin()
            raise
        whole = list(self._read.values())
        self._known = self._read
        self._begin()
        if len(whole) == len(self._whole) and all(map(_is, whole, self._whole)):
            return None
        obstructions = [
            one for page in whole for one in page.obstructions if one.counts_for(self._satellite)
        ]
        # Building the map of a country takes seconds, during which fixes come in.
        found = await asyncio.to_thread(ObstructionMap, obstructions)
        self._whole = whole
        return found

    def _begin(self) -> None:
        self._read, self._cursor = {}, None

    def _check(self) -> None:
        """Make sure that a faulty service cannot make us read for ever."""
        # Empty pages count too.
        count = sum(max(1, len(page.obstructions)) for page in self._read.values())
        if self._cursor in self._read or count > MAX_FEATURES:
            raise RefusedError(200, "the control service's map has no end")

    async def _page(self, cursor: str | None) -> _Page:
        known = self._known.get(cursor)
        query = {"limit": _PAGE, "cursor": cursor}
        tag = None if known is None else known.tag
        document, tag = await self._client.renewed(_PATH, query=query, tag=tag, silent_s=_SILENT_S)
        if document is None and known is not None:
            return known
        try:
            return await asyncio.to_thread(_page_of, document, tag)
        except GeoJsonError as error:
            raise RefusedError(200, f"the control service's map cannot be read: {error}") from error


def _page_of(document: Any, tag: str | None) -> _Page:
    obstructions = from_geojson(document, corrected=True)
    following = document.get("next")
    if not isinstance(following, str | None):
        raise GeoJsonError("next: no cursor")
    return _Page(tag, obstructions, following)


def _is(one: object, other: object) -> bool:
    return one is other
