"""Which map a request names."""

from __future__ import annotations

from http import HTTPStatus

from underpass_control.http.endpoint import Call
from underpass_control.http.problem import Problem
from underpass_control.storage import learned

_LONGEST_SOURCE = 64


def source_of(call: Call) -> str:
    """Return the source in a request's path.

    Raises:
        Problem: No map has such a name.
    """
    source = call.path["source"]
    if len(source) > _LONGEST_SOURCE:
        raise Problem(HTTPStatus.NOT_FOUND, f"no map has a name of over {_LONGEST_SOURCE} letters")
    if source == learned.SOURCE:
        detail = f"{source} is no map: places are learned, and forgotten, by themselves"
        raise Problem(HTTPStatus.CONFLICT, detail)
    return source
