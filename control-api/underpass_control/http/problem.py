"""Errors as problem documents (RFC 9457)."""

from __future__ import annotations

import json
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus

import structlog
from aiohttp import web

from underpass_control.storage.changes import RevisionError
from underpass_control.storage.database import DatabaseLostError

_LOG = structlog.get_logger()


class Problem(Exception):  # noqa: N818 - the RFC's word
    """An answer other than success."""

    def __init__(
        self,
        status: HTTPStatus,
        detail: str,
        *,
        headers: Mapping[str, str] | None = None,
        errors: list[dict[str, object]] | None = None,
    ) -> None:
        """Say what is wrong; `errors` names the wrong members of the request."""
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = headers
        self.errors = errors

    def response(self) -> web.Response:
        """Return it as an answer."""
        document: dict[str, object] = {
            "type": "about:blank",
            "title": self.status.phrase,
            "status": self.status.value,
            "detail": self.detail,
        }
        if self.errors:
            document["errors"] = self.errors
        return web.Response(
            status=self.status.value,
            text=json.dumps(document),
            content_type="application/problem+json",
            headers=self.headers,
        )


def changed_since() -> Problem:
    """Return the problem of a caller that shows an outdated revision (`If-Match`)."""
    return Problem(HTTPStatus.PRECONDITION_FAILED, "it has been changed since that ETag")


def there_already() -> Problem:
    """Return the problem of a caller that only makes what is not there (`If-None-Match`)."""
    return Problem(HTTPStatus.PRECONDITION_FAILED, "it is there already")


def too_many(wait_s: float) -> Problem:
    """Return the problem of a caller that has to wait, because of too many requests."""
    later = {"Retry-After": str(math.ceil(wait_s))}
    detail = "too many requests: try again later"
    return Problem(HTTPStatus.TOO_MANY_REQUESTS, detail, headers=later)


Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@web.middleware
async def problems(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Answer every error with a problem document, and log the service's own errors."""
    try:
        return await handler(request)
    except Problem as problem:
        return problem.response()
    except web.HTTPException as error:
        if error.status < HTTPStatus.BAD_REQUEST:
            raise
        allow = {"Allow": error.headers["Allow"]} if "Allow" in error.headers else None
        return Problem(HTTPStatus(error.status), error.reason, headers=allow).response()
    except DatabaseLostError as error:
        _LOG.warning("database lost", method=request.method, path=request.path, error=str(error))
        detail = "the database is away; try again later"
        later = {"Retry-After": "1"}
        return Problem(HTTPStatus.SERVICE_UNAVAILABLE, detail, headers=later).response()
    except RevisionError:
        # Another request has made or changed it after this one read it.
        only_makes = request.headers.get("If-None-Match") == "*"
        return (there_already() if only_makes else changed_since()).response()
    except ConnectionError:
        # The client is gone: there is nothing to answer.
        raise
    except Exception:
        _LOG.exception("request failed", method=request.method, path=request.path)
        detail = "the service has failed; its log says more"
        return Problem(HTTPStatus.INTERNAL_SERVER_ERROR, detail).response()
