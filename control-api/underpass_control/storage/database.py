"""Connections to the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import aiosqlite
from sqlalchemy import event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    InterfaceError,
    OperationalError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from underpass_control.clock import Clock
from underpass_control.storage import scope

_DRIVERS = {"sqlite": "sqlite+aiosqlite", "postgresql": "postgresql+asyncpg"}


# PostgreSQL's codes for errors that may not come again: a table or column is missing while the
# schema is changed; a transaction gave way to others (not serialisable, deadlock); the server ends,
# starts or recovers; it has no room for another connection. SQLite's file is no database.
_LOST = ("42P01", "42703", "40001", "40P01", "57P01", "57P02", "57P03", "53300", "SQLITE_NOTADB")


class DatabaseUrlError(ValueError):
    """The text names no database that the service can use."""


class DatabaseLostError(RuntimeError):
    """The database cannot be reached, or not now; the transaction has not happened."""


def database_url(text: str) -> URL:
    """Read `sqlite:///path` or `postgresql://user@host/name`, with the driver that is used.

    Raises:
        DatabaseUrlError: It is neither.
    """
    try:
        url = make_url(text)
    except ArgumentError as error:
        raise DatabaseUrlError(f"{text!r} is no database URL") from error
    driver = _DRIVERS.get(url.get_backend_name())
    if driver is None:
        raise DatabaseUrlError(f"{url.get_backend_name()!r} is neither sqlite nor postgresql")
    return url.set(drivername=driver)


class Database:
    """A pool of connections; closed by `close`.

    `clock` is the database's clock, as far as somebody measures it.
    """

    def __init__(self, url: URL, *, pool_size: int = 10) -> None:
        self.url = url
        self.clock = Clock()
        self.is_sqlite = url.get_backend_name() == "sqlite"
        if self.is_sqlite:
            opening = {"async_creator_fn": _open_sqlite}
            self._engine = create_async_engine(url, connect_args=opening)
            event.listen(self._engine.sync_engine, "connect", _prepare_sqlite)
        else:
            # A connection that the server has closed meanwhile is found before its use.
            self._engine = create_async_engine(url, pool_size=pool_size, pool_pre_ping=True)
        event.listen(self._engine.sync_engine, "before_execute", scope.restrict, retval=True)

    @property
    def engine(self) -> AsyncEngine:
        """Return SQLAlchemy's engine."""
        return self._engine

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[AsyncConnection]:
        """Begin; commit at the end, or roll back if it is an error.

        Within a tenant (`scope.within`), it reads and changes that tenant's rows only.
        """
        with _loss(self.url):
            async with self._engine.begin() as connection:
                await _restrict(connection)
                yield connection

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[AsyncConnection]:
        """Connect for queries that see one state of the database, however long they take.

        Within a tenant (`scope.within`), they see that tenant's rows only.
        """
        with _loss(self.url):
            async with self._engine.connect() as connection:
                if self.is_sqlite:
                    # The driver begins a transaction only before a write.
                    await connection.exec_driver_sql("BEGIN")
                else:
                    await connection.execution_options(isolation_level="REPEATABLE READ")
                await _restrict(connection)
                yield connection

    @asynccontextmanager
    async def migrating(self) -> AsyncIterator[AsyncConnection]:
        """Connect for what begins and commits transactions itself."""
        with _loss(self.url):
            async with self._engine.connect() as connection:
                yield connection

    async def close(self) -> None:
        """Close all connections."""
        await self._engine.dispose()


async def _restrict(connection: AsyncConnection) -> None:
    tenant = scope.current_tenant()
    if tenant is not None:
        await connection.execution_options(**{scope.OPTION: tenant})


@contextmanager
def _loss(url: URL) -> Iterator[None]:
    """Turn what the drivers raise when the database is away, or is none, into one error."""
    try:
        yield
    except (OperationalError, InterfaceError, PoolTimeoutError, OSError) as error:
        raise _lost(url, error) from error
    except DBAPIError as error:
        codes = (getattr(error.orig, name, None) for name in ("sqlstate", "sqlite_errorname"))
        if error.connection_invalidated or any(code in _LOST for code in codes):
            raise _lost(url, error) from error
        raise


def _lost(url: URL, error: Exception) -> DatabaseLostError:
    reason = error.orig if isinstance(error, DBAPIError) else error
    return DatabaseLostError(f"database {url.set(drivername=url.get_backend_name())}: {reason}")


async def _open_sqlite(*where: Any, **options: Any) -> aiosqlite.Connection:
    """Open a file as SQLAlchemy does, and wait for the end of the driver's thread if it cannot be.

    The driver tells its thread to end and does not wait: the thread would tell of that in an event
    loop that a verb has closed meanwhile, and die of it with a stack on the terminal.
    """
    connection = aiosqlite.connect(*where, **options)
    connection._thread.daemon = True
    try:
        return await connection
    except BaseException:
        await asyncio.to_thread(connection._thread.join)
        raise


def _prepare_sqlite(connection: object, _entry: ConnectionPoolEntry) -> None:
    cursor = connection.cursor()  # type: ignore[attr-defined]
    try:
        # Readers do not wait for the writer, and a commit costs one sync of the log.
        cursor.execute("PRAGMA journal_mode=WAL")
        cursor.execute("PRAGMA synchronous=FULL")
        cursor.execute("PRAGMA foreign_keys=ON")
        cursor.execute("PRAGMA busy_timeout=10000")
    finally:
        cursor.close()
