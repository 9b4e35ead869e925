"""Plans over REST: the newest, by version, at a time; capacity; questions; who plans."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import Any

import pytest
from underpass_control.http import capacity, plans, shares
from underpass_control.http import what_if as what_if_endpoint
from underpass_control.instants import moment_of, rfc3339
from underpass_control.planning import controller
from underpass_control.planning.what_if import basis_of

from tests.control_api.service.api import FIRST, SECOND, Api, Reply, now_ms

BEAM = "/v1/beams/ku-1"


def moment(ms: int) -> str:
    return rfc3339(moment_of(ms))


def planned(api: Api, link: str = "forward", *, terminals: int = 2) -> Reply:
    """Return the newest plan, once it has this many terminals."""
    until = time.monotonic() + 60
    while True:
        reply = api.get(f"{BEAM}/plans/{link}")
        if reply.status == 200:
            nodes = [node for line in reply.json["lines"] for node in line["terminals"]]
            if len(nodes) == terminals:
                return reply
        assert time.monotonic() < until, reply.text
        api.run(asyncio.sleep(0.05))


def capacity_planned(api: Api, rate_bps: int) -> dict[str, Any]:
    """Return the newest plan, once it ends with this capacity."""
    planned(api)
    until = time.monotonic() + 60
    while True:
        plan: dict[str, Any] = api.get(f"{BEAM}/plans/forward").json
        if plan["capacity"][-1]["rate_bps"] == rate_bps:
            return plan
        assert time.monotonic() < until, plan
        api.run(asyncio.sleep(0.05))


def test_the_newest_plan_is_that_of_its_version_and_of_the_time(api: Api) -> None:
    reply = planned(api)
    plan = reply.json
    assert plan["capacity"][0]["rate_bps"] == 8_000_000
    (line,) = plan["lines"]
    assert line["terminals"] == [FIRST, SECOND]
    assert line["segments"][0]["state"] == "fair"
    assert reply.headers["ETag"] == f'"{plan["plan"]}"'
    tag = {"If-None-Match": reply.headers["ETag"]}
    assert api.get(f"{BEAM}/plans/forward", headers=tag).status == 304
    assert api.get(f"{BEAM}/plans/forward/{plan['plan']}").json == plan
    assert api.get(f"{BEAM}/plans/forward?at={plan['start']}").json["plan"] >= plan["plan"]
    early = moment(now_ms() - 86_400_000)
    assert "at that time" in api.get(f"{BEAM}/plans/forward?at={early}").problem
    assert api.get(f"{BEAM}/plans/sideways").status == 404
    assert api.get(f"{BEAM}/plans/forward/1").status == 404
    assert api.get("/v1/beams/none/plans/forward").status == 404


def test_a_terminals_own_plan_has_all_amounts(api: Api) -> None:
    plan = planned(api).json
    (line,) = api.get(f"{BEAM}/plans/forward/{plan['plan']}?terminal={FIRST}").json["lines"]
    assert line["terminals"] == [FIRST]
    (segment,) = line["segments"]
    assert segment["bits"] == segment["fair_bits"] > 0
    assert segment["borrowed_bits"] == segment["lent_bits"] == 0
    assert api.get(f"{BEAM}/plans/forward?terminal=99").status == 404


def test_all_versions_are_listed_the_newest_first(api: Api) -> None:
    newest = planned(api).json["plan"]
    pages = api.pages(f"{BEAM}/plans?link=forward&limit=1")
    versions = [plan["plan"] for page in pages for plan in page["plans"]]
    assert newest in versions
    assert versions == sorted(versions, reverse=True)
    assert api.get(f"{BEAM}/plans").status == 400


def test_capacity_over_time_is_planned_with(api: Api) -> None:
    assert api.get(f"{BEAM}/capacity").json == {
        "beam": "ku-1",
        "forward": [],
        "return": [],
        "forward_now_bps": 8_000_000,
        "return_now_bps": 2_000_000,
    }
    rain = now_ms() + 30_000
    steps = [
        {"from": moment(now_ms() - 1000), "rate_bps": 6_000_000},
        {"from": moment(rain), "rate_bps": 3_000_000},
    ]
    put = api.call("PUT", f"{BEAM}/capacity", {"forward": steps})
    assert put.status == 200
    assert put.json["forward_now_bps"] == 6_000_000
    assert api.get(f"{BEAM}/capacity").json["forward"] == steps
    plan = capacity_planned(api, 3_000_000)
    assert [step["rate_bps"] for step in plan["capacity"]] == [6_000_000, 3_000_000]
    assert plan["capacity"][1]["from"] == moment(rain)
    refused = api.call("PUT", f"{BEAM}/capacity", {"forward": steps[::-1]})
    assert refused.status == 422
    assert "ascending" in refused.problem
    assert api.call("PUT", f"{BEAM}/capacity", {}, caller="viewer").status == 403
    assert api.call("PUT", f"{BEAM}/capacity", {}).json["forward"] == []
    capacity_planned(api, 8_000_000)


def test_what_plans_give_is_worked_out_beside_the_event_loop(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(api)
    of_link, threads = shares._of_link, list[int]()

    def noted(*arguments: Any) -> Any:
        threads.append(threading.get_ident())
        return of_link(*arguments)

    monkeypatch.setattr(shares, "_of_link", noted)
    until = time.monotonic() + 60
    while not api.get(f"{BEAM}/shares").json["links"]:
        assert time.monotonic() < until, "no plan holds"
        api.run(asyncio.sleep(0.05))
    assert threading.get_ident() not in threads


async def test_of_two_who_set_a_capacity_at_once_the_second_replaces_the_firsts(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    firsts, seconds = (
        {"forward": [{"from": moment(now_ms() + later_ms), "rate_bps": 6_000_000}]}
        for later_ms in (30_000, 40_000)
    )
    steps, others = capacity._steps, list[asyncio.Task[Reply]]()

    async def beside(*arguments: Any) -> Any:
        found = await steps(*arguments)
        if found["forward"] and not others:
            # The first has replaced the steps but has not committed.
            others.append(asyncio.create_task(api.ask("PUT", f"{BEAM}/capacity", seconds)))
            await asyncio.wait(others, timeout=1)
        return found

    monkeypatch.setattr(capacity, "_steps", beside)
    assert (await api.ask("PUT", f"{BEAM}/capacity", firsts)).status == 200
    assert (await others[0]).status == 200
    shown = (await api.ask("GET", f"{BEAM}/capacity")).json
    assert shown["forward"] == seconds["forward"]


def test_predictions_go_on_while_a_plan_is_made(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    planned(api)
    begun, goes_on, work = threading.Event(), threading.Event(), controller._work

    def slow(request: Any) -> Any:
        begun.set()
        assert goes_on.wait(150)
        return work(request)

    async def predicted() -> float:
        text = (await api.ask("GET", "/metrics")).text
        name = "underpass_control_positions_to_predictions_seconds_count "
        (line,) = (line for line in text.splitlines() if line.startswith(name))
        return float(line.removeprefix(name))

    async def run() -> None:
        monkeypatch.setattr(controller, "_work", slow)
        steps = {"forward": [{"from": moment(now_ms() - 1000), "rate_bps": 6_000_000}]}
        assert (await api.ask("PUT", f"{BEAM}/capacity", steps)).status == 200
        try:
            assert await asyncio.to_thread(begun.wait, 60)
            before = await predicted()
            place = {"longitude": 7.5, "latitude": 46.5, "time": moment(now_ms())}
            path = f"/v1/terminals/{FIRST}/positions"
            assert (await api.ask("POST", path, place)).status == 202
            async with asyncio.timeout(60):
                while await predicted() == before:
                    await asyncio.sleep(0.02)
        finally:
            goes_on.set()

    api.run(run())
    capacity_planned(api, 6_000_000)


def what_if(api: Api, **body: object) -> Reply:
    return api.call("POST", f"{BEAM}/what-if", {"link": "forward", **body}, caller="viewer")


def test_a_question_is_answered_with_the_plan_that_would_be_made(api: Api) -> None:
    before = planned(api).json["plan"]
    start = now_ms() + 60_000
    blockage = {"terminal": FIRST, "entry": moment(start), "exit": moment(start + 30_000)}
    made = what_if(api, blockages=[blockage], capacity=[{"from": moment(0), "rate_bps": 4_000_000}])
    assert made.status == 200
    plan = made.json
    states = {
        node: [segment["state"] for segment in line["segments"]]
        for line in plan["lines"]
        for node in line["terminals"]
    }
    assert states[FIRST][:2] == ["borrowing", "blocked"]
    assert states[SECOND][:2] == ["lending", "repaid"]
    totals = {one["terminal"]: one["bits"] for one in plan["totals"]}
    assert abs(totals[FIRST] - totals[SECOND]) <= 2
    assert planned(api).json["plan"] == before


def test_terminals_of_a_question_may_be_others(api: Api) -> None:
    planned(api)
    different = [
        {"terminal": FIRST, "weight": 3},
        {"terminal": 99, "demand_bps": 1_000_000},
    ]
    plan = what_if(api, terminals=different).json
    rates = {
        node: line["segments"][0]["rate_bps"]
        for line in plan["lines"]
        for node in line["terminals"]
    }
    assert rates == {FIRST: 5_250_000, SECOND: 1_750_000, 99: 1_000_000}


def test_what_cannot_be_planned_is_told(api: Api) -> None:
    planned(api)
    assert "not after" in what_if(api, end=moment(now_ms() - 1000)).problem
    assert "further" in what_if(api, end=moment(now_ms() + 86_400_000)).problem
    entry = moment(now_ms() + 60_000)
    stranger = {"terminal": 99, "entry": entry, "exit": moment(now_ms() + 90_000)}
    assert "not in the beam" in what_if(api, blockages=[stranger]).problem
    many = [{**stranger, "terminal": FIRST}] * 201
    assert what_if(api, blockages=many).status == 422


def test_a_question_that_nobody_waits_for_any_more_is_not_worked_out(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(api)
    path, body = f"{BEAM}/what-if", {"link": "forward"}
    begun, goes_on, work = list[object](), threading.Event(), what_if_endpoint._work

    def slow(request: Any) -> str:
        begun.append(request)
        goes_on.wait(60)
        return work(request)

    async def run() -> None:
        monkeypatch.setattr(what_if_endpoint, "_work", slow)
        monkeypatch.setattr(what_if_endpoint, "_WITHIN_S", 0.2)
        replies = [await api.ask("POST", path, body) for _ in range(4)]
        assert [reply.status for reply in replies] == [503] * 4
        monkeypatch.setattr(what_if_endpoint, "_WITHIN_S", 60.0)
        goes_on.set()
        assert (await api.ask("POST", path, body)).status == 200
        assert len(begun) == 2

    api.run(run())


def test_a_question_that_cannot_be_answered_costs_no_reading(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(api)

    async def never(*_arguments: object) -> None:
        raise AssertionError("the beam is read")

    monkeypatch.setattr(what_if_endpoint, "terms_of", never)
    assert "further" in what_if(api, end=moment(now_ms() + 86_400_000)).problem


def test_of_the_questions_that_may_wait_nobody_has_all(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(api)
    path, body = f"{BEAM}/what-if", {"link": "forward"}
    # By caller, as many as there is room left for.
    questions = {"viewer": 4, "operator": 2, "administrator": 1, "gateway": 1}

    async def run() -> None:
        goes_on, reading = asyncio.Event(), list[object]()

        async def slow(*given: Any) -> Any:
            reading.append(given)
            await goes_on.wait()
            return await basis_of(*given)

        monkeypatch.setattr(what_if_endpoint, "basis_of", slow)
        tasks: list[asyncio.Task[Reply]] = []
        async with asyncio.TaskGroup() as group:
            for caller, count in questions.items():
                asking = (api.ask("POST", path, body, caller=caller) for _ in range(count))
                tasks += [group.create_task(one) for one in asking]
                while len(reading) < len(tasks):
                    await asyncio.sleep(0.02)
                refused = await api.ask("POST", path, body, caller=caller)
                assert refused.status == (429 if len(tasks) < 8 else 503)
                assert "Retry-After" in refused.headers
            goes_on.set()
        assert [task.result().status for task in tasks] == [200] * 8
        # Answered questions make room for others.
        assert (await api.ask("POST", path, body)).status == 200

    api.run(run())


def test_plans_are_read_for_few_at_a_time_while_the_others_wait(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned(api)
    goes_on, read = threading.Event(), list[object]()
    text, known_beam = plans._text, plans.known_beam

    def slow(*given: Any) -> str:
        goes_on.wait(60)
        return text(*given)

    async def noted(*given: Any) -> str:
        read.append(given)
        return await known_beam(*given)

    async def run() -> None:
        monkeypatch.setattr(plans, "_text", slow)
        monkeypatch.setattr(plans, "known_beam", noted)
        async with asyncio.TaskGroup() as group:
            asking = (api.ask("GET", f"{BEAM}/plans/forward") for _ in range(6))
            tasks = [group.create_task(one) for one in asking]
            while len(read) < 2:
                await asyncio.sleep(0.02)
            for _ in range(10):
                assert (await api.ask("GET", "/v1/beams/ku-1")).status == 200
            assert len(read) == 2
            goes_on.set()
        assert [task.result().status for task in tasks] == [200] * 6

    api.run(run())


def test_who_plans_is_told(api: Api) -> None:
    planned(api)
    lease = api.get(f"{BEAM}/lease").json
    assert lease["fence"] >= 1
    assert 0 < lease["left_ms"] <= 3_000
    assert ":" in lease["holder"]


def test_who_has_taken_a_plan_over_is_told(api: Api) -> None:
    version = planned(api).json["plan"]
    taken = {
        "kind": "plan",
        "uptime_ms": 5000,
        "incarnation": 7,
        "beam": "ku-1",
        "link": "forward",
        "plan": version,
        "applied_ms": now_ms(),
    }
    post = {
        "version": 1,
        "node": 1,
        "sent_ms": now_ms(),
        "reports": [{"node": 1, "age_ms": 10, "report": taken}],
    }
    reply = api.call("POST", "/v1/reports", post, caller="gateway")
    assert reply.json["accepted"] == 1, reply.text
    found = api.get(f"{BEAM}/plans/forward/{version}/acknowledgements").json
    assert [one["node"] for one in found["acknowledgements"]] == [1]


def test_measures_tell_of_plans(api: Api) -> None:
    planned(api)
    text = api.get("/metrics").text
    assert 'underpass_control_plans_total{link="forward",reason="first"} 1.0' in text
    assert 'underpass_control_plan_version{beam="ku-1",link="forward"}' in text
    assert "underpass_control_leases_held 1.0" in text
