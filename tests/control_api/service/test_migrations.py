"""The schema migrates up and down with data in it, and matches the models."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import JSON, Connection, TextClause, bindparam, inspect, text
from sqlalchemy.exc import DBAPIError
from underpass_control.access.lookup import find_caller
from underpass_control.access.secrets import digest_of
from underpass_control.storage import obstructions, schema
from underpass_control.storage.boxes import Box
from underpass_control.storage.database import Database, DatabaseUrlError, database_url
from underpass_control.storage.models import Base

from tests.control_api.service.api import Api, now_ms, served
from tests.control_api.service.conftest import with_database
from tests.control_api.service.test_expectations import expected, keep, observed
from tests.control_api.service.test_links import LINE, ROUTE
from tests.control_api.service.test_positions import position, report, times
from tests.control_api.service.test_reports import entry, status, taken

VAN = (
    "INSERT INTO terminal (node, beam_id, name, weight, forward_minimum_bps,"
    " return_minimum_bps, revision) VALUES (11, 'ku-1', 'van', 1, 0, 0, 1)"
)


def execute(url: str, *statements: str | TextClause) -> None:
    """Execute statements in one transaction."""

    async def run(database: Database) -> None:
        async with database.transaction() as connection:
            for one in statements:
                await connection.execute(text(one) if isinstance(one, str) else one)

    with_database(url, run)


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    async def run(database: Database) -> list[tuple[Any, ...]]:
        async with database.reading() as connection:
            return [tuple(row) for row in await connection.execute(text(query))]

    return with_database(url, run)


async def _move(
    move: Callable[[Database, str], Awaitable[None]], revision: str, database: Database
) -> None:
    await move(database, revision)


async def tables(database: Database) -> set[str]:
    async with database.reading() as connection:
        names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
    return set(names) - {"alembic_version"}


def test_up_down_and_up_again_with_data(empty_url: str) -> None:
    with_database(empty_url, schema.migrate)
    with served(empty_url) as api:
        api.add_beam()
        report(api, position(now_ms()))
        assert len(times(api)) == 1
        at = now_ms() - 1_000
        keep(api, at - 1_000, expected(at))
        taken(api, entry(status()), observed(at))
        assert api.call("PUT", ROUTE, LINE).status == 200
    with_database(empty_url, lambda database: schema.migrate_down(database, "base"))
    assert with_database(empty_url, tables) == set()
    with_database(empty_url, schema.migrate)
    with served(empty_url) as api:
        api.add_beam()
        assert times(api) == []


def test_each_step_of_those_ahead_is_told(empty_url: str) -> None:
    newest = int(schema.newest_revision() or 0)
    told: list[tuple[int, int]] = []

    async def migrate(database: Database) -> None:
        await schema.migrate(database, "0020")
        await schema.migrate(database, told=lambda done, of: told.append((done, of)))
        await schema.migrate(database, told=lambda done, of: told.append((done, of)))

    with_database(empty_url, migrate)
    ahead = newest - 20
    assert told == [*((done, ahead) for done in range(ahead + 1)), (0, 0)]


# Each revision's new tables and columns are filled once they exist.
FILLS: dict[str, tuple[str | TextClause, ...]] = {
    "0002": (
        "INSERT INTO link_usage VALUES"
        " (11, 'return', 0, 11, 1, 'satellite', 1, 1, 0, 0, 9, 9, 5, 5, 1, 0, 1.0)",
        "INSERT INTO predicted_blockage (id, terminal, entry_ms, exit_ms, confidence,"
        " source, first_ms, based_on_ms, state)"
        " VALUES (1, 11, 1, 2, 0.9, 'predicted', 0, 0, 'passed')",
        "INSERT INTO blockage (terminal, link, path, entry_ms, exit_reported, source,"
        " received_ms, predicted) VALUES (11, 'return', 's', 1, false, 'modem', 1, 1)",
        "UPDATE terminal SET heard_by = 1",
    ),
    "0004": (
        "INSERT INTO settled VALUES ('ku-1', 'return', 10000, 1, 1)",
        "INSERT INTO ledger_entry (id, beam_id, link, from_ms, to_ms, kind)"
        " VALUES (1, 'ku-1', 'return', 0, 10000, 'settled')",
        "INSERT INTO ledger_posting VALUES (1, 11, -5), (1, 12, 5)",
        "INSERT INTO ledger_lot VALUES"
        " ('ku-1', 'return', 11, 10000, -5), ('ku-1', 'return', 12, 10000, 5)",
        "INSERT INTO settled_usage VALUES ('ku-1', 'return', 0, 11, 1, 2, 2, false, false)",
    ),
    "0010": (
        text(
            "INSERT INTO token (id, name, digest, role, created_ms)"
            " VALUES (1, 'old', :digest, 'operator', 1)"
        ).bindparams(digest=digest_of("upc_old")),
    ),
    "0011": (
        "INSERT INTO tenant VALUES ('north', 'North')",
        "UPDATE terminal SET tenant_id = 'north'",
        "INSERT INTO token (id, name, digest, role, tenant_id, created_ms)"
        " VALUES (2, 'new', '2', 'administrator', NULL, 1), (3, 'n', '3', 'viewer',"
        " 'north', 1)",
        "INSERT INTO user_account (id, name, role, tenant_id, password_hash, created_ms)"
        " VALUES (1, 'ada', 'operator', 'north', 'x', 1)",
        "INSERT INTO user_session (id, digest, user_id, created_ms, expires_ms,"
        " idle_until_ms) VALUES (1, 'x', 1, 1, 2, 2)",
        "INSERT INTO audit_entry (id, time_ms, actor_kind, actor, address, action, target)"
        " VALUES (1, 1, 'user', 'ada', '', 'set', '/v1/x')",
    ),
}


def test_each_step_up_and_down_keeps_what_both_sides_know(empty_url: str) -> None:
    script = ScriptDirectory(str(Path(__file__).parents[3] / "migrations"))
    revisions = [one.revision for one in script.walk_revisions()][::-1]
    with_database(empty_url, lambda database: schema.migrate(database, revisions[0]))
    execute(
        empty_url,
        "INSERT INTO beam VALUES ('ku-1', 'Ku 1', 8000000, 2000000, 300, 1)",
        VAN,
        "INSERT INTO position_report (terminal, time_ms, longitude, latitude, received_ms,"
        " clocks_differ) VALUES (11, 1700000000000, 7.5, 46.5, 1, false)",
    )

    async def check_accounts(database: Database) -> None:
        """Rows from before 0011 have the default tenant, and old tokens see everything."""
        async with database.reading() as connection:
            caller = await find_caller(connection, "upc_old", 2)
            assert caller is not None
            assert (caller.role, caller.tenant) == ("operator", None)
            owner = await connection.execute(text("SELECT tenant_id FROM terminal"))
            assert owner.scalar_one() == "default"

    for move, to in (
        *((schema.migrate, revision) for revision in revisions[1:]),
        *((schema.migrate_down, revision) for revision in revisions[-2::-1]),
        (schema.migrate, "head"),
    ):
        with_database(empty_url, partial(_move, move, to))
        if move is schema.migrate and to in FILLS:
            if to == "0011":
                with_database(empty_url, check_accounts)
            execute(empty_url, *FILLS[to])
        known = "SELECT b.name, t.name, p.longitude FROM beam b JOIN terminal t ON true JOIN"
        assert rows(empty_url, known + " position_report p ON true") == [("Ku 1", "van", 7.5)]
        if move is schema.migrate_down and to < "0011":
            # After going down, no token is left that would see more than before.
            assert rows(empty_url, "SELECT name FROM token ORDER BY id") == [("old",)]


def test_the_migrations_make_what_the_models_say(empty_url: str) -> None:
    def differences(connection: Connection) -> list[Any]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, Base.metadata))

    async def run(database: Database) -> list[Any]:
        await schema.migrate(database)
        async with database.reading() as connection:
            return await connection.run_sync(differences)

    assert with_database(empty_url, run) == []


def test_migrating_twice_or_at_once_is_migrating_once(empty_url: str) -> None:
    if empty_url.startswith("sqlite"):
        pytest.skip("SQLite has one process")

    async def run(database: Database) -> None:
        other = Database(database.url)
        try:
            await asyncio.gather(schema.migrate(database), schema.migrate(other))
        finally:
            await other.close()
        await schema.check_schema(database)

    with_database(empty_url, run)
    with_database(empty_url, schema.migrate)


def test_another_schema_is_told(empty_url: str) -> None:
    async def check(database: Database) -> None:
        with pytest.raises(schema.SchemaError, match="underpass-control migrate"):
            await schema.check_schema(database)

    with_database(empty_url, check)


def test_a_service_whose_schema_is_gone_is_not_ready(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("underpass_control.http.status._READY_FOR_S", 0.0)
    assert api.get("/ready", caller=None).json == {"status": "ok"}
    api.run(schema.migrate_down(api.database, "base"))
    assert api.get("/health", caller=None).status == 200
    assert "migrate" in api.get("/ready", caller=None).problem


def test_a_reader_that_waits_for_a_migration_does_not_end_it(empty_url: str) -> None:
    if not empty_url.startswith("postgresql"):
        pytest.skip("SQLite has one writer, and readers do not wait for it")
    waits = text("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'relation'")

    async def run(database: Database) -> None:
        await schema.migrate(database, "0004")
        async with database.migrating() as reader:
            await reader.execute(text("SELECT * FROM terminal"))
            # This one alters the beams, and then waits for the terminals.
            upgrade = asyncio.create_task(schema.migrate(database, "0005"))
            async with database.migrating() as watcher:
                while not (await watcher.execute(waits)).scalar():
                    await asyncio.sleep(0.01)
            with suppress(DBAPIError):
                await reader.execute(text("SELECT * FROM beam"))
            await reader.rollback()
            await upgrade
        assert await schema.revision(database) == "0005"

    with_database(empty_url, run)


def test_each_migration_is_a_transaction(empty_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no column is added")

    async def run(database: Database) -> None:
        await schema.migrate(database, "0004")
        monkeypatch.setattr("alembic.op.add_column", fails)
        with pytest.raises(RuntimeError, match="no column"):
            await schema.migrate(database)
        monkeypatch.undo()
        assert await schema.revision(database) == "0004"
        await schema.migrate_down(database, "base")
        monkeypatch.setattr("alembic.op.add_column", fails)
        with pytest.raises(RuntimeError, match="no column"):
            await schema.migrate(database)
        # What came before stays.
        assert await schema.revision(database) == "0001"

    with_database(empty_url, run)


@pytest.mark.parametrize("text_of", ["mysql://h/d", "postgres", "", "sqlite+pysqlite3", "://"])
def test_what_is_no_database_is_told(text_of: str) -> None:
    with pytest.raises(DatabaseUrlError):
        database_url(text_of)


def test_efficiencies_but_one_had_been_told(empty_url: str) -> None:
    with_database(empty_url, lambda database: schema.migrate(database, "0007"))
    execute(
        empty_url,
        "INSERT INTO beam (id, name, forward_capacity_bps, return_capacity_bps,"
        " one_way_delay_ms, revision) VALUES ('ku-1', 'Ku 1', 8000000, 2000000, 300, 1)",
        VAN,
        "INSERT INTO link_usage VALUES"
        " (11, 'return', 0, 11, 1, 's', 1, 1, 0, 0, 9, 9, 5, 5, 1, 0, 1.0),"
        " (11, 'return', 10000, 11, 1, 's', 1, 1, 0, 0, 9, 9, 5, 5, 1, 0, 0.25)",
    )
    with_database(empty_url, schema.migrate)
    usage = "SELECT efficiency, efficiency_told FROM link_usage ORDER BY start_ms"
    assert rows(empty_url, usage) == [(1.0, False), (0.25, True)]
    assert rows(empty_url, "SELECT fair_share FROM beam") == [("symbols",)]


# Ids of shadows without a valid satellite name.
NO_SATELLITES = (
    "sky:",
    "sky::a",
    "sky:a",
    "sky:two words:a",
    "sky:ä:a",
    f"sky:{'x' * 33}:a",
    "SKY:a:b",
)


ANYWHERE = Box(0.0, 0.0, 1.0, 1.0)


def obstruction(name: str, properties: dict[str, object], box: Box = ANYWHERE) -> TextClause:
    """Return the statement that stores an obstruction."""
    return text(
        "INSERT INTO obstruction (id, source, geometry, properties, west, south, east, north)"
        " VALUES (:id, 'a.osm', '{}', :properties, :west, :south, :east, :north)"
    ).bindparams(
        bindparam("id", name), bindparam("properties", properties, type_=JSON), **asdict(box)
    )


def announcement(at_ms: int, name: str) -> TextClause:
    """Return the statement that stores a van's announcement of an obstruction."""
    return text(
        "INSERT INTO announcement (terminal, announced_ms, entry_ms, duration_ms, confidence,"
        " obstruction, received_ms) VALUES (11, :at_ms, 1, 1, 0.9, :name, 1)"
    ).bindparams(at_ms=at_ms, name=name)


