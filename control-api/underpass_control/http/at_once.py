"""Work that costs much: a few requests at once may ask for it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus

from underpass_control.http.problem import Problem


class AtOnce:
    """Lets so many in, and has the others come again: what waited would hold what it has sent."""

    def __init__(self, most: int, what: str) -> None:
        """Take how many, and what they are, for people."""
        self._most = most
        self._what = what
        self._count = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count one as long as it lasts.

        Raises:
            Problem: 503, there are as many as may be.
        """
        if self._count >= self._most:
            later = {"Retry-After": "10"}
            detail = f"{self._most} {self._what} are being worked on: try again later"
            raise Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=later)
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1
