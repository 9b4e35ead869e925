"""A client of the service's own REST API, for the verbs of the command line."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from http import HTTPStatus
from typing import Any, Self
from urllib.parse import quote

_WITHIN_S = 30.0
_PAGE = 1_000
# The statuses after which the same request may succeed later.
_LATER = frozenset({HTTPStatus.TOO_MANY_REQUESTS, *(s for s in HTTPStatus if s >= 500)})
_AGAIN_S = 1.0


class RefusedError(Exception):
    """The service has refused; the text is its own."""

    def __init__(self, status: int, detail: str) -> None:
        super().__init__(detail)
        self.status = status


class LostError(Exception):
    """No answer, or none for now: the same request may be repeated after `again_s`."""

    def __init__(self, detail: str, again_s: float = _AGAIN_S) -> None:
        super().__init__(detail)
        self.again_s = again_s


class Client:
    """Asks a service at a URL, with a token; used as an asynchronous context.

    A `unix:PATH` is asked over that socket, as a node's local API is.
    """

    def __init__(self, url: str, token: str | None = None) -> None:
        self._socket = url.removeprefix("unix:") if url.startswith("unix:") else None
        self._url = "http://node" if self._socket else url.rstrip("/")
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    async def __aenter__(self) -> Self:
        # It takes half a second to import, and most verbs make no request.
        import aiohttp

        connector = aiohttp.UnixConnector(self._socket) if self._socket else None
        timeout = aiohttp.ClientTimeout(total=_WITHIN_S)
        self._session = aiohttp.ClientSession(
            headers=self._headers, connector=connector, timeout=timeout
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._session.close()

    async def ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | None] | None = None,
        body: object = None,
    ) -> Any:
        """Make a request; return the answer's JSON, None if it has none.

        Raises:
            RefusedError: The answer is an error that is the request's.
            LostError: There is no answer, or one that asks to come again.
        """
        return (await self._ask(method, path, query=query, body=body))[0]

    async def upload(
        self, path: str, media_type: str, parts: AsyncIterator[bytes], within_s: float
    ) -> Any:
        """Put a large body, part by part; return the answer's JSON.

        Raises:
            RefusedError: The answer is an error that is the request's.
            LostError: There is no answer, or one that asks to come again.
        """
        headers = {"Content-Type": media_type}
        return (await self._ask("PUT", path, headers=headers, parts=parts, within_s=within_s))[0]

    async def change(self, path: str, changes: Mapping[str, Any]) -> Any:
        """Set members of the object at a path, or create it; None removes a member.

        What another caller changes or makes meanwhile is not overwritten: the request is refused.
        """
        try:
            found, tag = await self._ask("GET", path)
        except RefusedError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            found, headers = {}, {"If-None-Match": "*"}
        else:
            headers = {"If-Match": tag} if tag else {}
        body = {**found, **changes}
        # The path names it, and some members are the service's own.
        for name in (
            "id",
            "node",
            "heard_by",
            "tags",
            *(name for name, value in changes.items() if value is None),
        ):
            body.pop(name, None)
        return (await self._ask("PUT", path, body=body, headers=headers))[0]

    async def renewed(
        self,
        path: str,
        *,
        query: Mapping[str, str | int | None] | None = None,
        tag: str | None = None,
        silent_s: float,
    ) -> tuple[Any, str | None]:
        """Read the object at a path, unless it still has a known ETag; return it and its ETag.

        If it has not changed, None is returned instead. The answer may take long, but at most
        `silent_s` from one byte to the next.

        Raises:
            RefusedError: The answer is an error that is the request's.
            LostError: There is no answer, or one that asks to come again.
        """
        headers = {} if tag is None else {"If-None-Match": tag}
        return await self._ask(
            "GET", path, query=query, headers=headers, within_s=None, silent_s=silent_s
        )

    async def _ask(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str | int | None] | None = None,
        body: object = None,
        headers: Mapping[str, str] | None = None,
        parts: AsyncIterator[bytes] | None = None,
        within_s: float | None = _WITHIN_S,
        silent_s: float | None = None,
    ) -> tuple[Any, str | None]:
        """Make a request; return the answer's JSON and its ETag."""
        import aiohttp

        given = {name: str(value) for name, value in (query or {}).items() if value is not None}
        try:
            async with self._session.request(
                method,
                self._url + path,
                params=given,
                json=body,
                data=parts,
                headers=headers,
                timeout=aiohttp.ClientTimeout(total=within_s, connect=silent_s, sock_read=silent_s),
            ) as response:
                # The answer may come from a proxy, in any encoding.
                text = await response.text(errors="replace")
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            where = self._socket or self._url
            raise LostError(f"{where} does not answer: {error or 'too slow'}") from error
        if response.status >= HTTPStatus.BAD_REQUEST:
            detail = _detail(text) or f"{response.status} {response.reason}"
            if response.status in _LATER:
                after = response.headers.get("Retry-After", "")
                raise LostError(detail, float(after) if after.isdecimal() else _AGAIN_S)
            raise RefusedError(response.status, detail)
        try:
            return (json.loads(text) if text else None), response.headers.get("ETag")
        except (ValueError, RecursionError) as error:
            raise RefusedError(response.status, f"{self._url} answers no JSON") from error

    async def pages(
        self, path: str, member: str, query: Mapping[str, str | int | None] | None = None
    ) -> AsyncIterator[Any]:
        """Yield all entries of a list, page by page."""
        cursor: str | None = None
        while True:
            asked = {**(query or {}), "limit": _PAGE, "cursor": cursor}
            page = await self.ask("GET", path, query=asked)
            for entry in page[member]:
                yield entry
            cursor = page.get("next")
            if cursor is None:
                return


def path_of(*parts: str | int) -> str:
    """Return a path of the API, its parts escaped."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


def _detail(text: str) -> str | None:
    """Return the text of a problem document, with the members it names."""
    try:
        problem = json.loads(text)
        named = [f"{one['pointer']}: {one['detail']}" for one in problem.get("errors", ())]
        return "; ".join([str(problem["detail"]), *named])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
