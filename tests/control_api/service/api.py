"""The service in this process, as callers of different roles see it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from aiohttp import DummyCookieJar
from aiohttp.test_utils import TestClient, TestServer
from multidict import CIMultiDictProxy
from sqlalchemy.ext.asyncio import AsyncConnection
from underpass_control.access.lookup import find_caller
from underpass_control.access.tokens import create_token, revoke_token
from underpass_control.roles import Role
from underpass_control.service import Service
from underpass_control.settings import Settings
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database, database_url

T = TypeVar("T")

# The terminals of the tests, both in the beam `ku-1`.
FIRST, SECOND = 11, 12


@dataclass(frozen=True)
class Reply:
    """The answer to a request."""

    status: int
    headers: CIMultiDictProxy[str]
    text: str

    @property
    def json(self) -> Any:
        """Return the body as JSON."""
        return json.loads(self.text)

    @property
    def problem(self) -> str:
        """Return the detail of a problem document, and check that it is one."""
        assert self.headers["Content-Type"].startswith("application/problem+json"), self.text
        document = self.json
        assert document["status"] == self.status
        assert document["title"]
        detail: str = document["detail"]
        return detail


class Api:
    """A running service, with a token for each role."""

    def __init__(self, runner: asyncio.Runner, database: Database, settings: Settings) -> None:
        self._runner = runner
        self.database = database
        self.service = Service(database, settings)
        self.tokens: dict[str, str] = {}
        self.changes = Changes(database, lambda _: None, lambda: None)

    def run(self, awaitable: Awaitable[T]) -> T:
        """Wait for something in the service's event loop."""

        async def wait() -> T:
            return await awaitable

        return self._runner.run(wait())

    async def start(self) -> None:
        """Listen, and make the tokens."""
        self.client = TestClient(
            TestServer(self.service.application()), cookie_jar=DummyCookieJar()
        )
        await self.client.start_server()
        async with self.database.transaction() as connection:
            for name, role, node in (
                ("viewer", Role.VIEWER, None),
                ("operator", Role.OPERATOR, None),
                ("administrator", Role.ADMINISTRATOR, None),
                ("gateway", Role.GATEWAY, 1),
                ("first", Role.TERMINAL, FIRST),
                ("second", Role.TERMINAL, SECOND),
            ):
                self.tokens[name] = await _token(connection, role, node, now_ms(), None, None)

    async def token(
        self,
        role: Role,
        node: int | None = None,
        *,
        created_ms: int | None = None,
        expires_ms: int | None = None,
        tenant: str | None = None,
    ) -> str:
        """Make a token."""
        created_ms = now_ms() if created_ms is None else created_ms
        async with self.database.transaction() as connection:
            return await _token(connection, role, node, created_ms, expires_ms, tenant)

    async def revoke(self, token: str) -> None:
        """Revoke a token, as the command line does: the service is not told."""
        async with self.database.transaction() as connection:
            caller = await find_caller(connection, token, now_ms())
            assert caller is not None
            assert await revoke_token(connection, caller.credential.id, now_ms())

    def replica(self, url: str | None = None) -> Api:
        """Return another service in the same event loop, over the same database or another."""
        of = self.database.url if url is None else database_url(url)
        return Api(self._runner, Database(of), Settings())

    def headers(self, caller: str | None) -> dict[str, str]:
        """Return the header that names the caller: one of `tokens`, or a token itself."""
        return (
            {} if caller is None else {"Authorization": f"Bearer {self.tokens.get(caller, caller)}"}
        )

    async def ask(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        caller: str | None = "operator",
        headers: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        follow: bool = True,
    ) -> Reply:
        """Make a request; a body other than text is sent as JSON; redirects may be followed."""
        given = {**self.headers(caller), **(headers or {})}
        data = body if isinstance(body, str | bytes) or body is None else json.dumps(body)
        if data is not None:
            given["Content-Type"] = content_type
        async with self.client.request(
            method, path, data=data, headers=given, allow_redirects=follow
        ) as response:
            return Reply(response.status, response.headers, await response.text())

    def call(self, method: str, path: str, body: object = None, **options: Any) -> Reply:
        """Make a request and wait for its answer."""
        return self.run(self.ask(method, path, body, **options))

    def get(self, path: str, **options: Any) -> Reply:
        """Read."""
        return self.call("GET", path, **options)

    def pages(self, path: str, **options: Any) -> Iterator[Any]:
        """Read a collection page by page; the path has a query."""
        page = self.get(path, **options).json
        yield page
        while "next" in page:
            page = self.get(f"{path}&cursor={page['next']}", **options).json
            yield page

    def add_beam(self) -> None:
        """Set the beam `ku-1` with two terminals."""
        beam = {"name": "Ku 1", "forward_capacity_bps": 8_000_000, "return_capacity_bps": 2_000_000}
        assert self.call("PUT", "/v1/beams/ku-1", beam).status == 201
        for node in (FIRST, SECOND):
            terminal = {"beam": "ku-1", "name": f"vehicle {node}"}
            assert self.call("PUT", f"/v1/terminals/{node}", terminal).status == 201


async def _token(
    connection: AsyncConnection,
    role: Role,
    node: int | None,
    created_ms: int,
    expires_ms: int | None,
    tenant: str | None,
) -> str:
    _, text = await create_token(
        connection,
        name=f"the tests' {role}",
        role=role,
        node=node,
        now_ms=created_ms,
        expires_ms=expires_ms,
        tenant=tenant,
    )
    return text


@contextmanager
def served(url: str, settings: Settings | None = None) -> Iterator[Api]:
    """Run the service over a database that has the schema."""
    with asyncio.Runner() as runner:
        api = Api(runner, Database(database_url(url)), settings or Settings())
        runner.run(api.start())
        try:
            yield api
        finally:
            runner.run(api.client.close())


def now_ms() -> int:
    """Return the time in ms since the Unix epoch."""
    return time.time_ns() // 1_000_000
