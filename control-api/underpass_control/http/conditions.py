"""Conditional requests (RFC 9110, § 13): what a caller knows of something, by its ETag."""

from __future__ import annotations

import re

from underpass_control.http.endpoint import Call
from underpass_control.http.problem import changed_since

_ETAG = re.compile(r'(W/)?("[!#-~]*")')


def etag(revision: int | str) -> str:
    """Return the ETag of a revision."""
    return f'"{revision}"'


def is_known(call: Call, tag: str) -> bool:
    """Tell whether the caller has what an ETag stands for (`If-None-Match`)."""
    header = call.request.headers.get("If-None-Match", "")
    return header.strip() == "*" or any(known == tag for _, known in _ETAG.findall(header))


def is_shown(call: Call, revision: int | None) -> bool:
    """Tell whether the caller shows that it knows a revision (`If-Match`); None: of nothing.

    Weak ETags show nothing: they may be those of something else.
    """
    header = call.request.headers.get("If-Match", "")
    if revision is None:
        return False
    return any(not weak and shown == etag(revision) for weak, shown in _ETAG.findall(header))


def replaced(call: Call, revision: int | None) -> int | None:
    """Return the only revision that a request may change (`If-Match`); None: whichever it is.

    Args:
        call: the request.
        revision: the one that there is now; None where there is nothing.

    Raises:
        Problem: 412, the caller knows another one.
    """
    header = call.request.headers.get("If-Match")
    if header is None:
        return None
    if header.strip() == "*" and revision is not None:
        return None
    if not is_shown(call, revision):
        raise changed_since()
    return revision
