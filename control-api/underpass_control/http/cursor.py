"""Cursors: where the next page of a list begins, opaque to clients."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TypeVar

from underpass_control.http.problem import Problem

T = TypeVar("T")

# No column holds more.
_BEYOND = 2**63


def cursor_of(key: int | str) -> str:
    """Return the cursor for a page behind an entry's key."""
    return base64.urlsafe_b64encode(json.dumps(key).encode()).decode().rstrip("=")


def next_page(found: Sequence[T], limit: int, key: Callable[[T], int | str]) -> str | None:
    """Return the cursor of the page behind this one; None where there is no more.

    Args:
        found: what is on this page.
        limit: how much may be on it.
        key: what the next page begins behind, of an entry.
    """
    return cursor_of(key(found[-1])) if len(found) == limit else None


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


def parts_after(cursor: str | None, count: int) -> list[str] | None:
    """Return the texts, joined by colons, that a cursor was made of; the last may have colons."""
    text = text_after(cursor)
    if text is None:
        return None
    parts = text.split(":", count - 1)
    if len(parts) != count:
        raise _foreign()
    return parts


def numbers_after(cursor: str | None, count: int) -> list[int] | None:
    """Return the numbers, joined by colons, that a cursor was made of."""
    parts = parts_after(cursor, count)
    return None if parts is None else [number_of(part) for part in parts]


def number_of(text: str) -> int:
    """Return the number, 0 or above, that is a part of a cursor."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19 and int(text) < _BEYOND):
        raise _foreign()
    return int(text)


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
