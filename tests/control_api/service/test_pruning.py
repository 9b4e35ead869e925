"""Old positions are deleted; each terminal's newest stays."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from sqlalchemy import event, insert, update
from sqlalchemy.ext.asyncio import AsyncConnection
from underpass_control import pruning
from underpass_control.metrics import Metrics
from underpass_control.planning import stored as plans
from underpass_control.pruning import prune
from underpass_control.settings import Settings
from underpass_control.storage import history, learned, portions, positions
from underpass_control.storage.changes import Change, Publish
from underpass_control.storage.models import Acknowledgement, Obstruction, Plan

from tests.control_api.service.api import FIRST, SECOND, Api, now_ms, served
from tests.control_api.service.test_expectations import HELD, LOSS, expected, keep, learn, observed
from tests.control_api.service.test_positions import moment, position, report, times
from tests.control_api.service.test_reports import taken

HOUR_MS = 3_600_000


def test_old_reports_are_deleted_but_never_a_terminals_newest(api: Api) -> None:
    now = now_ms()
    first = [position(now - n * HOUR_MS) for n in range(5)]
    second = [position(now - n * HOUR_MS, terminal=SECOND) for n in range(3, 7)]
    report(api, *first, *second)
    assert api.run(prune(api.database, positions.prune, now - HOUR_MS - 1)) == 3 + 3
    assert times(api) == [moment(now - HOUR_MS), moment(now)]
    assert times(api, path=f"/v1/terminals/{SECOND}/positions") == [moment(now - 3 * HOUR_MS)]


def test_more_than_one_transaction_takes_are_deleted(api: Api) -> None:
    now = now_ms()
    report(api, *(position(now - n) for n in range(7_000)))
    assert api.run(prune(api.database, positions.prune, now)) == 6_999


def test_the_service_prunes_by_itself(url: str) -> None:
    now = now_ms()
    with served(url) as before:
        before.add_beam()
        report(before, position(now - HOUR_MS), position(now - 1))
    with served(url, Settings(keep_positions_s=1800.0, prune_every_s=0.05)) as api:

        async def until_deleted() -> None:
            path = f"/v1/terminals/{FIRST}/positions"
            while len((await api.ask("GET", path)).json["positions"]) > 1:
                await asyncio.sleep(0.01)

        api.run(until_deleted())
        assert times(api) == [moment(now - 1)]


@pytest.mark.parametrize("ahead_ms", [-24 * HOUR_MS, 24 * HOUR_MS])
def test_what_is_young_by_the_hosts_clock_or_the_databases_stays(
    url: str, monkeypatch: pytest.MonkeyPatch, ahead_ms: int
) -> None:
    asked = list[int]()

    async def noted(_connection: AsyncConnection, before_ms: int, *, limit: int) -> int:
        assert limit > 0
        asked.append(before_ms)
        return 0

    monkeypatch.setattr(positions, "prune", noted)
    monkeypatch.setattr(pruning, "host_ms", lambda: now_ms() + ahead_ms)
    with served(url, Settings(keep_positions_s=3_600.0, prune_every_s=0.05)) as api:

        async def until_pruned() -> None:
            while not asked:
                await asyncio.sleep(0.01)

        api.run(until_pruned())
    assert asked[0] == pytest.approx(now_ms() + min(0, ahead_ms) - HOUR_MS, abs=60_000)


def test_without_an_age_everything_stays(url: str) -> None:
    with served(url, Settings(keep_positions_s=None, prune_every_s=0.001)) as api:
        api.add_beam()
        report(api, position(946_684_800_000), position(now_ms()))
        assert len(times(api)) == 2


def test_old_blockages_are_deleted_and_those_that_still_come_are_not(api: Api) -> None:
    now = now_ms()
    keep(api, now - 2 * HOUR_MS, expected(now - HOUR_MS))
    keep(api, now - HOUR_MS + 60_000, expected(now + HOUR_MS))
    taken(api, observed(now - HOUR_MS - 1_000, now - HOUR_MS), observed(now - 9_000, now - 8_000))
    assert api.run(prune(api.database, history.prune, now - HOUR_MS // 2)) == 2
    found = api.get("/v1/blockages").json["blockages"]
    assert [one["entry"] for one in found] == [moment(now - 9_000), moment(now + HOUR_MS)]


def test_a_blockage_that_lasts_stays_however_long_ago_it_began(api: Api) -> None:
    now = now_ms()
    taken(api, observed(now - HOUR_MS))
    assert api.run(prune(api.database, history.prune, now)) == 0
    (one,) = api.get("/v1/blockages").json["blockages"]
    assert (one["entry"], "exit" in one) == (moment(now - HOUR_MS), False)
    taken(api, observed(now - HOUR_MS, now - 1_000))
    assert api.run(prune(api.database, history.prune, now)) == 1


def test_places_that_no_loss_confirms_fade_and_go(api: Api) -> None:
    now, day_ms = now_ms(), 24 * HOUR_MS

    def fade(day: int) -> int:
        before_ms = now + day * day_ms - round(1_000 * learned.FADES_S)
        return api.run(prune(api.database, learned.fade, before_ms))

    def counts() -> list[tuple[int, int]]:
        return [(place.lost, place.held) for place in learn(api)[1].values()]

    learn(api, *[LOSS] * 4, HELD, HELD)
    # The first pruning notes the time.
    assert [fade(day) for day in (0, 89, 90, 91)] == [0, 0, 1, 0]
    assert counts() == [(2, 1)]
    (feature,) = api.get("/v1/obstructions").json["features"]
    assert feature["properties"]["certainty"] == pytest.approx(3 / 5)
    # A passage on which the link holds confirms nothing.
    learn(api, HELD)
    assert [fade(day) for day in (179, 180)] == [0, 1]
    assert counts() == [(1, 1)]
    learn(api, LOSS)
    assert [fade(day) for day in (270, 359)] == [0, 0]
    assert counts() == [(2, 1)]
    # After a long time without pruning, it is halved as often as it would have been.
    assert fade(450) == 1
    assert counts() == []


def test_processes_are_told_that_places_fade(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Change] = []
    transaction = api.changes.transaction

    @asynccontextmanager
    async def noted() -> AsyncIterator[tuple[AsyncConnection, Publish]]:
        async with transaction() as (connection, _):
            yield connection, told.append

    async def run() -> None:
        async with api.database.transaction() as connection:
            await connection.execute(update(Obstruction).values(unconfirmed_since_ms=0))
        kinds = [one for one in pruning._kinds(Settings(), Metrics()) if one.told]
        for _ in range(2):
            for kind in kinds:
                await pruning._prune_kind(api.database, api.changes, kind)

    learn(api, LOSS)
    monkeypatch.setattr(api.changes, "transaction", noted)
    api.run(run())
    assert told == [{"kind": "obstructions", "action": "set", "source": "learned", "count": 1}]


def in_portions(api: Api, statement: str, run: Callable[[], object]) -> list[int]:
    """Return how many rows each statement of a kind changed while `run` ran."""
    found: list[int] = []

    def executed(_: object, cursor: Any, text: str, *__: object) -> None:
        if text.replace('"', "").startswith(statement):
            found.append(cursor.rowcount)

    engine = api.database.engine.sync_engine
    event.listen(engine, "after_cursor_execute", executed)
    try:
        run()
    finally:
        event.remove(engine, "after_cursor_execute", executed)
    return found


def test_a_terminal_that_has_reported_for_long_goes_in_portions(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portions, "_AT_ONCE", 100)
    now = now_ms()
    report(api, *(position(now - n) for n in range(950)), position(now, terminal=SECOND))

    def delete() -> None:
        assert api.call("DELETE", f"/v1/terminals/{FIRST}").status == 204

    counts = in_portions(api, "DELETE FROM position_report", delete)
    assert counts == [100] * 9 + [50]
    assert api.call("DELETE", f"/v1/terminals/{FIRST}").status == 404
    assert len(times(api, path=f"/v1/terminals/{SECOND}/positions")) == 1


def test_plans_of_a_beam_and_their_acknowledgements_go_in_portions(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(portions, "_AT_ONCE", 10)

    async def store(beam: str) -> None:
        async with api.database.transaction() as connection:
            plans = [
                {
                    "beam_id": beam,
                    "link": "return",
                    "version": version,
                    "issued_ms": 0,
                    "start_ms": 0,
                    "end_ms": 1,
                    "fence": 0,
                    "reason": "test",
                    "document": "{}",
                }
                for version in range(1, 6)
            ]
            await connection.execute(insert(Plan), plans)
            acknowledged = [
                {
                    "beam_id": beam,
                    "link": "return",
                    "version": version,
                    "node": node,
                    "applied_ms": 0,
                }
                for version in range(1, 6)
                for node in range(7)
            ]
            await connection.execute(insert(Acknowledgement), acknowledged)

    # The service's own pruning would delete the plans in the meantime, with acknowledgements.
    with served(url, Settings(keep_plans_s=None)) as api:
        body = {"name": "Ka", "forward_capacity_bps": 4_000_000, "return_capacity_bps": 400_000}
        assert api.call("PUT", "/v1/beams/ka-2", body).status == 201
        api.run(store("ka-2"))
        old = now_ms() - HOUR_MS
        pruned = in_portions(
            api,
            "DELETE FROM acknowledgement",
            lambda: api.run(prune(api.database, plans.prune_acknowledgements, old)),
        )
        # The newest plan stays with its acknowledgements, also where the beam is planned.
        assert sum(pruned) in (28, 35)
        assert max(pruned) == 10

        def delete() -> None:
            assert api.call("DELETE", "/v1/beams/ka-2").status == 204

        assert sum(in_portions(api, "DELETE FROM plan", delete)) >= 5
