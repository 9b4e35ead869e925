"""Rollouts: in stages, stopped automatically, rolled back, and only by those who may."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any

import pytest
from sqlalchemy import event, insert, update
from sqlalchemy.engine import Row
from underpass_control.metrics import Metrics
from underpass_control.roles import Role
from underpass_control.rollouts.advance import AT_ONCE, advance
from underpass_control.rollouts.stages import Terms
from underpass_control.settings import Settings
from underpass_control.storage import rollouts
from underpass_control.storage.models import RolloutTerminal, Terminal

from tests.control_api.service.api import FIRST, SECOND, Api, now_ms, served
from tests.control_api.service.test_alerts import LOOPBACK, Hook, target, until, waiting
from tests.control_api.service.test_plan_stream import HUB, serve
from tests.control_api.service.two_tenants import NORTH, NORTHERN, SOUTHERN, settle

_CHANGE = {"classes": [{"name": "bulk", "weight": 5}]}
# Stages are not held for a time, except where a test says so.
_TERMS = {"name": "heavier bulk", "settings": _CHANGE, "hold_s": 0}
_MORE = list(range(21, 33))


def _fleet(api: Api) -> list[int]:
    """Put 14 terminals at the hub, of which the first one has a tag."""
    for node in _MORE:
        body = {"beam": "ku-1", "name": f"vehicle {node}"}
        assert api.call("PUT", f"/v1/terminals/{node}", body).status == 201
    nodes = [FIRST, SECOND, *_MORE]
    api.run(serve(api, HUB, *nodes))
    return nodes


def _made(api: Api, **body: Any) -> int:
    reply = api.call("POST", "/v1/rollouts", {**_TERMS, **body})
    assert reply.status == 201, reply.text
    number: int = reply.json["id"]
    return number


def _advance(api: Api) -> None:
    api.run(advance(api.database, api.changes, Metrics()))


def _shown(api: Api, number: int, **options: Any) -> dict[str, Any]:
    shown: dict[str, Any] = api.get(f"/v1/rollouts/{number}", **options).json
    return shown


def _progress(api: Api, number: int) -> dict[int, str]:
    found = api.get(f"/v1/rollouts/{number}/terminals?limit=1000").json["terminals"]
    return {one["terminal"]: one["progress"] for one in found}


def _those(api: Api, number: int, progress: str) -> list[int]:
    return [node for node, how in _progress(api, number).items() if how == progress]


def _says(api: Api, nodes: Iterable[int], state: str, reason: str | None = None) -> None:
    """Make terminals report the outcome of their present settings."""
    reports = []
    for place, node in enumerate(nodes):
        version = api.get(f"/v1/terminals/{node}/settings").json["version"]
        said = {
            "kind": "settings",
            "settings": version,
            "applied": state in ("trial", "confirmed"),
            "state": state,
            "uptime_ms": now_ms() % 10**9 + place,
            "incarnation": 7,
        }
        if reason is not None:
            said["reason"] = reason
        reports.append({"node": node, "age_ms": 1, "report": said})
    post = {"version": 1, "node": HUB, "sent_ms": now_ms(), "reports": reports}
    reply = api.call("POST", "/v1/reports", post, caller="gateway")
    assert reply.status == 200, reply.text
    assert not reply.json["refused"], reply.text


def _set_state(api: Api, number: int, state: str, **body: Any) -> int:
    path = f"/v1/rollouts/{number}/state"
    return api.call("PUT", path, {"state": state, **body}).status


def test_one_ten_all_each_after_the_one_before_has_confirmed(api: Api) -> None:
    nodes = _fleet(api)
    number = _made(api, beam="ku-1")
    assert _shown(api, number)["counts"]["pending"] == len(nodes)
    for stage, count in ((1, 1), (2, 10), (3, 3)):
        _advance(api)
        sent = _those(api, number, "sent")
        assert len(sent) == count
        shown = _shown(api, number)
        assert (shown["state"], shown["stage"]) == ("running", stage)
        _says(api, sent, "trial")
        _advance(api)
        assert _those(api, number, "trial") == sent
        _says(api, sent, "confirmed")
    _advance(api)
    shown = _shown(api, number)
    assert shown["state"] == "done"
    assert shown["counts"]["confirmed"] == len(nodes)
    document = api.get(f"/v1/terminals/{nodes[5]}/settings").json
    assert (document["state"], document["classes"]) == ("applied", _CHANGE["classes"])


def test_the_next_stage_waits_until_the_last_one_has_held(api: Api) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST, SECOND], hold_s=3_600)
    _advance(api)
    _says(api, [FIRST], "confirmed")
    _advance(api)
    assert _progress(api, number) == {FIRST: "confirmed", SECOND: "pending"}
    _past(api, 3_600_000)
    _advance(api)
    assert _progress(api, number) == {FIRST: "confirmed", SECOND: "sent"}


def test_a_rollout_to_one_ends_with_its_confirmation_and_bars_no_other(api: Api) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST], hold_s=3_600)
    _advance(api)
    _says(api, [FIRST], "trial")
    _advance(api)
    assert _shown(api, number)["state"] == "running"
    body = {**_TERMS, "terminals": [FIRST]}
    assert api.call("POST", "/v1/rollouts", body).status == 409
    _says(api, [FIRST], "confirmed")
    _advance(api)
    shown = _shown(api, number)
    assert (shown["state"], shown["stage"]) == ("done", 1)
    _made(api, terminals=[FIRST])


def _past(api: Api, ms: int) -> None:
    """Move all times so far into the past."""

    async def run() -> None:
        table = RolloutTerminal
        async with api.database.transaction() as connection:
            await connection.execute(
                update(table).values(
                    sent_ms=table.sent_ms - ms, confirmed_ms=table.confirmed_ms - ms
                )
            )

    api.run(run())


@pytest.mark.parametrize("state", ["rolled-back", "refused"])
def test_the_first_that_does_not_take_it_stops_it_and_an_operator_decides(
    api: Api, state: str
) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST, SECOND, *_MORE])
    metrics = Metrics()
    _advance(api)
    _says(api, [FIRST], state, "the hub was not heard")
    api.run(advance(api.database, api.changes, metrics))
    shown = _shown(api, number)
    assert shown["state"] == "stopped"
    assert f"terminal {FIRST}" in shown["reason"]
    assert "the hub was not heard" in shown["reason"]
    assert metrics.registry.get_sample_value("underpass_control_rollouts_stopped_total") == 1
    _advance(api)
    assert _those(api, number, "sent") == []
    assert _set_state(api, number, "paused") == 409
    # Resuming accepts that failure, but no other.
    assert _set_state(api, number, "running") == 200
    _advance(api)
    assert _those(api, number, "sent") == [SECOND, *_MORE[:9]]
    assert "reason" not in _shown(api, number)
    _says(api, [SECOND], state, "again")
    _advance(api)
    assert _shown(api, number)["state"] == "stopped"


def test_a_webhook_is_told_once_that_one_has_stopped(url: str) -> None:
    settings = Settings(advance_rollouts_every_s=3_600, webhook_networks=LOOPBACK)
    with served(url, settings) as api:
        api.add_beam()
        hook = Hook(api)
        target(api, hook.url())
        _fleet(api)
        number = _made(api, terminals=[FIRST, SECOND])
        _advance(api)
        _says(api, [FIRST], "rolled-back", "the hub was not heard")
        _advance(api)
        _advance(api)
        until(api, lambda: waiting(api) == 0)
        [(_, body)] = hook.got
        told = json.loads(body)
        assert (told["event"], told["rollout"]["id"]) == ("stopped", number)
        assert told["rollout"]["name"] == _TERMS["name"]
        assert "the hub was not heard" in told["rollout"]["text"]
        # It stops again, and another message is sent.
        assert _set_state(api, number, "running") == 200
        _advance(api)
        _says(api, [SECOND], "refused", "no such class")
        _advance(api)
        until(api, lambda: len(hook.got) == 2)
        hook.close()


def test_a_pause_sends_nothing_more_and_still_learns_what_becomes_of_it(api: Api) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST, SECOND])
    _advance(api)
    assert _set_state(api, number, "paused") == 200
    _says(api, [FIRST], "confirmed")
    _advance(api)
    assert _progress(api, number) == {FIRST: "confirmed", SECOND: "pending"}
    assert _set_state(api, number, "running") == 200
    _advance(api)
    assert _those(api, number, "sent") == [SECOND]


def test_aborting_restores_what_was_set_before_where_it_is_still_there(api: Api) -> None:
    _fleet(api)
    own = {"classes": [{"name": "bulk", "policy": "migrate"}], "paths": []}
    assert api.call("PUT", f"/v1/terminals/{FIRST}/settings", own).status == 200
    number = _made(api, terminals=[FIRST, SECOND, 21, 22], stages=[3])
    _advance(api)
    laid = api.get(f"/v1/terminals/{FIRST}/settings").json
    assert laid["classes"] == [{"name": "bulk", "policy": "migrate", "weight": 5}]
    _says(api, [FIRST, 21], "confirmed")
    # In the meantime an operator set something else.
    other = {"classes": [{"name": "bulk", "weight": 9}], "paths": []}
    assert api.call("PUT", f"/v1/terminals/{SECOND}/settings", other).status == 200
    assert _set_state(api, number, "aborted", restore=True) == 200
    _advance(api)
    assert _shown(api, number)["state"] == "aborted"
    expected = {FIRST: "restored", SECOND: "replaced", 21: "restored", 22: "pending"}
    assert _progress(api, number) == expected
    assert api.get(f"/v1/terminals/{FIRST}/settings").json["classes"] == own["classes"]
    assert api.get(f"/v1/terminals/{SECOND}/settings").json["classes"] == other["classes"]
    assert api.get("/v1/terminals/21/settings").json["classes"] == []
    assert api.get("/v1/terminals/22/settings").status == 404
    assert _set_state(api, number, "running") == 409


def test_aborting_without_more_leaves_terminals_as_they_are(api: Api) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST, SECOND])
    _advance(api)
    assert _set_state(api, number, "aborted") == 200
    _advance(api)
    assert _shown(api, number)["state"] == "aborted"
    assert _progress(api, number) == {FIRST: "sent", SECOND: "pending"}
    assert api.get(f"/v1/terminals/{FIRST}/settings").json["classes"] == _CHANGE["classes"]
    # Its terminals are free for another rollout.
    _made(api, terminals=[FIRST, SECOND])


def test_a_terminal_that_is_away_is_shown_late_and_does_not_hold_up_the_others(api: Api) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST, SECOND, 21], wait_s=600)
    _advance(api)
    _past(api, 600_000)
    _advance(api)
    [first, second, third] = api.get(f"/v1/rollouts/{number}/terminals").json["terminals"]
    assert (first["progress"], first["late"]) == ("sent", True)
    # The first stage is tried with another terminal.
    assert (second["progress"], second["late"], second["stage"]) == ("sent", False, 1)
    assert third["progress"] == "pending"
    _says(api, [SECOND], "confirmed")
    _advance(api)
    _says(api, [21], "confirmed")
    _advance(api)
    assert _shown(api, number)["state"] == "running"
    _says(api, [FIRST], "confirmed")
    _advance(api)
    assert _shown(api, number)["state"] == "done"


def test_a_late_word_of_the_trial_takes_no_confirmation_back(api: Api) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST])
    _advance(api)
    _says(api, [FIRST], "confirmed")
    _says(api, [FIRST], "trial")
    assert api.get(f"/v1/terminals/{FIRST}/settings").json["state"] == "applied"
    _advance(api)
    assert _progress(api, number) == {FIRST: "confirmed"}


def test_the_end_of_a_trial_counts_though_its_begin_comes_later_in_one_post(api: Api) -> None:
    _fleet(api)
    assert api.call("PUT", f"/v1/terminals/{FIRST}/settings", {}).status == 200
    version = api.get(f"/v1/terminals/{FIRST}/settings").json["version"]
    entries = [
        {
            "node": FIRST,
            "age_ms": age_ms,
            "report": {
                "kind": "settings",
                "settings": version,
                "applied": True,
                "state": state,
                "uptime_ms": 9_000 - age_ms,
                "incarnation": 7,
            },
        }
        for age_ms, state in ((10, "confirmed"), (5_000, "trial"))
    ]
    post = {"version": 1, "node": HUB, "sent_ms": now_ms(), "reports": entries}
    assert api.call("POST", "/v1/reports", post, caller="gateway").json["accepted"] == 2
    assert api.get(f"/v1/terminals/{FIRST}/settings").json["state"] == "applied"


def test_what_contradicts_itself_is_no_report(api: Api) -> None:
    _fleet(api)
    assert api.call("PUT", f"/v1/terminals/{FIRST}/settings", {}).status == 200
    version = api.get(f"/v1/terminals/{FIRST}/settings").json["version"]
    said = {
        "kind": "settings",
        "settings": version,
        "applied": False,
        "state": "confirmed",
        "uptime_ms": 1,
        "incarnation": 7,
    }
    entry = {"node": FIRST, "age_ms": 1, "report": said}
    post = {"version": 1, "node": HUB, "sent_ms": now_ms(), "reports": [entry]}
    reply = api.call("POST", "/v1/reports", post, caller="gateway")
    assert len(reply.json["refused"]) == 1
    assert api.get(f"/v1/terminals/{FIRST}/settings").json["state"] == "waiting"


def test_two_processes_at_once_set_each_terminal_once(api: Api) -> None:
    nodes = _fleet(api)
    number = _made(api, terminals=nodes, stages=[])

    async def both() -> None:
        # On SQLite there is one process; its turns may overlap all the same.
        await asyncio.gather(*(advance(api.database, api.changes, Metrics()) for _ in range(3)))

    api.run(both())
    assert _those(api, number, "sent") == nodes
    entries = api.get("/v1/audit?limit=1000", caller="administrator").json["entries"]
    by_rollout = [one for one in entries if one["actor_kind"] == "rollout"]
    assert len(by_rollout) == len(nodes)
    assert {one["actor_id"] for one in by_rollout} == {number}
    assert by_rollout[0]["after"]["class"] == _CHANGE["classes"]


def test_many_terminals_are_set_and_awaited_without_reading_all_of_them(api: Api) -> None:
    nodes = list(range(1_000, 1_000 + 3 * AT_ONCE + 50))

    async def make() -> None:
        rows = [{"node": node, "beam_id": "ku-1", "name": "coach"} for node in nodes]
        async with api.database.transaction() as connection:
            await connection.execute(insert(Terminal), rows)

    api.run(make())
    api.run(serve(api, HUB, *nodes[:2]))
    number = _made(api, terminals=nodes, stages=[])
    # All are set, some at a time; no statement reads more than these.
    assert 1 < max(_rows_read_of_advancing(api)) <= AT_ONCE
    assert len(_those(api, number, "sent")) == len(nodes)
    # While it is open, and none has moved, a look reads counts.
    assert sum(_rows_read_of_advancing(api)) < 10
    _says(api, nodes[:2], "confirmed")
    assert sum(_rows_read_of_advancing(api)) < 30
    assert len(_those(api, number, "confirmed")) == 2


def _rows_read_of_advancing(api: Api) -> list[int]:
    """Advance; return how many rows each statement about terminals of rollouts has read."""
    read: list[int] = []

    def executed(_connection: Any, cursor: Any, statement: str, *_rest: Any) -> None:
        if "rollout_terminal" in statement and cursor.description is not None:
            # The drivers' adapters have fetched all rows by now.
            read.append(len(cursor._rows))

    engine = api.database.engine.sync_engine
    event.listen(engine, "after_cursor_execute", executed)
    try:
        _advance(api)
    finally:
        event.remove(engine, "after_cursor_execute", executed)
    return read


def test_another_process_goes_on_with_it(api: Api) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST, SECOND])
    _advance(api)
    _says(api, [FIRST], "confirmed")
    other = api.replica()
    other.run(advance(other.database, other.changes, Metrics()))
    other.run(other.database.close())
    assert _progress(api, number) == {FIRST: "confirmed", SECOND: "sent"}


def test_one_that_fails_holds_up_no_other(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    nodes = _fleet(api)
    first, second = _made(api, terminals=nodes[:2]), _made(api, terminals=nodes[2:4])
    terms_of = rollouts.terms_of

    def of(row: Row[Any]) -> Terms:
        if row.id == first:
            raise ValueError("nobody has thought of this")
        return terms_of(row)

    with monkeypatch.context() as broken:
        broken.setattr(rollouts, "terms_of", of)
        _advance(api)
    assert (_those(api, first, "sent"), _those(api, second, "sent")) == ([], nodes[2:3])
    # The rollout continues as soon as it can.
    _advance(api)
    assert _those(api, first, "sent") == nodes[:1]


def test_the_service_itself_has_it_go_on(url: str) -> None:
    with served(url, Settings(advance_rollouts_every_s=0.05)) as api:
        api.add_beam()
        number = _made(api, terminals=[FIRST])
        path = f"/v1/terminals/{FIRST}/settings"

        async def set_by_it() -> None:
            async with asyncio.timeout(30):
                while (await api.ask("GET", path)).status != 200:
                    await asyncio.sleep(0.05)

        api.run(set_by_it())
        assert _progress(api, number) == {FIRST: "sent"}


def test_no_two_rollouts_work_on_one_terminal(api: Api) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST, SECOND])
    reply = api.call("POST", "/v1/rollouts", {**_TERMS, "beam": "ku-1"})
    assert reply.status == 409
    assert f"rollout {number}" in reply.problem


def test_who_has_not_seen_the_last_change_is_told(api: Api) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST])
    tag = api.get(f"/v1/rollouts/{number}").headers["ETag"]
    path, seen = f"/v1/rollouts/{number}/state", {"If-Match": tag}
    assert api.call("PUT", path, {"state": "paused"}, headers=seen).status == 200
    assert api.call("PUT", path, {"state": "aborted"}, headers=seen).status == 412


def test_progress_does_not_stand_in_the_way_of_an_operator_and_a_stop_does(api: Api) -> None:
    _fleet(api)
    number = _made(api, terminals=[FIRST, SECOND, *_MORE])
    [seen] = api.get("/v1/rollouts").json["rollouts"]
    path = f"/v1/rollouts/{number}/state"

    def put(state: str, revision: int) -> int:
        headers = {"If-Match": f'"{revision}"'}
        return api.call("PUT", path, {"state": state}, headers=headers).status

    _advance(api)
    _says(api, [FIRST], "confirmed")
    _advance(api)
    assert _shown(api, number)["stage"] == 2
    assert put("paused", seen["revision"]) == 200
    paused = _shown(api, number)["revision"]
    assert put("running", paused) == 200
    running = _shown(api, number)["revision"]
    _says(api, [SECOND], "refused", "no such class")
    _advance(api)
    # Who has not seen that it has stopped does not accept the failure.
    assert _shown(api, number)["state"] == "stopped"
    assert put("running", running) == 412
    assert put("aborted", paused) == 412
    assert _shown(api, number)["state"] == "stopped"
    assert len({seen["revision"], paused, running}) == 3


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 422),
        ({"terminals": []}, 422),
        ({"terminals": [FIRST, FIRST]}, 422),
        ({"terminals": [FIRST], "beam": "ku-1"}, 422),
        ({"terminals": [FIRST], "stages": [0]}, 422),
        ({"terminals": [FIRST], "stages": [1] * 11}, 422),
        ({"terminals": [FIRST], "settings": {}}, 422),
        ({"terminals": [FIRST], "settings": {"paths": [{"name": "b", "plain": True}]}}, 422),
        ({"terminals": [FIRST], "hold_s": -1}, 422),
        ({"terminals": list(range(1, 10_002))}, 422),
        ({"terminals": [FIRST, 4_000]}, 409),
        ({"tag": "nobody's"}, 409),
        ({"beam": "ka"}, 409),
    ],
)
def test_what_is_none_is_refused_and_nothing_is_made(
    unchanged: Api, body: dict[str, Any], status: int
) -> None:
    assert unchanged.call("POST", "/v1/rollouts", {**_TERMS, **body}).status == status
    assert unchanged.get("/v1/rollouts").json["rollouts"] == []


def test_by_a_tag_and_nothing_at_all_is_set(api: Api) -> None:
    _fleet(api)
    path = f"/v1/terminals/{SECOND}"
    assert api.call("PUT", path + "/tags", {"tags": ["bus"]}).status == 200
    assert api.call("PUT", path + "/settings", _CHANGE).status == 200
    number = _made(api, tag="bus", settings={}, whole=True)
    _advance(api)
    assert _progress(api, number) == {SECOND: "sent"}
    assert api.get(path + "/settings").json["classes"] == []


@pytest.mark.parametrize("caller", ["viewer", "gateway", "first"])
def test_only_operators_roll_anything_out(api: Api, caller: str) -> None:
    number = _made(api, terminals=[FIRST])
    body = {**_TERMS, "terminals": [SECOND]}
    assert api.call("POST", "/v1/rollouts", body, caller=caller).status == 403
    path = f"/v1/rollouts/{number}/state"
    assert api.call("PUT", path, {"state": "aborted"}, caller=caller).status == 403


def test_a_tenants_operator_rolls_out_to_vehicles_of_the_tenant_alone(api: Api) -> None:
    settle(api)
    token = api.run(api.token(Role.OPERATOR, tenant=NORTH))
    south = _made(api, terminals=[SOUTHERN])
    body = {**_TERMS, "terminals": [SOUTHERN]}
    assert api.call("POST", "/v1/rollouts", body, caller=token).status == 409
    made = api.call("POST", "/v1/rollouts", {**_TERMS, "beam": "ku-1"}, caller=token)
    assert made.status == 201, made.text
    number = made.json["id"]
    assert _progress(api, number) == {NORTHERN: "pending"}
    for path in (f"/v1/rollouts/{south}", f"/v1/rollouts/{south}/terminals"):
        assert api.get(path, caller=token).status == 404
    path = f"/v1/rollouts/{south}/state"
    assert api.call("PUT", path, {"state": "aborted"}, caller=token).status == 404
    listed = api.get("/v1/rollouts", caller=token).json["rollouts"]
    assert [one["id"] for one in listed] == [number]


def test_a_tenant_takes_no_room_for_rollouts_from_others(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(api)
    monkeypatch.setattr("underpass_control.http.rollouts.MOST_OPEN", 1)
    token = api.run(api.token(Role.OPERATOR, tenant=NORTH))
    of_tenant = {**_TERMS, "terminals": [NORTHERN]}
    assert api.call("POST", "/v1/rollouts", of_tenant, caller=token).status == 201
    _made(api, terminals=[FIRST])
    full = api.call("POST", "/v1/rollouts", {**_TERMS, "terminals": [SECOND]})
    assert (full.status, "abort some" in full.problem) == (409, True)


def test_a_vehicle_that_has_left_the_tenant_is_not_set_by_its_rollout(api: Api) -> None:
    settle(api)
    token = api.run(api.token(Role.OPERATOR, tenant=NORTH))
    body = {**_TERMS, "terminals": [NORTHERN]}
    number = api.call("POST", "/v1/rollouts", body, caller=token).json["id"]
    terminal = {"beam": "ku-1", "name": "sold", "tenant": "default"}
    assert api.call("PUT", f"/v1/terminals/{NORTHERN}", terminal).status == 200
    _advance(api)
    assert api.get(f"/v1/terminals/{NORTHERN}/settings").status == 404
    assert _progress(api, number) == {NORTHERN: "replaced"}
