"""Leases are renewed whatever holds up the service, and who has lost one notices first."""

from __future__ import annotations

import asyncio
import time

import pytest
from sqlalchemy import select, text
from underpass_control.planning import lease, renewal
from underpass_control.storage.models import Lease

from tests.control_api.service.api import Api, served

BEAM = "ku-1"
LASTS_S = 0.9


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have leases last shortly."""
    monkeypatch.setattr(lease, "LASTS_MS", round(1000 * LASTS_S))
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.3)
    monkeypatch.setattr(lease, "RETRY_S", 0.15)


async def planned(api: Api) -> int:
    """Wait until the beam is planned; return the fence of its lease."""
    while (await api.ask("GET", f"/v1/beams/{BEAM}/plans/return")).status != 200:
        await asyncio.sleep(0.05)
    return await fence(api)


async def fence(api: Api) -> int:
    async with api.database.reading() as connection:
        query = select(Lease.fence).where(Lease.beam_id == BEAM)
        found: int = (await connection.execute(query)).scalar_one()
        return found


@pytest.mark.usefixtures("quick")
def test_a_blocked_event_loop_loses_no_lease(url: str) -> None:
    with served(url) as api:
        api.add_beam()

        async def run() -> None:
            before = await planned(api)
            # Nothing runs here, as while something large is worked out.
            time.sleep(3 * LASTS_S)
            assert api.service.controllers.held == {BEAM}
            async with api.database.reading() as connection:
                assert not await lease.any_free(connection)
            await asyncio.sleep(0.5)
            assert await fence(api) == before

        api.run(run())


@pytest.mark.usefixtures("quick")
def test_a_database_that_is_slow_to_others_loses_no_lease(url: str) -> None:
    with served(url) as api:
        api.add_beam()

        async def run() -> None:
            before = await planned(api)
            async with api.database.transaction() as connection:
                # SQLite has one writer: a renewal waits for it, and comes too late.
                await connection.execute(text("UPDATE beam SET revision = revision"))
                await asyncio.sleep(2 * LASTS_S)
            while api.service.controllers.held != {BEAM}:
                await asyncio.sleep(0.05)
            assert await fence(api) == before

        api.run(run())


@pytest.mark.usefixtures("quick")
def test_a_loop_that_does_not_come_back_gives_way_and_notices_before_it_acts(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "_DEAD_AFTER_S", 0.5)
    with served(url) as api:
        api.add_beam()

        async def take() -> None:
            other = api.replica()
            try:
                async with other.changes.transaction() as (connection, publish):
                    assert BEAM in await lease.renew(connection, publish, "there:2")
                    await connection.execute(text("UPDATE lease SET until_ms = until_ms + 3600000"))
            finally:
                await other.database.close()

        async def run() -> None:
            before = await planned(api)
            time.sleep(0.5 + 2 * LASTS_S)
            # Whatever wakes up first sees that the lease may be another's.
            assert api.service.controllers.held == api.service.controllers.followed == set()
            await take()
            await asyncio.sleep(1)
            assert api.service.controllers.held == set()
            assert await fence(api) == before + 1

        api.run(run())
