"""Interventions, by which operators temporarily overrule the planner."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from underpass_control.instants import milliseconds_of, moment_of, rfc3339
from underpass_control.pruning import prune
from underpass_control.roles import Role
from underpass_control.storage import interventions

from dama.prediction import Span
from tests.control_api.service.api import FIRST, SECOND, Api, Reply, now_ms, served
from tests.control_api.service.test_expectations import expected, keep, kept
from tests.control_api.service.test_plans import planned
from tests.control_api.service.two_tenants import NORTH, NORTHERN, SOUTHERN, settle

PATH = "/v1/interventions"
# The time that a plan may take on a busy machine.
_PATIENCE_S = 200


def at(after_ms: int) -> str:
    return rfc3339(moment_of(now_ms() + after_ms))


def add(api: Api, kind: str, **members: object) -> Any:
    """Make an intervention, by default for ten minutes; return it."""
    if kind != "withdrawal":
        members = {"until": at(600_000), **members}
    reply = api.call("POST", PATH, {"kind": kind, **members})
    assert reply.status == 201, reply.text
    return reply.json


def release(api: Api, one: Any, revision: int | None = None) -> Reply:
    tag = {"If-Match": f'"{revision or one["revision"]}"'}
    return api.call("DELETE", f"{PATH}/{one['id']}", headers=tag)


def rates(plan: Any) -> dict[int, int]:
    """Return each terminal's rate at the plan's beginning."""
    return {
        node: line["segments"][0]["rate_bps"]
        for line in plan["lines"]
        for node in line["terminals"]
    }


def plan_that(api: Api, holds: Callable[[Any], bool]) -> Any:
    """Wait until the newest plan fulfils a condition; return it."""
    until = time.monotonic() + _PATIENCE_S
    while True:
        plan = planned(api, "forward").json
        if holds(plan):
            return plan
        assert time.monotonic() < until, plan
        api.run(asyncio.sleep(0.05))


def announce(api: Api, node: int, after_ms: int, duration_ms: int = 30_000) -> int:
    """Announce a blockage; return its number once it is expected."""
    body = {"entry": at(after_ms), "duration_ms": duration_ms, "confidence": 1.0}
    assert api.call("POST", f"/v1/terminals/{node}/announcements", body).status == 202
    until = time.monotonic() + _PATIENCE_S
    while True:
        found = api.get(f"/v1/blockages?state=predicted&terminal={node}").json["blockages"]
        if found:
            number: int = found[-1]["id"]
            return number
        assert time.monotonic() < until
        api.run(asyncio.sleep(0.1))


def states(plan: Any, node: int) -> list[str]:
    (line,) = (line for line in plan["lines"] if node in line["terminals"])
    return [segment["state"] for segment in line["segments"]]


def test_a_terminals_rate_is_what_an_operator_sets_until_it_is_released(api: Api) -> None:
    assert rates(planned(api).json) == {FIRST: 4_000_000, SECOND: 4_000_000}
    one = add(api, "rate", terminal=FIRST, forward_bps=1_000_000, note="a broadcast")
    assert one["state"] == "in force"
    assert (one["beam"], one["set_by"]) == ("ku-1", "the tests' operator")
    plan = plan_that(api, lambda plan: rates(plan)[FIRST] == 1_000_000)
    assert rates(plan) == {FIRST: 1_000_000, SECOND: 7_000_000}
    assert plan["reason"] == "intervention"
    # The other link is unchanged.
    assert rates(planned(api, "return").json) == {FIRST: 1_000_000, SECOND: 1_000_000}
    assert release(api, one).status == 204
    plan_that(api, lambda plan: rates(plan) == {FIRST: 4_000_000, SECOND: 4_000_000})
    assert api.get(PATH).json["interventions"] == []


def test_a_released_one_is_listed_as_ended_when_it_was_released(api: Api) -> None:
    one = add(api, "rate", terminal=FIRST, forward_bps=1_000_000)
    tag = {"If-Match": '"1"'}
    path = f"{PATH}/{one['id']}"
    assert api.call("DELETE", path, caller="administrator", headers=tag).status == 204
    assert api.get(PATH).json["interventions"] == []
    (ended,) = api.get(f"{PATH}?ended=true").json["interventions"]
    assert ended == api.get(path).json
    assert (ended["state"], ended["revision"]) == ("ended", 2)
    assert (ended["set_by"], ended["forward_bps"]) == ("the tests' administrator", 1_000_000)
    assert milliseconds_of(ended["until"]) < milliseconds_of(one["until"])
    again = release(api, ended)
    assert (again.status, "has ended already" in again.problem) == (409, True)
    # It is out of the way of another, and not counted with those ahead.
    assert add(api, "rate", terminal=FIRST, forward_bps=2_000_000)["id"] != one["id"]
    (entry,) = api.get(f"/v1/audit?target={path}&limit=1", caller="administrator").json["entries"]
    assert (entry["action"], entry["after"]["until"]) == ("delete", ended["until"])


def test_one_that_is_released_before_it_begins_was_never_in_force(api: Api) -> None:
    one = add(api, "freeze", beam="ku-1", **{"from": at(300_000)})
    assert release(api, one).status == 204
    assert api.get(f"{PATH}?ended=true").json["interventions"] == []
    assert "before it began" in api.get(f"{PATH}/{one['id']}").problem


def test_a_released_withdrawal_does_not_follow_its_blockage_any_more(api: Api) -> None:
    planned(api)
    # Only this test sets the expected blockages.
    api.run(api.service.controllers.close())
    entry_ms = now_ms() + 600_000
    keep(api, now_ms(), expected(entry_ms))
    (row,) = kept(api)
    one = add(api, "withdrawal", blockage=row.id)

    async def moves(to_ms: int) -> None:
        span = Span(row.obstruction, to_ms, to_ms + 30_000)
        async with api.database.transaction() as connection:
            await interventions.withdrawal_moved(connection, {one["id"]: span})

    path = f"{PATH}/{one['id']}"
    api.run(moves(entry_ms + 60_000))
    moved = api.get(path).json
    assert milliseconds_of(moved["entry"]) == entry_ms + 60_000
    assert release(api, one).status == 204
    ended = api.get(path).json
    # A planner that does not know of the release yet.
    api.run(moves(entry_ms + 120_000))
    assert api.get(path).json == ended
    assert ended["state"] == "ended"


def test_a_rate_leaves_others_what_is_guaranteed_to_them_or_set(api: Api) -> None:
    terminal = {"beam": "ku-1", "name": "x", "forward_minimum_bps": 2_000_000}
    assert api.call("PUT", f"/v1/terminals/{SECOND}", terminal).status == 200
    body = {"kind": "rate", "terminal": FIRST, "until": at(60_000), "forward_bps": 6_000_001}
    refused = api.call("POST", PATH, body)
    assert refused.status == 409
    assert "at most 6000000 bit/s" in refused.problem
    one = add(api, "rate", terminal=FIRST, forward_bps=6_000_000)
    # A rate set for one is not available to the other.
    other = api.call("POST", PATH, {**body, "terminal": SECOND, "forward_bps": 2_000_001})
    assert other.status == 409
    change = api.call(
        "PUT", f"{PATH}/{one['id']}", {"forward_bps": 6_000_001}, headers={"If-Match": '"1"'}
    )
    assert change.status == 409


def test_what_is_guaranteed_again_once_a_set_rate_is_over_is_left_to_its_terminal(
    api: Api,
) -> None:
    terminal = {"beam": "ku-1", "name": "x", "forward_minimum_bps": 2_000_000}
    assert api.call("PUT", f"/v1/terminals/{SECOND}", terminal).status == 200
    add(api, "rate", terminal=SECOND, forward_bps=1_000_000, until=at(300_000))
    body = {"kind": "rate", "terminal": FIRST, "forward_bps": 7_000_000}
    longer = api.call("POST", PATH, {**body, "until": at(600_000)})
    assert longer.status == 409
    assert "at most 6000000 bit/s" in longer.problem
    assert api.call("POST", PATH, {**body, "until": at(200_000)}).status == 201


def test_a_rate_fits_the_least_capacity_of_its_time(api: Api) -> None:
    steps = [
        {"from": at(300_000), "rate_bps": 3_000_000},
        {"from": at(600_000), "rate_bps": 1_000_000},
    ]
    assert api.call("PUT", "/v1/beams/ku-1/capacity", {"forward": steps}).status == 200
    body = {"kind": "rate", "terminal": FIRST, "forward_bps": 4_000_000}
    longer = api.call("POST", PATH, {**body, "until": at(500_000)})
    assert longer.status == 409
    assert "at most 3000000 bit/s" in longer.problem
    # It is over when the capacity falls.
    one = add(api, "rate", terminal=FIRST, forward_bps=4_000_000, until=at(200_000))
    path, tag = f"{PATH}/{one['id']}", {"If-Match": '"1"'}
    change = api.call("PUT", path, {"until": at(700_000)}, headers=tag)
    assert change.status == 409
    assert "at most 1000000 bit/s" in change.problem
    fitting = {"until": at(500_000), "forward_bps": 3_000_000}
    assert api.call("PUT", path, fitting, headers=tag).status == 200


def test_a_blockage_is_withdrawn_once(api: Api) -> None:
    planned(api)
    number = announce(api, FIRST, 600_000)
    # Nothing acts on the first withdrawal, so the blockage is still expected.
    api.run(api.service.controllers.close())
    one = add(api, "withdrawal", blockage=number)
    again = api.call("POST", PATH, {"kind": "withdrawal", "blockage": number})
    assert again.status == 409
    assert f"release that one, {one['id']}" in again.problem
    noted = api.call("PUT", f"{PATH}/{one['id']}", {"note": "x"}, headers={"If-Match": '"1"'})
    assert noted.status == 200, noted.text


def test_each_passage_of_one_obstruction_is_withdrawn_by_itself(api: Api) -> None:
    planned(api)
    # Only this test sets the expected blockages.
    api.run(api.service.controllers.close())
    begin_ms = now_ms()
    keep(api, begin_ms, expected(begin_ms + 600_000), expected(begin_ms + 900_000))
    first, second = (row.id for row in kept(api))
    one = add(api, "withdrawal", blockage=second)
    other = add(api, "withdrawal", blockage=first)
    assert milliseconds_of(one["entry"]) == begin_ms + 900_000
    assert milliseconds_of(other["entry"]) == begin_ms + 600_000
    for blockage, of in ((first, other), (second, one)):
        again = api.call("POST", PATH, {"kind": "withdrawal", "blockage": blockage})
        assert again.status == 409
        assert f"release that one, {of['id']}" in again.problem


def test_while_a_beam_is_frozen_nothing_new_is_lent_and_what_runs_is_kept(api: Api) -> None:
    planned(api)
    announce(api, FIRST, 600_000)
    plan_that(api, lambda plan: states(plan, FIRST)[:2] == ["borrowing", "blocked"])
    one = add(api, "freeze", beam="ku-1")
    announce(api, SECOND, 660_000)
    plan = plan_that(api, lambda plan: "blocked" in states(plan, SECOND))
    # The first still borrows; the second, which is blocked too, does not.
    assert states(plan, FIRST)[:2] == ["borrowing", "blocked"]
    assert "borrowing" not in states(plan, SECOND)
    release(api, one)
    plan_that(api, lambda plan: "borrowing" in states(plan, SECOND))


def test_the_next_process_keeps_lending_for_what_was_foreseen_before_the_freeze(
    api: Api,
) -> None:
    planned(api)
    announce(api, FIRST, 600_000)
    plan_that(api, lambda plan: states(plan, FIRST)[:2] == ["borrowing", "blocked"])
    add(api, "freeze", beam="ku-1")
    last = plan_that(api, lambda plan: plan["reason"] == "intervention")["plan"]
    api.run(api.service.controllers.close())
    replica = api.replica()
    api.run(replica.start())
    try:
        plan = plan_that(replica, lambda plan: plan["plan"] > last)
        assert plan["reason"] == "first"
        assert states(plan, FIRST)[:2] == ["borrowing", "blocked"]
    finally:
        api.run(replica.client.close())


def test_a_withdrawn_blockage_is_not_predicted_again_until_the_withdrawal_is_released(
    api: Api,
) -> None:
    planned(api)
    number = announce(api, FIRST, 600_000)
    plan_that(api, lambda plan: "blocked" in states(plan, FIRST))
    one = add(api, "withdrawal", blockage=number)
    assert one["terminal"] == FIRST
    assert milliseconds_of(one["until"]) > milliseconds_of(one["exit"])
    plan_that(api, lambda plan: "blocked" not in states(plan, FIRST))
    # The terminal announces it again with a slightly later entry: it is the same one.
    later = rfc3339(moment_of(milliseconds_of(one["entry"]) + 2_000))
    body = {"entry": later, "duration_ms": 30_000, "confidence": 1.0}
    assert api.call("POST", f"/v1/terminals/{FIRST}/announcements", body).status == 202
    # A change of terms causes another plan with it.
    last = planned(api).json["plan"]
    terms = {"beam": "ku-1", "name": "x", "weight": 2}
    assert api.call("PUT", f"/v1/terminals/{SECOND}", terms).status == 200
    plan = plan_that(api, lambda plan: plan["plan"] > last)
    assert "blocked" not in states(plan, FIRST)
    gone = "/v1/blockages?state=predicted"
    until = time.monotonic() + _PATIENCE_S
    while api.get(gone).json["blockages"]:
        assert time.monotonic() < until
        api.run(asyncio.sleep(0.1))
    again = api.call("POST", PATH, {"kind": "withdrawal", "blockage": number})
    assert again.status == 409
    assert "no blockage" in again.problem
    assert release(api, one).status == 204
    plan_that(api, lambda plan: "blocked" in states(plan, FIRST))


def test_a_beams_maintenance_is_capacity_that_is_known_to_be_away(api: Api) -> None:
    planned(api)
    start, end = now_ms() + 120_000, now_ms() + 150_000
    times = {"from": rfc3339(moment_of(start)), "until": rfc3339(moment_of(end))}
    one = add(api, "maintenance", beam="ku-1", forward_bps=0, **times)
    assert one["state"] == "ahead"
    plan = plan_that(api, lambda plan: len(plan["capacity"]) == 3)
    assert [step["rate_bps"] for step in plan["capacity"]] == [8_000_000, 0, 8_000_000]
    assert plan["capacity"][1]["from"] == times["from"]
    # The capacity that was set is shown unchanged.
    assert api.get("/v1/beams/ku-1/capacity").json["forward"] == []
    assert len(planned(api, "return").json["capacity"]) == 1
    release(api, one)
    plan_that(api, lambda plan: len(plan["capacity"]) == 1)


def test_a_terminal_in_maintenance_wants_nothing_and_others_owe_it_nothing(api: Api) -> None:
    planned(api)
    add(api, "maintenance", terminal=FIRST)
    plan = plan_that(api, lambda plan: rates(plan)[FIRST] == 0)
    assert rates(plan)[SECOND] == 8_000_000
    (line,) = api.get(f"/v1/beams/ku-1/plans/forward?terminal={FIRST}").json["lines"]
    assert all(segment["fair_bits"] == 0 for segment in line["segments"])


def test_of_two_operators_the_second_is_told(api: Api) -> None:
    one = add(api, "freeze", beam="ku-1")
    twice = api.call("POST", PATH, {"kind": "freeze", "beam": "ku-1", "until": at(60_000)})
    assert twice.status == 409
    assert f"the tests' operator has set a freeze of it until {one['until']}" in twice.problem
    path = f"{PATH}/{one['id']}"
    tag = api.get(path).headers["ETag"]
    later = {"until": at(900_000)}
    assert api.call("PUT", path, later).status == 428
    changed = api.call("PUT", path, later, headers={"If-Match": tag})
    assert changed.status == 200
    assert changed.headers["ETag"] != tag
    second = api.call("PUT", path, {"until": at(30_000)}, headers={"If-Match": tag})
    assert second.status == 412
    assert "the tests' operator has changed it at" in second.problem
    assert release(api, one).status == 412
    assert api.call("DELETE", path).status == 428
    assert api.call("DELETE", path, headers={"If-Match": "*"}).status == 428
    assert release(api, one, 2).status == 204
    assert release(api, one, 2).status == 412
    assert release(api, one, 3).status == 409


async def test_of_many_at_once_one_is_taken(api: Api) -> None:
    body = {"kind": "rate", "terminal": FIRST, "until": at(60_000), "forward_bps": 1_000}

    replies = await asyncio.gather(*(api.ask("POST", PATH, body) for _ in range(8)))
    assert sorted(reply.status for reply in replies) == [201] + [409] * 7


@pytest.mark.parametrize(
    ("body", "detail"),
    [
        ({"kind": "freeze", "until": "2100-01-01T00:00:00Z"}, "needs beam"),
        ({"kind": "freeze", "beam": "ku-1"}, "needs until"),
        ({"kind": "freeze", "beam": "ku-1", "until": None}, "needs until"),
        ({"kind": "rate", "terminal": None, "until": "+", "forward_bps": 1}, "needs terminal"),
        ({"kind": "freeze", "beam": "ku-1", "until": "+", "terminal": FIRST}, "has no terminal"),
        ({"kind": "rate", "terminal": FIRST, "until": "+"}, "needs forward_bps, return_bps"),
        ({"kind": "maintenance", "until": "+"}, "name one of them"),
        ({"kind": "maintenance", "beam": "ku-1", "until": "+"}, "still carries"),
        ({"kind": "maintenance", "terminal": FIRST, "until": "+", "forward_bps": 1}, "no rates"),
        ({"kind": "withdrawal", "blockage": 1, "until": "+"}, "has no until"),
        ({"kind": "withdrawal"}, "needs blockage"),
        ({"kind": "freeze", "beam": "ku-1", "until": "2020-01-01T00:00:00Z"}, "past"),
        ({"kind": "freeze", "beam": "ku-1", "until": "2100-01-01T00:00:00Z"}, "further ahead"),
    ],
)
def test_what_does_not_belong_together_is_told(
    unchanged: Api, body: dict[str, Any], detail: str
) -> None:
    given = {**body, "until": at(60_000)} if body.get("until") == "+" else body
    refused = unchanged.call("POST", PATH, given)
    assert refused.status == 422
    assert detail in refused.text


def test_what_cannot_be_changed_is_told(api: Api) -> None:
    freeze = add(api, "freeze", beam="ku-1")
    rate = add(api, "rate", terminal=FIRST, forward_bps=1_000)
    for one, change, detail in (
        (freeze, {"forward_bps": 1}, "no rates"),
        (freeze, {"until": None}, "taken away"),
        (freeze, {"until": at(-1)}, "past"),
        (rate, {"forward_bps": None}, "needs forward_bps"),
    ):
        path, tag = f"{PATH}/{one['id']}", {"If-Match": '"1"'}
        refused = api.call("PUT", path, change, headers=tag)
        assert refused.status == 422
        assert detail in refused.problem
    assert (
        api.call("POST", PATH, {"kind": "freeze", "beam": "no", "until": at(1_000)}).status == 409
    )
    assert add(api, "rate", terminal=SECOND, return_bps=5)["return_bps"] == 5


def test_there_is_a_bound_of_each_target(api: Api) -> None:
    for number in range(50):
        times = {"from": at(1_000_000 + 1_000 * number), "until": at(1_000_500 + 1_000 * number)}
        add(api, "rate", terminal=FIRST, forward_bps=1, **times)
    full = api.call("POST", PATH, {"kind": "maintenance", "terminal": FIRST, "until": at(60_000)})
    assert full.status == 409
    assert "release some" in full.problem


def test_tenants_see_those_of_their_vehicles_and_not_who_set_them(api: Api) -> None:
    settle(api)
    add(api, "freeze", beam="ku-1")
    own = add(api, "rate", terminal=NORTHERN, forward_bps=5)
    other = add(api, "rate", terminal=SOUTHERN, forward_bps=5)
    token = api.run(api.token(Role.OPERATOR, tenant=NORTH))
    (seen,) = api.get(PATH, caller=token).json["interventions"]
    assert seen["id"] == own["id"]
    assert "set_by" not in seen
    assert api.get(f"{PATH}/{other['id']}", caller=token).status == 404
    tag = {"If-Match": '"1"'}
    assert api.call("DELETE", f"{PATH}/{own['id']}", caller=token, headers=tag).status == 403


def test_what_ended_long_ago_is_deleted(api: Api) -> None:
    add(api, "freeze", beam="ku-1", until=at(1_000))
    kept = add(api, "rate", terminal=FIRST, forward_bps=5)
    count = api.run(prune(api.database, interventions.prune, now_ms() + 2_000))
    assert count == 1
    found = api.get(f"{PATH}?ended=true").json["interventions"]
    assert [one["id"] for one in found] == [kept["id"]]


def test_a_terminals_interventions_go_with_it(url: str) -> None:
    with served(url) as api:
        api.add_beam()
        add(api, "rate", terminal=FIRST, forward_bps=5)
        assert api.call("DELETE", f"/v1/terminals/{FIRST}").status == 204
        assert api.get(f"{PATH}?ended=true").json["interventions"] == []
