"""Databases that have the schema, and the service over one."""

from __future__ import annotations

import asyncio
import itertools
import shutil
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest
from underpass_control.settings import Settings
from underpass_control.storage import schema
from underpass_control.storage.database import Database, database_url

from tests.control_api import postgresql
from tests.control_api.service.api import Api, served

T = TypeVar("T")

_NAMES = itertools.count()


@pytest.fixture(scope="session")
def postgres() -> Iterator[postgresql.Server]:
    """A PostgreSQL server."""
    reason = postgresql.missing()
    if reason:
        pytest.skip(reason)
    with postgresql.server() as running:
        yield running


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with the schema, to be copied."""
    path = tmp_path_factory.mktemp("sqlite") / "template.db"
    migrate(f"sqlite:///{path}")
    return path


@pytest.fixture(scope="session")
def migrated_postgres(postgres: postgresql.Server) -> str:
    """The name of a database with the schema, to be copied."""
    postgres.sql("CREATE DATABASE template_migrated")
    migrate(postgres.url("template_migrated"))
    return "template_migrated"


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database without anything in it."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'control.db'}"
    return _made(request, "")


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of a database that has the schema."""
    return migrated(request, request.param, tmp_path)


@pytest.fixture
def sqlite_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The same, where the kind of database makes no difference."""
    return migrated(request, "sqlite", tmp_path)


@pytest.fixture
def database(url: str, runner: asyncio.Runner) -> Iterator[Database]:
    """A database with the schema, open in the test's event loop."""
    yield from _opened(url, runner)


@pytest.fixture
def sqlite(sqlite_url: str, runner: asyncio.Runner) -> Iterator[Database]:
    """The same, where the kind of database makes no difference."""
    yield from _opened(sqlite_url, runner)


def _opened(url: str, runner: asyncio.Runner) -> Iterator[Database]:
    opened = Database(database_url(url))
    yield opened
    runner.run(opened.close())


@pytest.fixture
def api(url: str) -> Iterator[Api]:
    """The service over it, with a beam and two terminals; a test itself advances rollouts."""
    with _with_a_beam(url) as running:
        yield running


@pytest.fixture
def api_and_server() -> Iterator[tuple[Api, postgresql.Server]]:
    """The same over a PostgreSQL server of its own, which a test may stop."""
    if reason := postgresql.missing():
        pytest.skip(reason)
    with postgresql.server() as server:
        server.sql("CREATE DATABASE control")
        migrate(server.url("control"))
        with served(server.url("control")) as running:
            running.add_beam()
            yield running, server


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def unchanged(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Api]:
    """The same, once for all tests of a file that leave it unchanged.

    Tests of refused requests need no service of their own: each checks that nothing was changed.
    """
    folder = tmp_path_factory.mktemp("unchanged")
    with _with_a_beam(migrated(request, request.param, folder)) as running:
        yield running


def migrated(request: pytest.FixtureRequest, kind: str, folder: Path) -> str:
    """Copy a database of a kind that has the schema; return the copy's URL."""
    if kind == "sqlite":
        path = folder / "control.db"
        shutil.copy(request.getfixturevalue("migrated_sqlite"), path)
        return f"sqlite:///{path}"
    return _made(request, f"TEMPLATE {request.getfixturevalue('migrated_postgres')}")


def _made(request: pytest.FixtureRequest, like: str) -> str:
    """Make a database of PostgreSQL, for as long as the fixture that asks lasts; return its URL."""
    server: postgresql.Server = request.getfixturevalue("postgres")
    name = f"test_{next(_NAMES)}"
    server.sql(f"CREATE DATABASE {name} {like}")
    # Hundreds of databases fill a disk, and take minutes to remove with the server.
    request.addfinalizer(lambda: server.sql(f"DROP DATABASE {name} WITH (FORCE)"))
    return server.url(name)


@contextmanager
def _with_a_beam(url: str) -> Iterator[Api]:
    with served(url, Settings(advance_rollouts_every_s=3_600)) as running:
        running.add_beam()
        yield running


def with_database(url: str, run: Callable[[Database], Awaitable[T]]) -> T:
    """Open a database for one piece of work; return its result."""

    async def opened() -> T:
        database = Database(database_url(url))
        try:
            return await run(database)
        finally:
            await database.close()

    return asyncio.run(opened())


def migrate(url: str) -> None:
    """Bring a database up to the newest schema."""
    with_database(url, schema.migrate)
