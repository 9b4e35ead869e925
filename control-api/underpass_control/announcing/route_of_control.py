"""The route of a terminal, read from a control service over the vehicle's own link."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

from dama.prediction.places import Line, is_on_earth
from underpass_control.client import Client, RefusedError, path_of

# As long as the service waits until an answer is read: a blockage may last two minutes.
_SILENT_S = 120.0
# The service stores no longer route.
_MOST_PLACES = 10_000


class RouteOfControl:
    """Reads a terminal's route, again and again; it is sent again only if it has changed."""

    def __init__(self, client: Client, terminal: int) -> None:
        self._client = client
        self._path = path_of("terminals", terminal, "route")
        self._tag: str | None = None
        self._line: Line | None = None

    async def renew(self) -> Line | None:
        """Return the line that the terminal will drive; None where none is known.

        Raises:
            client.LostError: The service does not answer.
            client.RefusedError: It refuses, or its route cannot be read.
        """
        try:
            document, tag = await self._client.renewed(
                self._path, tag=self._tag, silent_s=_SILENT_S
            )
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            self._tag, self._line = None, None
            return None
        if document is not None:
            self._line, self._tag = _line_of(document), tag
        return self._line


def _line_of(document: Any) -> Line:
    try:
        places = [(float(place[0]), float(place[1])) for place in document["coordinates"]]
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise RefusedError(HTTPStatus.OK, "the control service's route is no line") from error
    if not 2 <= len(places) <= _MOST_PLACES or not all(is_on_earth(*place) for place in places):
        raise RefusedError(HTTPStatus.OK, "the control service's route is not on Earth")
    return tuple(places)
