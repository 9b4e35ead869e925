"""Background tasks go on after any single error of the database."""

from __future__ import annotations

import asyncio
import gc
import os
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy.ext.asyncio import AsyncConnection
from underpass_control.planning import controller, controllers, knowledge, lease, stored
from underpass_control.planning.controller import BeamController
from underpass_control.planning.delays import DEFAULT_MS
from underpass_control.planning.stored import StoredPlan
from underpass_control.settings import Settings
from underpass_control.storage import habits, registry, routes
from underpass_control.storage.changes import Publish
from underpass_control.storage.database import Database, DatabaseLostError
from underpass_control.storage.learned import load_map
from underpass_control.takeover import recall

from dama.planner import Link, Plan, Request
from dama.prediction import ObstructionMap
from dama.prediction.learning import Learned
from dama.prediction.places import Line
from tests.control_api.opensand import ncc as peer
from tests.control_api.service.api import FIRST, SECOND, Api, served
from tests.control_api.service.test_events import following
from tests.control_api.service.test_opensand import BEAM, set_terminals
from tests.control_api.test_certificates import end_of, make

Transaction = Callable[[Database], AbstractAsyncContextManager[AsyncConnection]]


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make leases be checked often."""
    monkeypatch.setattr(lease, "RETRY_S", 0.05)


def failing(monkeypatch: pytest.MonkeyPatch, name: str, times: int) -> list[str]:
    """Make a task's or thread's first queries fail; return its queries."""
    asked: list[str] = []

    def patched(method: Transaction) -> Transaction:
        @asynccontextmanager
        async def ask(database: Database) -> AsyncIterator[AsyncConnection]:
            task = asyncio.current_task()
            if task is not None and name in (task.get_name(), threading.current_thread().name):
                asked.append(name)
                if len(asked) <= times:
                    raise ArithmeticError("could not extend file: no space left on device")
            async with method(database) as connection:
                yield connection

        return ask

    monkeypatch.setattr(Database, "reading", patched(Database.reading))
    monkeypatch.setattr(Database, "transaction", patched(Database.transaction))
    return asked


@pytest.mark.parametrize("name", ["leases", "map", "vehicles-of-tenants", "opensand"])
def test_the_database_is_asked_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    # Twice, since a thread that ends asks once more.
    asked = failing(monkeypatch, name, times=2)

    async def run() -> None:
        async with asyncio.timeout(60):
            while len(asked) < 3:
                await asyncio.sleep(0.02)

    with served(sqlite_url) as api:
        api.add_beam()
        api.run(run())


def test_a_change_of_a_map_that_comes_while_it_cannot_be_read_is_not_forgotten(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(api: Api) -> None:
        read = asyncio.Event()
        taught = habits.taught

        async def changed(*_arguments: object) -> list[ObstructionMap]:
            monkeypatch.setattr(habits, "taught", taught)
            api.service.controllers.on_change("obstructions", {})
            raise DatabaseLostError("away")

        async def load(connection: AsyncConnection) -> tuple[ObstructionMap, dict[str, Learned]]:
            read.set()
            return await load_map(connection)

        # After the map has been read, drives are counted as often as possible, and nothing else.
        while api.service.controllers._map_stale or not _is_done(api.service.controllers._reading):
            await asyncio.sleep(0.02)
        monkeypatch.setattr(controllers, "load_map", load)
        monkeypatch.setattr(habits, "taught", changed)
        monkeypatch.setattr(controllers, "_COUNT_DRIVES_S", 0.0)
        async with asyncio.timeout(60):
            await read.wait()

    with served(sqlite_url) as api:
        api.run(run(api))


def test_a_satellite_that_a_beam_is_given_back_while_the_map_is_read_has_its_map(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    used, read = "first", list[str]()

    async def run(api: Api) -> None:
        def give(satellite: str) -> None:
            nonlocal used
            used = satellite
            data = {"beam": "ku-1", "action": "set", "state": {"satellite": satellite}}
            api.service.controllers.on_change("beam", data)

        async def satellites(_connection: AsyncConnection) -> list[str]:
            found = [used]
            read.append(used)
            if used == "second":
                give("first")
            return found

        monkeypatch.setattr(registry, "satellites", satellites)
        async with asyncio.timeout(30):
            give("first")
            while "first" not in api.service.controllers._map.of_satellites:
                await asyncio.sleep(0.02)
            give("second")
            while read[-2:] != ["second", "first"]:
                await asyncio.sleep(0.02)

    with served(sqlite_url) as api:
        api.run(run(api))


def test_a_map_that_has_been_read_is_left_out_of_collections(sqlite_url: str) -> None:
    gc.unfreeze()

    async def run(api: Api) -> None:
        async with asyncio.timeout(60):
            while api.service.controllers._map_stale or gc.get_freeze_count() == 0:
                await asyncio.sleep(0.02)
        looked_at = {id(one) for one in gc.get_objects()}
        assert id(vars(api.service.controllers._map[0])["_roads"]) not in looked_at

    try:
        with served(sqlite_url) as api:
            api.run(run(api))
    finally:
        gc.unfreeze()


def test_a_map_that_changes_all_the_time_is_not_read_all_the_time(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = list[float]()

    async def slow(connection: AsyncConnection) -> tuple[ObstructionMap, dict[str, Learned]]:
        read.append(time.monotonic())
        await asyncio.sleep(0.2)
        return await load_map(connection)

    monkeypatch.setattr(controllers, "load_map", slow)

    async def run(api: Api) -> None:
        async with asyncio.timeout(60):
            while len(read) < 3:
                api.service.controllers.on_change("obstructions", {})
                await asyncio.sleep(0.02)

    with served(sqlite_url) as api:
        api.run(run(api))
    for before, after in pairwise(read):
        assert after - before >= 5 * 0.2


def _is_done(task: asyncio.Task[None] | None) -> bool:
    return task is not None and task.done()


def test_events_of_an_ncc_are_told_after_one_that_could_not_be(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = failing(monkeypatch, "opensand events", times=1)
    ncc = peer.Ncc({3: peer.Terminal(), 7: peer.Terminal()})

    async def run(api: Api) -> None:
        await ncc.start()
        async with following(api, "kinds=opensand", caller="operator") as events:
            await set_terminals(api)
            url = f"opensand://127.0.0.1:{ncc.port}"
            assert (await api.ask("PUT", "/v1/beams/ku-1", BEAM | {"opensand": url})).status == 200
            _, told = await events.next()
            assert told["beam"] == "ku-1"
            assert len(asked) > 1
        assert (await api.ask("PUT", "/v1/beams/ku-1", BEAM)).status == 200
        await ncc.stop()

    with served(sqlite_url) as api:
        api.add_beam()
        api.run(run(api))


def test_metrics_have_the_end_of_the_authority(sqlite_url: str, tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    make(authority, 3000)
    name = "underpass_control_certificate_expiry_timestamp_seconds"
    with served(sqlite_url, Settings(authority=tmp_path)) as api:
        until = time.monotonic() + 60
        while name + "{" not in (text := api.get("/metrics").text) and time.monotonic() < until:
            api.run(asyncio.sleep(0.02))
    [line] = [one for one in text.splitlines() if one.startswith(name + "{")]
    sample, value = line.rsplit(" ", 1)
    assert (sample, float(value)) == (name + '{certificate="authority"}', end_of(authority))


def test_a_beam_is_planned_with_what_its_own_satellite_is_hidden_by(sqlite_url: str) -> None:
    axis = {"type": "LineString", "coordinates": [[7.0, 46.0], [7.01, 46.0]]}
    features = [
        {"type": "Feature", "id": name, "geometry": axis, "properties": {"satellite": satellite}}
        for name, satellite in (("tunnel", None), ("a", "astra"), ("b", "west"))
    ]
    beam = {"name": "Ku 1", "forward_capacity_bps": 8_000_000, "return_capacity_bps": 2_000_000}

    async def known(api: Api, expected: set[str]) -> None:
        async with asyncio.timeout(60):
            while True:
                running = api.service.controllers._running.get("ku-1")
                if running is not None:
                    predictions = running[0]._knowledge.predictions
                    if set(predictions._map.obstructions) == expected:
                        return
                await asyncio.sleep(0.02)

    with served(sqlite_url) as api:
        api.add_beam()
        collection = {"type": "FeatureCollection", "features": features}
        assert api.call("POST", "/v1/obstructions", collection).status < 300
        api.run(known(api, {"tunnel", "a", "b"}))
        for satellite, expected in (
            ("astra", {"tunnel", "a"}),
            ("west", {"tunnel", "b"}),
            ("another", {"tunnel"}),
            (None, {"tunnel", "a", "b"}),
        ):
            named = beam | ({} if satellite is None else {"satellite": satellite})
            assert api.call("PUT", "/v1/beams/ku-1", named).status == 200
            api.run(known(api, expected))


def test_however_many_plans_are_worked_out_other_work_has_its_threads(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, goes_on, work = list[Request](), threading.Event(), controller._work
    cores = os.cpu_count() or 1
    # Each beam has two links, and a process has four threads more than cores.
    beams = {f"make plans ku-{number}" for number in range(2 + (cores + 4) // 2)}
    beam = {"name": "Ku", "forward_capacity_bps": 8_000_000, "return_capacity_bps": 2_000_000}

    def slow(request: Request) -> controller._Worked:
        begun.append(request)
        goes_on.wait(120)
        return work(request)

    async def run() -> None:
        async with asyncio.timeout(60):
            while not beams <= {task.get_name() for task in asyncio.all_tasks()}:
                await asyncio.sleep(0.02)
            while len(begun) < cores:
                await asyncio.sleep(0.02)
            await asyncio.to_thread(int)
        assert len(begun) == cores

    monkeypatch.setattr(controller, "_work", slow)
    with served(sqlite_url) as api:
        try:
            for name in beams:
                path = f"/v1/beams/{name.removeprefix('make plans ')}"
                assert api.call("PUT", path, beam).status == 201
            api.run(run())
        finally:
            goes_on.set()


def test_plans_that_take_long_to_make_start_later(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, expected = controller._work, list[int]()

    def slow(request: Request) -> controller._Worked:
        if request.link is Link.FORWARD:
            expected.append(request.signalling_delay_ms)
        time.sleep(0.5)
        return work(request)

    async def ahead(api: Api, count: int) -> list[timedelta]:
        """Return how long after their issue the first forward plans start."""
        found: list[dict[str, Any]] = []
        async with asyncio.timeout(60):
            while len(found) < count:
                await asyncio.sleep(0.1)
                found = (await api.ask("GET", "/v1/beams/ku-1/plans?link=forward")).json["plans"]
        parse = datetime.fromisoformat
        return [parse(one["start"]) - parse(one["issued"]) for one in reversed(found)]

    monkeypatch.setattr(controller, "_work", slow)
    beam = {"name": "Ku", "return_capacity_bps": 2_000_000}
    with served(sqlite_url) as api:
        for count, capacity_bps in enumerate((8_000_000, 4_000_000), 1):
            put = api.call("PUT", "/v1/beams/ku-1", beam | {"forward_capacity_bps": capacity_bps})
            assert put.status in (200, 201)
            apart = api.run(ahead(api, count))
        measured = api.get("/metrics").text
    # How long the first plan would take was unknown, so it was shifted after it was made.
    assert expected[0] == DEFAULT_MS
    assert expected[1] >= DEFAULT_MS + 500
    assert min(apart) >= timedelta(milliseconds=DEFAULT_MS + 500)
    name = 'underpass_control_plans_late_total{link="forward"}'
    [late] = [line for line in measured.splitlines() if line.startswith(name)]
    assert float(late.rsplit(" ", 1)[1]) >= 1


def test_a_plan_that_the_database_has_held_up_starts_later(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, held_up = stored.store, set[Link]()

    async def busy(
        connection: AsyncConnection, publish: Publish, made: Plan, *given: Any, **named: Any
    ) -> StoredPlan:
        if made.link not in held_up:
            held_up.add(made.link)
            await asyncio.sleep(1.0)
        return await store(connection, publish, made, *given, **named)

    async def planned(api: Api) -> list[dict[str, Any]]:
        async with asyncio.timeout(60):
            while True:
                await asyncio.sleep(0.1)
                reply = await api.ask("GET", "/v1/beams/ku-1/plans?link=forward")
                if reply.json["plans"]:
                    plans: list[dict[str, Any]] = reply.json["plans"]
                    return plans

    monkeypatch.setattr(stored, "store", busy)
    with served(sqlite_url) as api:
        assert api.call("PUT", "/v1/beams/ku-1", BEAM).status == 201
        plans = api.run(planned(api))
    first = plans[-1]
    parse = datetime.fromisoformat
    assert parse(first["start"]) - parse(first["issued"]) >= timedelta(seconds=1.0)


def test_a_plan_that_is_over_once_it_is_made_is_made_anew(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, asked = controller._work, list[Request]()

    def slow(request: Request) -> controller._Worked:
        asked.append(request)
        worked = work(request)
        if len(asked) > len(Link):
            return worked
        # As if the machine had been suspended meanwhile.
        times_ms = tuple(one - 3_600_000 for one in worked.plan.times_ms)
        return replace(worked, plan=replace(worked.plan, times_ms=times_ms))

    async def planned(api: Api) -> dict[str, Any]:
        async with asyncio.timeout(60):
            while True:
                reply = await api.ask("GET", "/v1/beams/ku-1/plans/forward")
                if reply.status == 200:
                    plan: dict[str, Any] = reply.json
                    return plan
                await asyncio.sleep(0.1)

    monkeypatch.setattr(controller, "_work", slow)
    with served(sqlite_url) as api:
        assert api.call("PUT", "/v1/beams/ku-1", BEAM).status == 201
        plan = api.run(planned(api))
    assert len(asked) > len(Link)
    assert datetime.fromisoformat(plan["start"]) > datetime.fromisoformat(plan["issued"])


def test_a_terminal_that_joins_has_no_other_read_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[Collection[int] | None] = []

    async def counted(*given: Any) -> None:
        read.append(given[-1])
        await recall(*given)

    async def known(api: Api, terminal: int) -> None:
        async with asyncio.timeout(60):
            while not (running := api.service.controllers._running):
                await asyncio.sleep(0.02)
            while terminal not in running["ku-1"][0]._knowledge.nodes:
                await asyncio.sleep(0.02)

    async def read_of(terminal: int) -> None:
        async with asyncio.timeout(60):
            while not read or terminal not in (read[-1] or ()):
                await asyncio.sleep(0.02)

    monkeypatch.setattr(knowledge, "recall", counted)
    with served(sqlite_url) as api:
        api.add_beam()
        api.run(known(api, SECOND))
        terminal = {"name": "Third", "beam": "ku-1"}
        assert api.call("PUT", "/v1/terminals/13", terminal).status == 201
        api.run(read_of(13))
    assert read[-1] == {13}


def test_a_route_that_changes_has_no_other_read_again(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = {"type": "LineString", "coordinates": [[7.0, 46.0], [7.1, 46.0]]}
    read: list[set[int]] = []
    of_terminals = routes.of_terminals

    async def counted(connection: AsyncConnection, terminals: Collection[int]) -> dict[int, Line]:
        lines = await of_terminals(connection, terminals)
        read.append(set(terminals))
        return lines

    async def never(*_arguments: object) -> None:
        raise AssertionError("all is read again")

    async def begun(api: Api) -> None:
        async with asyncio.timeout(60):
            while not (running := api.service.controllers._running) or not _is_planned(running):
                await asyncio.sleep(0.02)

    async def told(api: Api, count: int) -> Line | None:
        async with asyncio.timeout(60):
            while len(read) < count:
                await asyncio.sleep(0.02)
        predictions = api.service.controllers._running["ku-1"][0]._knowledge.predictions
        return predictions._terminals[FIRST].route

    with served(sqlite_url) as api:
        api.add_beam()
        api.run(begun(api))
        monkeypatch.setattr(routes, "of_terminals", counted)
        monkeypatch.setattr(knowledge, "recall", never)
        path = f"/v1/terminals/{FIRST}/route"
        assert api.call("PUT", path, line).status == 200
        assert api.run(told(api, 1)) == ((7.0, 46.0), (7.1, 46.0))
        assert api.call("DELETE", path).status == 204
        assert api.run(told(api, 2)) is None
        assert read == [{FIRST}] * 2


def _is_planned(running: Mapping[str, tuple[BeamController, object]]) -> bool:
    """Tell whether a plan with both terminals has been made: all else has been read before."""
    ((planned, _),) = running.values()
    states = planned._planner._links.values()
    return all(len(state.planned_terms) == 2 for state in states)
