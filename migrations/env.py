"""Runs migrations on the connection, or on the database URL, that the caller has put into the
configuration's attributes."""

from __future__ import annotations

import asyncio

from alembic import context
from sqlalchemy import Connection
from underpass_control.storage.database import Database, database_url
from underpass_control.storage.models import Base


def _migrate(connection: Connection) -> None:
    context.configure(
        connection=connection,
        target_metadata=Base.metadata,
        # SQLite alters few things in place: tables are copied instead.
        render_as_batch=True,
        compare_type=True,
        transaction_per_migration=True,
        on_version_apply=context.config.attributes.get("on_version_apply"),
    )
    with context.begin_transaction():
        context.run_migrations()


async def _connect_and_migrate(url: str) -> None:
    database = Database(database_url(url))
    try:
        async with database.engine.connect() as connection:
            await connection.run_sync(_migrate)
            await connection.commit()
    finally:
        await database.close()


given = context.config.attributes.get("connection")
if given is not None:
    _migrate(given)
else:
    asyncio.run(_connect_and_migrate(context.config.get_main_option("sqlalchemy.url") or ""))
