"""Conditional requests (RFC 9110, § 13): callers show by an ETag which revision they know."""

from __future__ import annotations

import re

from underpass_control.http.endpoint import Call
from underpass_control.http.problem import changed_since

_ETAG = re.compile(r'(W/)?("[!#-~]*")')


def etag(revision: int | str) -> str:
    """Return the ETag of a revision."""
    return f'"{revision}"'


def is_known(call: Call, tag: str) -> bool:
    """Tell whether the caller already has the content of an ETag (`If-None-Match`)."""
    header = call.request.headers.get("If-None-Match", "")
    return header.strip() == "*" or any(known == tag for _, known in _ETAG.findall(header))


def is_shown(call: Call, revision: int | str | None) -> bool:
    """Tell whether the caller shows a revision (`If-Match`); None: nothing exists.

    Weak ETags do not count: different contents may share one.
    """
    header = call.request.headers.get("If-Match", "")
    if revision is None:
        return False
    return any(not weak and shown == etag(revision) for weak, shown in _ETAG.findall(header))


def replaced(call: Call, revision: int | None) -> int | None:
    """Return the only revision that a request may change (`If-Match`); None: any.

    Args:
        call: the request.
        revision: the present one, as in `check_shown`.

    Raises:
        Problem: 412, the caller shows another one.
    """
    return revision if check_shown(call, revision) else None


def check_shown(call: Call, revision: int | str | None) -> bool:
    """Tell whether a request may change the present revision only, and not any (`If-Match`).

    Args:
        call: the request.
        revision: the present one; None if nothing exists, or 0 where callers may show that.

    Raises:
        Problem: 412, the caller shows another one.
    """
    header = call.request.headers.get("If-Match")
    if header is None or (header.strip() == "*" and revision):
        return False
    if not is_shown(call, revision):
        raise changed_since()
    return True
