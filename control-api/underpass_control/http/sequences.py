"""Bodies that are sequences of texts, each on its line: read as they come, within bounds."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from http import HTTPStatus

from underpass_control.http.endpoint import Call
from underpass_control.http.problem import Problem

_AT_ONCE = 1 << 18


async def texts(
    call: Call, what: str, each: str, *, most_bytes: int, most_text_bytes: int, silent_s: float
) -> AsyncIterator[list[bytes]]:
    """Yield the texts of a body, in portions; empty lines and record separators are left out.

    `what` is what the body is, and `each` what a text is, for people. Whoever sends nothing for
    `silent_s` is refused.

    Raises:
        Problem: The body or a text is too large, or nothing comes.
    """
    if (call.request.content_length or 0) > most_bytes:
        raise _too_large(what, most_bytes)
    count = taken = 0
    rest = b""
    is_whole = False
    while not is_whole:
        try:
            async with asyncio.timeout(silent_s):
                part = await call.request.content.read(_AT_ONCE)
        except TimeoutError as error:
            detail = f"nothing has come for {silent_s:.0f} s"
            raise Problem(HTTPStatus.REQUEST_TIMEOUT, detail) from error
        is_whole = not part
        taken += len(part)
        if taken > most_bytes:
            raise _too_large(what, most_bytes)
        *lines, rest = (rest + part).split(b"\n")
        if is_whole:
            lines.append(rest)
        # Texts of a sequence begin with a record separator (RFC 7464), or with nothing.
        found = [text for line in lines if (text := line.strip(b"\x1e\r\n\t "))]
        for text in (*found, rest):
            if len(text) > most_text_bytes:
                detail = f"{each} {count + 1} has more than {most_text_bytes} bytes"
                raise not_taken(what, detail)
            count += 1
        count -= 1
        yield found


def not_taken(what: str, detail: str) -> Problem:
    """Return what is answered where something is wrong in a body."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"the {what} is not taken: {detail}")


def _too_large(what: str, most_bytes: int) -> Problem:
    size = f"{most_bytes >> 20} MiB"
    detail = f"the {what} has more than {size}: import it in parts, or at the database"
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
