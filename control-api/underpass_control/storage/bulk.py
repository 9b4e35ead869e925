"""Many rows in one statement, for either database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from underpass_control.storage.models import Base

_POSTGRESQL = postgresql.dialect()  # type: ignore[no-untyped-call]


class BulkInsert:
    """Inserts rows of some columns of a table; `conflict` says what follows ON CONFLICT, if any.

    PostgreSQL takes an array for each column several times as fast as rows. It refuses to change a
    row twice in one statement, and statements with rows in different orders may deadlock. So a
    caller that changes rows has to give each once, in the order of the key.
    """

    def __init__(
        self, table: type[Base], columns: Sequence[str], conflict: str | None = None
    ) -> None:
        # Made only from names and types of columns; inserted values are passed as
        # parameters.
        names = ", ".join(columns)
        into = f"INSERT INTO {table.__tablename__} ({names})"
        kinds = (table.__table__.c[name].type.compile(_POSTGRESQL) for name in columns)
        arrays = ", ".join(f"${number}::{kind}[]" for number, kind in enumerate(kinds, 1))
        marks = ", ".join("?" * len(columns))
        then = f" ON CONFLICT {conflict}" if conflict else ""
        self._sqlite = f"{into} VALUES ({marks}){then}"
        self._postgresql = f"{into} SELECT * FROM unnest({arrays}){then}"  # noqa: S608

    async def execute(self, connection: AsyncConnection, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert them."""
        if not rows:
            return
        if connection.dialect.name == "sqlite":
            await connection.exec_driver_sql(self._sqlite, list(rows))
        else:
            columns = tuple(map(list, zip(*rows, strict=True)))
            await connection.exec_driver_sql(self._postgresql, columns)
