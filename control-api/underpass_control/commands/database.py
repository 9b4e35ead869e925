"""The common parts of verbs that open the database themselves."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from underpass_control.commands.console import fail

# Storage takes a second to import, so a verb imports it when it opens the database.
if TYPE_CHECKING:
    from underpass_control.storage.database import Database

DatabaseOption = Annotated[
    str,
    typer.Option(
        "--database",
        envvar="UNDERPASS_DATABASE",
        help="sqlite:///PATH or postgresql://USER@HOST/NAME",
    ),
]
DEFAULT_DATABASE = "sqlite:///underpass-control.db"

R = TypeVar("R")


def with_database(
    url: str, run: Callable[[Database], Awaitable[R]], *, needs_schema: bool = True
) -> R:
    """Run with an open database; if it cannot be opened, end with the reason."""
    from underpass_control.storage import schema
    from underpass_control.storage.database import DatabaseLostError

    async def opened() -> R:
        database = open_database(url)
        try:
            if needs_schema:
                await schema.check_schema(database)
            return await run(database)
        finally:
            await database.close()

    try:
        return asyncio.run(opened())
    except (DatabaseLostError, schema.SchemaError) as error:
        fail(str(error))


def open_database(url: str) -> Database:
    """Open a database; end if the URL names none."""
    from underpass_control.storage.database import Database, DatabaseUrlError, database_url

    try:
        return Database(database_url(url))
    except DatabaseUrlError as error:
        fail(str(error))
