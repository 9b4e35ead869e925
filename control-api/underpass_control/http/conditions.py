"""Conditional requests (RFC 9110, § 13): callers show by an ETag which revision they know."""

from __future__ import annotations

import re
from http import HTTPStatus
from typing import TYPE_CHECKING

from underpass_control.http.problem import Problem, changed_since, there_already

if TYPE_CHECKING:
    from underpass_control.http.endpoint import Call

# The headers that hold ETags.
CONDITIONS = frozenset({"If-Match", "If-None-Match"})
# The revision of what is not there.
_NOTHING = 0
# An entity-tag (§ 8.8.3): weak or not, and its opaque part with the quotes.
_ETAG = re.compile(r'(W/)?("[^\x00-\x20\x7f"]*")')
# `*`, or a list of entity-tags, in which elements may be empty (§ 5.6.1.2).
_FIELD = re.compile(rf"\*|[ \t,]*(?:{_ETAG.pattern}[ \t]*(?:,[ \t,]*|\Z))*")


def etag(revision: int | str) -> str:
    """Return the ETag of a revision."""
    return f'"{revision}"'


def check_written(call: Call, name: str) -> None:
    """Check that a conditional header, if there is one, is written as it has to be.

    Raises:
        Problem: 400, it is neither `*` nor a list of ETags.
    """
    if not _FIELD.fullmatch(_field(call, name) or ""):
        detail = f'{name} takes ETags within quotes, as in {name}: "1", or a single *'
        raise Problem(HTTPStatus.BAD_REQUEST, detail)


def is_known(call: Call, tag: str) -> bool:
    """Tell whether the caller already has the content of an ETag (`If-None-Match`)."""
    field = _field(call, "If-None-Match") or ""
    return field == "*" or any(known == tag for _, known in _ETAG.findall(field))


def is_shown(call: Call, revision: int | str | None) -> bool:
    """Tell whether the caller shows a revision (`If-Match`); None: nothing exists.

    Weak ETags do not count: different contents may share one.
    """
    field = _field(call, "If-Match") or ""
    if revision is None:
        return False
    return any(not weak and shown == etag(revision) for weak, shown in _ETAG.findall(field))


def replaced(call: Call, revision: int | None) -> int | None:
    """Return the only revision that a request may change; None: any.

    It is 0, which nothing has, if the request may only make what it names (`If-None-Match: *`).

    Args:
        call: the request.
        revision: the present one, as in `check_shown`.

    Raises:
        Problem: 412, the caller shows another one (`If-Match`), or one that must not be there
            (`If-None-Match`).
    """
    is_only = check_shown(call, revision)
    if revision and is_known(call, etag(revision)):
        raise there_already()
    if not revision and _field(call, "If-None-Match") == "*":
        return _NOTHING
    return revision if is_only else None


def check_shown(call: Call, revision: int | str | None) -> bool:
    """Tell whether a request may change the present revision only, and not any (`If-Match`).

    Args:
        call: the request.
        revision: the present one; None if nothing exists, or 0 where callers may show that.

    Raises:
        Problem: 412, the caller shows another one.
    """
    field = _field(call, "If-Match")
    if field is None or (field == "*" and revision):
        return False
    if not is_shown(call, revision):
        raise changed_since()
    return True


def shows_none(call: Call) -> bool:
    """Tell whether the caller shows no revision: without `If-Match`, or by `*`, which is any."""
    return _field(call, "If-Match") in (None, "*")


def _field(call: Call, name: str) -> str | None:
    """Return the value of a header, which may come in several lines (§ 5.3)."""
    lines = call.request.headers.getall(name, None)
    return None if lines is None else ", ".join(lines).strip()
