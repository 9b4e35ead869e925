"""Plans in the database: versions, the plan in force at a time, and who may write."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pytest
from sqlalchemy import delete, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection
from underpass_control.planning import acknowledgements, lease, stored
from underpass_control.planning.acknowledgements import Acknowledgement
from underpass_control.planning.lease import FencedError
from underpass_control.planning.stored import StoredPlan
from underpass_control.storage.changes import Publish
from underpass_control.storage.database import Database
from underpass_control.storage.models import Beam, Lease

from dama.planner import CapacityStep, Link, Request, Terminal, plan
from dama.planner.text import plan_document, text
from tests.control_api.service.conftest import with_database

T = TypeVar("T")
BEAM, HOLDER = "ku-1", "here:1"


class Store:
    """The tables with one beam; every call is a transaction."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.told: list[object] = []
        self.write(_add_beam)

    @property
    def is_sqlite(self) -> bool:
        return self._url.startswith("sqlite")

    def run(self, run: Callable[[Database], Awaitable[T]]) -> T:
        return with_database(self._url, run)

    def write(self, run: Callable[[AsyncConnection, Publish], Awaitable[T]]) -> T:
        async def transaction(database: Database) -> T:
            async with database.transaction() as connection:
                return await run(connection, self.told.append)

        return with_database(self._url, transaction)

    def read(self, run: Callable[[AsyncConnection], Awaitable[T]]) -> T:
        return self.write(lambda connection, _: run(connection))

    def lease(self, holder: str = HOLDER) -> dict[str, int]:
        return self.write(lambda connection, publish: lease.renew(connection, publish, holder))

    def expire(self) -> None:
        self.read(lambda connection: connection.execute(update(Lease).values(until_ms=1)))

    def plan(
        self, start_ms: int, end_ms: int, *, fence: int = 1, holder: str = HOLDER
    ) -> StoredPlan:
        request = Request(
            BEAM,
            Link.RETURN,
            start_ms,
            end_ms,
            (CapacityStep(0, 8_000_000),),
            (Terminal("11"), Terminal("12")),
        )
        made = plan(request)
        document = text(plan_document(made))
        return self.write(
            lambda connection, publish: stored.store(
                connection,
                publish,
                made,
                document,
                holder=holder,
                fence=fence,
                reason="first",
            )
        )


async def _add_beam(connection: AsyncConnection, _: Publish) -> None:
    values = {"id": BEAM, "name": "x", "one_way_delay_ms": 1, "revision": 1}
    rates = {"forward_capacity_bps": 8_000_000, "return_capacity_bps": 8_000_000}
    await connection.execute(insert(Beam).values(values | rates))


@pytest.fixture
def store(url: str) -> Store:
    return Store(url)


def test_a_lease_is_one_holders_until_it_ends(store: Store) -> None:
    assert store.lease() == {BEAM: 1}
    assert store.lease("there:2") == {}
    assert store.lease() == {BEAM: 1}
    held = store.read(lambda connection: lease.holder_of(connection, BEAM))
    assert held is not None
    assert (held.holder, held.fence) == (HOLDER, 1)
    assert 0 < held.left_ms <= lease.LASTS_MS
    store.expire()
    assert store.read(lambda connection: lease.holder_of(connection, BEAM)) is None
    assert store.lease("there:2") == {BEAM: 2}
    assert store.lease() == {}


def test_a_lease_that_ran_out_goes_on_if_nobody_has_taken_it(store: Store) -> None:
    store.lease()
    store.expire()
    assert store.lease() == {BEAM: 1}
    assert store.lease("there:2") == {}


def test_nobody_takes_a_lease_under_which_something_is_written(store: Store) -> None:
    if store.is_sqlite:
        pytest.skip("SQLite has one writer")
    store.lease()

    async def run(database: Database) -> None:
        async with database.transaction() as writing, database.transaction() as other:
            await lease.check(writing, BEAM, HOLDER, 1)
            # The lease runs out in the meantime; it is still the writer's, who may renew it.
            await other.execute(update(Lease).values(until_ms=1))
            await other.commit()
            async with database.transaction() as taker:
                assert await lease.renew(taker, lambda _: None, "there:2") == {}
        async with database.transaction() as taker:
            assert await lease.renew(taker, lambda _: None, "there:2") == {BEAM: 2}

    store.run(run)


def test_a_lease_that_is_given_up_is_free_at_once(store: Store) -> None:
    store.lease()
    store.read(lambda connection: lease.release(connection, HOLDER))
    assert store.lease("there:2") == {BEAM: 2}


