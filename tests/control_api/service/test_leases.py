"""Leases are renewed whatever delays the service, and a loser notices before it acts."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from sqlalchemy import select, text, update
from underpass_control.planning import lease, renewal
from underpass_control.storage.changes import Changes
from underpass_control.storage.database import Database
from underpass_control.storage.models import Lease

from tests.control_api import postgresql
from tests.control_api.service.api import Api, served

BEAM = "ku-1"
LASTS_S = 2.0


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make leases last only shortly."""
    monkeypatch.setattr(lease, "LASTS_MS", round(1000 * LASTS_S))
    monkeypatch.setattr(lease, "RENEW_EVERY_S", 0.3)
    monkeypatch.setattr(lease, "RETRY_S", 0.15)


@pytest.fixture
def api(quick: None, url: str) -> Iterator[Api]:  # noqa: ARG001
    """The service with a beam, whose leases last shortly."""
    with served(url) as running:
        running.add_beam()
        yield running


async def planned(api: Api) -> int:
    """Wait until the beam is planned; return the fence of its lease."""
    while (await api.ask("GET", f"/v1/beams/{BEAM}/plans/return")).status != 200:
        await asyncio.sleep(0.05)
    return await fence(api)


async def idle(api: Api) -> None:
    """Wait until the service reads and writes nothing: on SQLite, others wait for a writer."""
    pool = api.database.engine.sync_engine.pool
    while pool.checkedout():  # type: ignore[attr-defined]
        await asyncio.sleep(0.01)


async def fence(api: Api) -> int:
    async with api.database.reading() as connection:
        query = select(Lease.fence).where(Lease.beam_id == BEAM)
        found: int = (await connection.execute(query)).scalar_one()
        return found


async def test_a_blocked_event_loop_loses_no_lease(api: Api) -> None:
    before = await planned(api)
    await idle(api)
    # Block the event loop, as a long computation does.
    time.sleep(1.5 * LASTS_S)
    assert api.service.controllers.held == {BEAM}
    await asyncio.sleep(0.5)
    assert await fence(api) == before


async def test_a_loop_that_is_blocked_while_it_writes_loses_no_lease(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "_IDLE_MS", 60_000)
    before = await planned(api)
    holder = api.service.controllers.holder
    async with api.database.transaction() as connection:
        await lease.check(connection, BEAM, holder, before)
        time.sleep(1.5 * LASTS_S)
        if not api.database.is_sqlite:
            # The writer's own lock does not keep the lease from being renewed.
            assert api.service.controllers.held == {BEAM}
    while api.service.controllers.held != {BEAM}:
        await asyncio.sleep(0.05)
    assert await fence(api) == before


async def test_a_database_that_is_slow_to_others_loses_no_lease(api: Api) -> None:
    before = await planned(api)
    async with api.database.transaction() as connection:
        # SQLite has one writer: a renewal waits for it, and comes too late.
        await connection.execute(text("UPDATE beam SET revision = revision"))
        await asyncio.sleep(2 * LASTS_S)
    while api.service.controllers.held != {BEAM}:
        await asyncio.sleep(0.05)
    assert await fence(api) == before


async def test_a_loop_that_does_not_come_back_gives_way_and_notices_before_it_acts(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewal, "_DEAD_AFTER_S", 0.5)
    taken, over = threading.Event(), threading.Event()

    async def take() -> None:
        database = Database(api.database.url)
        changes = Changes(database, lambda _: None, lambda: None)
        while not over.is_set():
            async with changes.transaction() as (connection, publish):
                renewed = await lease.renew(connection, publish, "there:2")
            if BEAM in renewed:
                taken.set()
            await asyncio.sleep(0.05)
        await database.close()

    before = await planned(api)
    await idle(api)
    other = threading.Thread(target=lambda: asyncio.run(take()))
    other.start()
    try:
        # The event loop is blocked until the other has the lease.
        assert taken.wait(30)
        # The first task to wake up sees that the lease may be another's.
        assert api.service.controllers.held == api.service.controllers.followed == set()
        await asyncio.sleep(1)
        assert api.service.controllers.held == set()
        assert await fence(api) == before + 1
    finally:
        over.set()
        await asyncio.to_thread(other.join, 30)


async def test_a_lease_that_was_given_before_the_clock_was_set_back_keeps_nobody_out(
    api: Api,
) -> None:
    before = await planned(api)
    # The holder has died since, and the clock is behind the time when it got the lease.
    dead = {"holder": "dead:1", "until_ms": Lease.until_ms + 3_600_000}
    async with api.database.transaction() as connection:
        await connection.execute(update(Lease).values(dead))
    async with asyncio.timeout(10):
        while await fence(api) == before or api.service.controllers.held != {BEAM}:
            await asyncio.sleep(0.05)
    assert await fence(api) == before + 1


@pytest.mark.usefixtures("quick")
def test_while_the_database_is_away_plans_are_followed_and_none_are_made(
    api_and_server: tuple[Api, postgresql.Server],
) -> None:
    api, server = api_and_server
    beams = api.service.controllers

    async def run() -> None:
        before = await planned(api)
        await asyncio.to_thread(server.stop)
        while beams.held:
            await asyncio.sleep(0.05)
        assert beams.followed == {BEAM}
        await asyncio.to_thread(server.start)
        while not beams.held:
            await asyncio.sleep(0.05)
        # Nobody took the lease in the meantime, so this process keeps it.
        assert await fence(api) == before

    api.run(run())