def drive(number: int, *roads: str) -> TextClause:
    """Return the statement that stores a van's remembered drive."""
    return text(
        "INSERT INTO remembered_drive (terminal, number, roads, times, last_ms)"
        " VALUES (11, :number, :roads, 1, 1)"
    ).bindparams(bindparam("number", number), bindparam("roads", list(roads), type_=JSON))


async def told(database: Database) -> Any:
    """Return the properties of all obstructions."""
    async with database.reading() as connection:
        query = text("SELECT properties FROM obstruction ORDER BY id")
        return list(await connection.scalars(query.columns(properties=JSON)))


def test_shadows_are_given_their_satellite(empty_url: str) -> None:
    with_database(empty_url, lambda database: schema.migrate(database, "0027"))
    execute(
        empty_url,
        obstruction("osm:way/1", {"kind": "tunnel", "certainty": 1.0}),
        obstruction(
            "sky:astra-19.2:way/1/0-2@0-30", {"kind": "shadow", "roads": [], "certainty": 0.75}
        ),
        # An obstruction with such a name from elsewhere.
        obstruction("sky:mine:too", {"kind": "tunnel", "certainty": 1.0}),
        *(obstruction(name, {"kind": "shadow", "certainty": 1.0}) for name in NO_SATELLITES),
        # Half a surrogate pair, and a zero: PostgreSQL keeps them, and cannot read them.
        obstruction("sky:half:way/2", {"kind": "shadow", "roads": [], "note": "\ud83d \0"}),
        obstruction("osm:way/3", {"kind": "tunnel", "note": "\udc00"}),
    )
    before = with_database(empty_url, told)
    with_database(empty_url, schema.migrate)
    satellites = iter(("astra-19.2", "half"))
    named = [one | {"satellite": next(satellites)} if "roads" in one else one for one in before]
    assert next(satellites, None) is None
    assert with_database(empty_url, told) == named
    with_database(empty_url, lambda database: schema.migrate_down(database, "0027"))
    assert with_database(empty_url, told) == before


