"""Bodies that are sequences of texts, each on its line: read as they come, within bounds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from http import HTTPStatus

from underpass_control.http.endpoint import Call
from underpass_control.http.problem import Problem

_AT_ONCE = 1 << 18


@dataclass(frozen=True)
class Pace:
    """How fast a body has to come: a slower client would keep others from sending theirs.

    Attributes:
        silent_s: a client that sends nothing for this long is refused.
        least_bytes_per_s: the least average rate, once `silent_s` is over.
        longest_s: the time within which the whole body has to come.
    """

    silent_s: float
    least_bytes_per_s: float
    longest_s: float


async def texts(
    call: Call, what: str, each: str, *, most_bytes: int, most_text_bytes: int, pace: Pace
) -> AsyncIterator[list[bytes]]:
    """Yield the texts of a body, in portions; empty lines and record separators are left out.

    `what` names the body, and `each` a text, in errors.

    Raises:
        Problem: The body or a text is too large, or it comes too slowly.
    """
    if (call.request.content_length or 0) > most_bytes:
        raise _too_large(what, most_bytes)
    count = taken = 0
    waited_s = 0.0
    rest = b""
    is_whole = False
    while not is_whole:
        # Bytes received extend the time for the rest. Processing time does not count.
        within_s = min(pace.silent_s + taken / pace.least_bytes_per_s, pace.longest_s)
        began_s = time.monotonic()
        part = await _part(call, min(within_s - waited_s, pace.silent_s), pace)
        waited_s += time.monotonic() - began_s
        is_whole = not part
        taken += len(part)
        if taken > most_bytes:
            raise _too_large(what, most_bytes)
        *lines, rest = (rest + part).split(b"\n")
        if is_whole:
            lines.append(rest)
        # A text begins with a record separator (RFC 7464), or with nothing.
        found = [text for line in lines if (text := line.strip(b"\x1e\r\n\t "))]
        for text in (*found, rest):
            if len(text) > most_text_bytes:
                detail = f"{each} {count + 1} has more than {most_text_bytes} bytes"
                raise not_taken(what, detail)
            count += 1
        count -= 1
        yield found


async def _part(call: Call, within_s: float, pace: Pace) -> bytes:
    try:
        async with asyncio.timeout(within_s):
            return await call.request.content.read(_AT_ONCE)
    except TimeoutError as error:
        detail = f"nothing has come for {pace.silent_s:.0f} s"
        if within_s < pace.silent_s:
            least = f"{pace.least_bytes_per_s:.0f} bytes/s"
            detail = f"it comes at less than {least}, or not within {pace.longest_s:.0f} s"
        raise Problem(HTTPStatus.REQUEST_TIMEOUT, detail) from error


def not_taken(what: str, detail: str) -> Problem:
    """Return the problem of an error in a body."""
    return Problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"the {what} is not taken: {detail}")


def _too_large(what: str, most_bytes: int) -> Problem:
    size = f"{most_bytes >> 20} MiB"
    detail = f"the {what} has more than {size}: import it in parts, or at the database"
    return Problem(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, detail)
