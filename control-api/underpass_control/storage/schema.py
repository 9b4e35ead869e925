"""The schema's version: brought up or down by the migrations."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.database import Database

# In an installed package inside it; in a work tree and in the images beside it.
_PACKAGE = Path(__file__).resolve().parents[1]
_FOLDERS = (_PACKAGE / "migrations", _PACKAGE.parents[1] / "migrations")
# One process migrates at a time; the number only has to be the same for all.
_ADVISORY_LOCK = 0x756E_6465
# A service that still runs reads tables in another order than a migration locks them. PostgreSQL
# ends one of two transactions that wait for each other, which may be the migration's.
_DEADLOCK = "40P01"
_DEADLOCKS = 10


class SchemaError(RuntimeError):
    """The database's schema is not the one that this program needs."""


def folder() -> Path:
    """Return where the migrations are."""
    return next(one for one in _FOLDERS if (one / "env.py").exists())


def _untold(_done: int, _of: int) -> None:
    """Tell nobody."""


async def migrate(
    database: Database, revision: str = "head", told: Callable[[int, int], None] = _untold
) -> None:
    """Bring the schema up to a revision, whatever it is now.

    `told` is called at the beginning and after each step, with how many are done of how many.

    Raises:
        DatabaseLostError: The database cannot be reached.
        SchemaError: A later version has made it, whose migrations are not known here.
    """
    await _run(database, lambda config: command.upgrade(config, revision), told)


async def migrate_down(database: Database, revision: str) -> None:
    """Bring the schema down to an earlier revision; `base` leaves nothing.

    Raises:
        SchemaError: There is no such revision.
    """
    await _run(database, lambda config: command.downgrade(config, revision))


async def check_schema(database: Database) -> None:
    """Make sure that the schema is the newest.

    Raises:
        SchemaError: It is older, or made by a later version.
    """
    found = await revision(database)
    newest = newest_revision()
    if found != newest:
        raise SchemaError(
            f"the database's schema is {found or 'empty'}, not {newest}: "
            "run `underpass-control migrate`"
        )


@cache
def newest_revision() -> str | None:
    """Return the revision that this program needs; the files of the migrations are read once."""
    return ScriptDirectory(str(folder())).get_current_head()


async def revision(database: Database) -> str | None:
    """Return the schema's revision; None while there is none."""
    async with database.reading() as connection:
        return await connection.run_sync(_revision)


async def _run(
    database: Database,
    migration: Callable[[Config], None],
    told: Callable[[int, int], None] = _untold,
) -> None:
    def run(connection: Connection) -> None:
        config = Config()
        config.set_main_option("script_location", str(folder()))
        config.attributes["connection"] = connection
        config.attributes["on_version_apply"] = _counted(_revision(connection), told)
        # Alembic commits after each migration only where no transaction has begun yet.
        connection.commit()
        try:
            migration(config)
        except CommandError as error:
            raise SchemaError(f"the schema cannot be migrated: {error}") from error

    async with database.migrating() as connection:
        if not database.is_sqlite:
            await connection.execute(text(f"SELECT pg_advisory_lock({_ADVISORY_LOCK})"))
            await connection.commit()
        await _again_after_deadlocks(connection, run)
        await connection.commit()
        if not database.is_sqlite:
            await connection.execute(text(f"SELECT pg_advisory_unlock({_ADVISORY_LOCK})"))
            await connection.commit()


async def _again_after_deadlocks(
    connection: AsyncConnection, run: Callable[[Connection], None]
) -> None:
    for left in reversed(range(_DEADLOCKS)):
        try:
            await connection.run_sync(run)
        except DBAPIError as error:
            if left == 0 or getattr(error.orig, "sqlstate", None) != _DEADLOCK:
                raise
            await connection.rollback()
        else:
            return


def _counted(current: str | None, told: Callable[[int, int], None]) -> Callable[..., None]:
    """Return what Alembic calls after each step: it tells how many are done of those ahead."""
    script = ScriptDirectory(str(folder()))
    revisions = [one.revision for one in script.walk_revisions()]
    # The newest comes first. One that is not known here is refused by Alembic.
    of = revisions.index(current) if current in revisions else len(revisions)
    done = 0

    def step(**_: object) -> None:
        nonlocal done
        done += 1
        told(done, max(done, of))

    told(0, of)
    return step


def _revision(connection: Connection) -> str | None:
    return MigrationContext.configure(connection).get_current_revision()