def test_a_former_holder_writes_nothing(store: Store) -> None:
    store.lease()
    assert store.plan(1000, 2000).fence == 1
    store.expire()
    with pytest.raises(FencedError):
        store.plan(1100, 2000)
    assert store.lease("there:2") == {BEAM: 2}
    with pytest.raises(FencedError):
        store.plan(1100, 2000)
    assert store.plan(1200, 2000, fence=2, holder="there:2").version == 2
    rows = store.read(
        lambda connection: stored.versions(connection, BEAM, Link.RETURN, before=None, limit=9)
    )
    assert [row.version for row in rows] == [2, 1]


def test_a_plan_reads_back_as_it_was_made(store: Store) -> None:
    store.lease()
    made = store.plan(5000, 9000)
    read = store.read(lambda connection: stored.current_plan(connection, BEAM, Link.RETURN))
    assert read == made
    assert read.made.line("11").segments[0].rate_bps == 4_000_000
    assert store.read(lambda c: stored.current_plan(c, BEAM, Link.FORWARD)) is None


def test_versions_go_on_above_what_nodes_know_after_the_database_is_lost(store: Store) -> None:
    store.lease()
    first = store.plan(1_700_000_000_000, 1_700_000_060_000)
    second = store.plan(1_700_000_000_500, 1_700_000_060_000)
    assert (first.version, second.version) == (1_700_000_000, 1_700_000_001)
    store.read(lambda connection: connection.execute(delete(Beam)))
    store.write(_add_beam)
    store.lease()
    assert store.plan(1_700_000_002_000, 1_700_000_060_000).version > second.version


def test_what_holds_at_a_time_is_the_latest_version_that_has_begun(store: Store) -> None:
    store.lease()
    for start, end in ((1000, 5000), (2000, 6000), (1500, 3000), (4000, 8000)):
        store.plan(start, end)

    def in_force(from_ms: int, to_ms: int) -> list[tuple[int, int, int]]:
        found = store.read(
            lambda connection: stored.plans_in_force(connection, BEAM, Link.RETURN, from_ms, to_ms)
        )
        return [(one.from_ms, one.to_ms, one.plan.version) for one in found]

    assert in_force(0, 9000) == [(1000, 1500, 1), (1500, 3000, 3), (4000, 8000, 4)]
    assert in_force(1200, 1600) == [(1200, 1500, 1), (1500, 1600, 3)]
    assert in_force(3000, 4000) == []
    assert in_force(8000, 9000) == []
    at = store.read(lambda connection: stored.plan_at(connection, BEAM, Link.RETURN, 2500))
    assert at is not None
    assert at.version == 3
    assert store.read(lambda c: stored.plan_at(c, BEAM, Link.RETURN, 3500)) is None


def test_old_plans_are_deleted_but_never_the_newest(store: Store) -> None:
    store.lease()
    for start in (1000, 2000, 3000):
        store.plan(start, start + 500)

    def prune(limit: int) -> int:
        return store.read(lambda connection: stored.prune(connection, 9000, limit=limit))

    assert [prune(1), prune(5), prune(5)] == [1, 1, 0]
    current = store.read(lambda connection: stored.current_plan(connection, BEAM, Link.RETURN))
    assert current is not None
    assert current.start_ms == 3000


def test_an_acknowledgement_is_stored_once_and_only_of_a_plan_that_is_there(
    store: Store,
) -> None:
    store.lease()
    version = store.plan(1000, 2000).version
    given = [
        Acknowledgement(BEAM, Link.RETURN, version, 1, 1200),
        Acknowledgement(BEAM, Link.RETURN, version, 11, 1450),
        Acknowledgement(BEAM, Link.RETURN, version + 1, 11, 1450),
        Acknowledgement("nowhere", Link.RETURN, version, 11, 1450),
    ]
    assert store.write(lambda c, publish: acknowledgements.store(c, publish, given)) == 2
    assert store.write(lambda c, publish: acknowledgements.store(c, publish, given)) == 0
    found = store.read(
        lambda c: acknowledgements.of_plan(c, BEAM, Link.RETURN, version, after=None, limit=9)
    )
    assert found == given[:2]
    assert store.told[-1] == {
        "kind": "acknowledgements",
        "beam": BEAM,
        "link": "return",
        "plan": version,
        "acknowledgements": [
            {"node": 1, "applied": "1970-01-01T00:00:01.200Z", "after_ms": 200},
            {"node": 11, "applied": "1970-01-01T00:00:01.450Z", "after_ms": 450},
        ],
    }
