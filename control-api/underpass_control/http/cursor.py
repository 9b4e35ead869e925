"""Cursors: where the next page of a list begins, opaque to clients."""

from __future__ import annotations

import base64
import binascii
import json
from http import HTTPStatus

from underpass_control.http.problem import Problem

# No column holds more.
_BEYOND = 2**63


def cursor_of(key: int | str) -> str:
    """Return the cursor for a page behind an entry's key."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def number_after(cursor: str | None) -> int | None:
    """Return the number that a cursor was made of."""
    key = _key(cursor)
    if key is None or (type(key) is int and abs(key) < _BEYOND):
        return key
    raise _foreign()


def text_after(cursor: str | None) -> str | None:
    """Return the text that a cursor was made of."""
    key = _key(cursor)
    if key is None or (isinstance(key, str) and key.isprintable()):
        return key
    raise _foreign()


def _key(cursor: str | None) -> object:
    if cursor is None:
        return None
    try:
        padded = cursor + "=" * (-len(cursor) % 4)
        return json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _foreign() from error


def _foreign() -> Problem:
    return Problem(HTTPStatus.BAD_REQUEST, "the cursor is none of this list's")
