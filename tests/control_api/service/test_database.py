"""What is read together is of one state of the database."""

from __future__ import annotations

from sqlalchemy import text
from underpass_control.storage.database import Database, database_url

from tests.control_api.service.conftest import with_database


def test_what_is_read_together_does_not_change_meanwhile(url: str) -> None:
    async def run(database: Database) -> list[int]:
        other = Database(database_url(url))
        seen: list[int] = []

        async def count() -> None:
            found = await connection.execute(text("SELECT count(*) FROM beam"))
            seen.append(found.scalar_one())

        try:
            async with database.reading() as connection:
                await count()
                async with other.transaction() as writing:
                    beam = "INSERT INTO beam (id, name, forward_capacity_bps,"
                    beam += " return_capacity_bps, one_way_delay_ms, revision)"
                    await writing.execute(text(f"{beam} VALUES ('ku-1', 'Ku', 1, 1, 1, 1)"))
                await count()
            async with database.reading() as connection:
                await count()
        finally:
            await other.close()
        return seen

    assert with_database(url, run) == [0, 0, 1]