def test_what_sqlite_cannot_read_as_json_is_no_obstacle(sqlite_url: str) -> None:
    properties = {"kind": "shadow", "satellite": "mine", "note": "\ud83d", "height_m": math.inf}
    execute(sqlite_url, obstruction("sky:mine:a", properties))
    with_database(sqlite_url, lambda database: schema.migrate_down(database, "0027"))
    without = {name: value for name, value in properties.items() if name != "satellite"}
    assert with_database(sqlite_url, told) == [without]
    with_database(sqlite_url, schema.migrate)
    assert with_database(sqlite_url, told) == [properties]


def test_obstructions_that_are_there_are_found_by_their_place(empty_url: str) -> None:
    boxes = {
        "street": Box(7.5, 46.5, 7.501, 46.5),
        "wood": Box(7.3, 46.4, 7.55, 46.6),
        "country": Box(5.0, 45.0, 10.0, 48.0),
        "crossing": Box(-180.0, 46.5, 180.0, 46.5),
        "pole": Box(0.0, 90.0, 0.0, 90.0),
        "far": Box(7.5, -46.5, 7.501, -46.5),
    }

    async def found(database: Database) -> list[str]:
        async with database.reading() as connection:
            here = Box(7.5005, 46.4995, 7.5008, 46.5005)
            page = await obstructions.page(connection, box=here, after=None, limit=10)
            return [one["id"] for one in page]

    with_database(empty_url, lambda database: schema.migrate(database, "0032"))
    execute(empty_url, *(obstruction(name, {}, box) for name, box in boxes.items()))
    execute(empty_url, *(obstruction(f"z{n:04}", {}, boxes["far"]) for n in range(1_100)))
    here = ["country", "crossing", "street", "wood"]
    with_database(empty_url, schema.migrate)
    assert with_database(empty_url, found) == here
    execute(empty_url, "DELETE FROM obstruction WHERE id = 'wood'")
    with_database(empty_url, lambda database: schema.migrate_down(database, "0032"))
    with_database(empty_url, schema.migrate)
    assert with_database(empty_url, found) == [name for name in here if name != "wood"]


