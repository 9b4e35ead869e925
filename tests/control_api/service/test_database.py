"""Data read together is of one state of the database; a failed opening leaves nothing behind."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from sqlalchemy import text
from underpass_control.storage.database import Database, DatabaseLostError, database_url

from tests.control_api.service.conftest import with_database


async def test_a_file_that_cannot_be_opened_leaves_no_thread_that_answers_later(
    tmp_path: Path,
) -> None:
    def drivers_threads() -> list[str]:
        return [one.name for one in threading.enumerate() if "_connection_worker" in one.name]

    others = drivers_threads()
    database = Database(database_url(f"sqlite:///{tmp_path / 'nowhere' / 'control.db'}"))
    # In some cases the loop would end before such a thread.
    for _ in range(50):
        with pytest.raises(DatabaseLostError, match="unable to open"):
            async with database.reading():
                pytest.fail("there is no such folder")
        assert set(drivers_threads()) <= set(others)
    await database.close()


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
