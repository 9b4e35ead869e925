"""Cursors: where the next page of a list begins, opaque to clients."""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Sequence
from http import HTTPStatus
from typing import TypeVar

from underpass_control.http.problem import Problem

T = TypeVar("T")

# No column holds more.
_BEYOND = 2**63
# No key has these; PostgreSQL cannot even compare a NUL or half a surrogate pair.
_UNSTORABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")


def cursor_of(key: int | str) -> str:
    """Return the cursor for a page behind an entry's key."""
    text = json.dumps(key, ensure_ascii=False)
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def next_page(found: Sequence[T], limit: int, key: Callable[[T], int | str]) -> str | None:
    """Return the cursor of the next page; None if there is none.

    Args:
        found: the entries of this page.
        limit: the most entries of a page.
        key: gives the key of an entry, behind which the next page begins.
    """
    return cursor_of(key(found[-1])) if len(found) == limit else None


def number_after(cursor: str | None) -> int | None:
    """Return the number in a cursor."""
    key = _key(cursor)
    if key is None or (type(key) is int and abs(key) < _BEYOND):
        return key
    raise _foreign()


def text_after(cursor: str | None) -> str | None:
    """Return the text in a cursor."""
    key = _key(cursor)
    if key is None or (isinstance(key, str) and not _UNSTORABLE.search(key)):
        return key
    raise _foreign()


def parts_after(cursor: str | None, count: int) -> list[str] | None:
    """Return the texts in a cursor, which colons separate; the last one may have colons."""
    text = text_after(cursor)
    if text is None:
        return None
    parts = text.split(":", count - 1)
    if len(parts) != count:
        raise _foreign()
    return parts


def numbers_after(cursor: str | None, count: int) -> list[int] | None:
    """Return the numbers in a cursor, which colons separate."""
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