def test_ids_of_learned_places_tell_no_vehicle_any_more(empty_url: str) -> None:
    with_database(empty_url, lambda database: schema.migrate(database, "0029"))
    old = "learned:9876501:1700000000000"
    road = {"id": f"{old}/forward", "covered_by": old, "onward": [[f"{old}/forward", 1.0]]}
    # It has been forgotten.
    gone = "learned:9876502:1700000000000"
    execute(
        empty_url,
        "INSERT INTO beam (id, name, forward_capacity_bps, return_capacity_bps,"
        " one_way_delay_ms, revision) VALUES ('ku-1', 'Ku 1', 8000000, 2000000, 300, 1)",
        VAN,
        obstruction(old, {"kind": "learned", "roads": [road], "lost": 3}),
        obstruction("learned:mine", {"kind": "learned"}),
        "INSERT INTO predicted_blockage (id, terminal, obstruction, entry_ms, exit_ms, confidence,"
        " source, first_ms, based_on_ms, state) VALUES (1, 11, 'OLD', 1, 2, 0.9, 'predicted', 0, 0,"
        " 'passed')".replace("OLD", old),
        announcement(1, gone),
        announcement(2, "Long tunnel"),
        drive(0, "osm:way/1", f"{old}/forward/0", f"{old}/forward"),
        drive(1, f"{gone}/forward"),
    )
    with_database(empty_url, schema.migrate)
    names = [name for (name,) in rows(empty_url, "SELECT id FROM obstruction")]
    (new,) = (name for name in names if name != "learned:mine")
    assert re.fullmatch(r"learned:[0-9a-f]{16}", new)
    assert rows(empty_url, "SELECT obstruction FROM predicted_blockage") == [(new,)]
    road = {"id": f"{new}/forward", "covered_by": new, "onward": [[f"{new}/forward", 1.0]]}
    named = [one for one in with_database(empty_url, told) if "roads" in one]
    assert named == [{"kind": "learned", "roads": [road], "lost": 3}]
    announced = rows(empty_url, "SELECT obstruction FROM announcement ORDER BY announced_ms")
    (forgotten,), (tunnel,) = announced
    assert re.fullmatch(r"learned:[0-9a-f]{16}", forgotten)
    assert (forgotten != new, tunnel) == (True, "Long tunnel")

    async def driven(database: Database) -> list[list[str]]:
        async with database.reading() as connection:
            query = text("SELECT roads FROM remembered_drive ORDER BY number")
            return list(await connection.scalars(query.columns(roads=JSON)))

    assert with_database(empty_url, driven) == [
        ["osm:way/1", f"{new}/forward/0", f"{new}/forward"],
        [f"{forgotten}/forward"],
    ]


def test_blockages_are_read_once_however_many_places_are_renamed(
    empty_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_database(empty_url, lambda database: schema.migrate(database, "0029"))
    places = [obstruction(f"learned:1:{n}", {"kind": "learned"}) for n in range(30)]
    execute(
        empty_url,
        "INSERT INTO beam (id, name, forward_capacity_bps, return_capacity_bps,"
        " one_way_delay_ms, revision) VALUES ('ku-1', 'Ku 1', 8000000, 2000000, 300, 1)",
        VAN,
        *places,
        *(announcement(n, f"learned:1:{n}") for n in range(30)),
    )
    statements: list[str] = []
    execute_one = Connection.execute

    def noted(connection: Connection, statement: Any, *given: Any, **options: Any) -> Any:
        statements.append(str(statement))
        return execute_one(connection, statement, *given, **options)

    monkeypatch.setattr(Connection, "execute", noted)
    with_database(empty_url, lambda database: schema.migrate(database, "0030"))
    assert sum(one.startswith("UPDATE announcement") for one in statements) == 1
    found = {name for (name,) in rows(empty_url, "SELECT obstruction FROM announcement")}
    assert found == {name for (name,) in rows(empty_url, "SELECT id FROM obstruction")}
    assert len(found) == 30
