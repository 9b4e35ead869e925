"""A terminal's streams are queried on demand, and only from its gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import pytest
from underpass_control import questions
from underpass_control.http import streams
from underpass_control.roles import Role

from tests.control_api import postgresql
from tests.control_api.service.api import FIRST, Api, Reply
from tests.control_api.service.sse import Stream
from tests.control_api.service.test_plan_stream import HUB, OTHER_HUB, serve

PATH = f"/v1/terminals/{FIRST}/streams"
ANSWERS = f"/v1/gateways/{HUB}/streams"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Allow answers to come as late as on a busy machine."""
    monkeypatch.setattr(questions, "_ANSWERED_WITHIN_S", 60.0)


def stream(number: int, **more: object) -> dict[str, object]:
    """Return a stream as a gateway reports it."""
    return {
        "id": number,
        "epoch": 0,
        "target": "example.org:443",
        "class": "bulk",
        "state": "open",
        "paths": ["terminal-11"],
        "age_ms": 12_000,
        "forward_bytes": 1_000_000,
        "return_bytes": 2_000,
        "waiting_bytes": 65_536,
        "unread_bytes": 0,
        **more,
    }


@asynccontextmanager
async def followed(by: Api, caller: str = "gateway") -> AsyncIterator[Stream]:
    """Follow the hub's plans at a process; its questions come from then on."""
    plans = f"/v1/gateways/{HUB}/plans"
    async with by.client.get(plans, headers=by.headers(caller)) as response:
        # It is taken in once its first line comes.
        await response.content.readline()
        yield Stream(response)


async def next_question(events: Stream) -> dict[str, Any]:
    """Return the next question to the hub."""
    kind, question = await events.next()
    while kind != "streams":
        kind, question = await events.next()
    return dict(question)


R = TypeVar("R")
Answering = Callable[[dict[str, Any]], dict[str, object] | None]


async def asked(
    api: Api, answer: Answering, *, path: str = PATH, by: Api | None = None, gateway: int = HUB
) -> Reply:
    """Ask for streams while the hub follows its plans at `by`; return the caller's answer."""
    return await answered(api, api.ask("GET", path), answer, by=by, gateway=gateway)


async def answered(
    api: Api,
    asks: Coroutine[Any, Any, R],
    answer: Answering,
    *,
    by: Api | None = None,
    gateway: int = HUB,
) -> R:
    """Let somebody ask for streams while the hub follows its plans at `by`, which answers."""
    hub = by or api
    async with followed(hub, api.tokens["gateway"]) as events:
        asking = asyncio.create_task(asks)
        question = await next_question(events)
        body = answer(question)
        if body is not None:
            body = {"question": question["question"], **body}
            answers, caller = f"/v1/gateways/{gateway}/streams", api.tokens["operator"]
            if gateway == HUB:
                caller = api.tokens["gateway"]
            posted = await hub.ask("POST", answers, body, caller=caller)
            assert posted.status == 200, posted.text
        return await asking


async def test_what_the_gateway_answers_is_shown_to_who_asks(api: Api) -> None:
    await serve(api, HUB, FIRST)
    questions_seen: list[dict[str, Any]] = []

    def answer(question: dict[str, Any]) -> dict[str, object]:
        questions_seen.append({**question, "question": len(question["question"])})
        return {"open": 5, "streams": [stream(4), stream(2, target=None, later="word")]}

    reply = await asked(api, answer, path=f"{PATH}?limit=2")
    assert reply.status == 200, reply.text
    assert questions_seen == [{"question": 16, "terminal": FIRST, "limit": 2}]
    assert reply.headers["Cache-Control"] == "no-store"
    shown = reply.json
    assert (shown["terminal"], shown["gateway"], shown["open"]) == (FIRST, HUB, 5)
    without_target = stream(2)
    del without_target["target"]
    assert shown["streams"] == [stream(4), without_target]


def test_who_is_shown_where_clients_go_is_written_down_and_that_itself_is_not(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    def log() -> list[dict[str, Any]]:
        found = api.get("/v1/audit?target=/v1/terminals/", caller="administrator")
        entries: list[dict[str, Any]] = found.json["entries"]
        return [one for one in entries if one["target"] == PATH]

    async def run(answer: dict[str, object] | None) -> int:
        await serve(api, HUB, FIRST)
        return (await asked(api, lambda _: answer)).status

    with monkeypatch.context() as patched:
        patched.setattr(questions, "_ANSWERED_WITHIN_S", 0.5)
        assert api.run(run(None)) == 504
    assert log() == []
    assert api.run(run({"open": 1, "streams": [stream(1)]})) == 200
    (entry,) = log()
    assert (entry["action"], entry["actor"]) == ("show", "the tests' operator")
    assert "example.org" not in str(entry)


async def test_the_longest_answer_there_may_be_comes_whole_and_in_order(api: Api) -> None:
    # In ASCII JSON each of these characters takes twelve bytes.
    name, most = "\N{SATELLITE ANTENNA}", 2**63 - 1
    counts = dict.fromkeys(("epoch", "age_ms", "forward_bytes", "return_bytes"), most)
    counts |= dict.fromkeys(("waiting_bytes", "unread_bytes"), most)
    text = {"target": 261 * name, "class": 64 * name, "paths": 4 * [64 * name]}
    rows = [stream(most - n, **text, **counts) for n in range(questions.MOST_STREAMS)]
    await serve(api, HUB, FIRST)
    answer = {"open": 100_000, "streams": rows}
    reply = await asked(api, lambda _: answer, path=f"{PATH}?limit={len(rows)}")
    assert reply.json["streams"] == rows


async def test_who_answers_more_than_was_asked_for_is_not_listened_to(api: Api) -> None:
    await serve(api, HUB, FIRST)
    answer = {"open": 3, "streams": [stream(n) for n in range(3)]}
    reply = await asked(api, lambda _: answer, path=f"{PATH}?limit=1")
    assert [one["id"] for one in reply.json["streams"]] == [0]


async def test_nobody_answers_for_another_gateway(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(questions, "_ANSWERED_WITHIN_S", 0.5)
    await serve(api, HUB, FIRST)
    answer: dict[str, object] = {"open": 1, "streams": [stream(1)]}
    others, body = f"/v1/gateways/{OTHER_HUB}/streams", {"question": "0" * 16, **answer}
    refused = await api.ask("POST", others, body, caller="gateway")
    assert (refused.status, f"gateway {HUB}" in refused.problem) == (403, True)
    reply = await asked(api, lambda _: answer, gateway=OTHER_HUB)
    assert reply.status == 504, reply.text


async def test_who_asks_a_gateway_with_too_many_questions_is_told_at_once(api: Api) -> None:
    refusals = f"{ANSWERS}/refused"

    await serve(api, HUB, FIRST)
    async with followed(api) as events:
        asking = asyncio.create_task(api.ask("GET", PATH))
        question = await next_question(events)
        body = {"questions": ["0" * 16, question["question"]]}
        # A gateway cannot refuse for another one.
        others = f"/v1/gateways/{OTHER_HUB}/streams/refused"
        assert (await api.ask("POST", others, body, caller="gateway")).status == 403
        assert (await api.ask("POST", others, body)).status == 200
        assert not asking.done()
        assert (await api.ask("POST", refusals, body, caller="gateway")).status == 200
        reply = await asking
        assert (reply.status, "too many questions" in reply.problem) == (503, True)
        assert int(reply.headers["Retry-After"]) >= 1
    for wrong in ([], ["0" * 15], ["0" * 16] * (questions.MOST_REFUSED + 1)):
        body = {"questions": wrong}
        assert (await api.ask("POST", refusals, body, caller="gateway")).status == 422


async def test_nobody_takes_all_places_for_questions_to_a_gateway(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "_MOST_AT_GATEWAY", 5)
    await serve(api, HUB, FIRST)
    other = await api.token(Role.OPERATOR)
    async with followed(api) as events:
        flood = [asyncio.create_task(api.ask("GET", PATH)) for _ in range(3)]
        asked_for = [await next_question(events) for _ in flood]
        refused = await api.ask("GET", PATH)
        assert (refused.status, "yours" in refused.problem) == (429, True)
        of_other = asyncio.create_task(api.ask("GET", PATH, caller=other))
        asked_for.append(await next_question(events))
        for question in asked_for:
            body = {"question": question["question"], "open": 0, "streams": []}
            assert (await api.ask("POST", ANSWERS, body, caller="gateway")).status == 200
        replies = await asyncio.gather(*flood, of_other)
        assert {reply.status for reply in replies} == {200}


def test_an_answer_that_nobody_waits_for_changes_nothing(api: Api) -> None:
    body = {"question": "0" * 16, "open": 0, "streams": []}
    assert api.call("POST", ANSWERS, body, caller="gateway").status == 200


async def test_it_is_said_why_there_is_no_answer(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_ANSWERED_WITHIN_S", 0.5)
    assert "at no gateway" in (await api.ask("GET", PATH)).problem

    await serve(api, HUB, FIRST)
    alone = await api.ask("GET", PATH)
    assert (alone.status, f"gateway {HUB}" in alone.problem) == (504, True)
    silent = await asked(api, lambda _: None)
    assert (silent.status, "has not answered" in silent.problem) == (504, True)
    assert (await api.ask("GET", "/v1/terminals/99/streams")).status == 404


def test_a_viewer_and_a_terminal_are_not_told_where_clients_go(api: Api) -> None:
    for caller in ("viewer", "gateway", "first"):
        assert api.get(PATH, caller=caller).status == 403
    tenant = api.run(api.token(Role.OPERATOR, tenant="default"))
    # It is the tenant's own, and at no gateway.
    assert api.get(PATH, caller=tenant).status == 409


async def test_those_who_follow_events_see_neither_question_nor_answer(api: Api) -> None:
    await serve(api, HUB, FIRST)
    async with api.client.get("/v1/events", headers=api.headers("viewer")) as response:
        events = Stream(response)
        answer = {"open": 1, "streams": [stream(1)]}
        assert (await asked(api, lambda _: answer)).status == 200
        body = {"beam": "ku-1", "name": "later"}
        assert (await api.ask("PUT", f"/v1/terminals/{FIRST}", body)).status == 200
        kind = ""
        while kind != "terminal":
            kind, data = await events.next()
            assert "example.org" not in json.dumps(data)
            assert kind not in (questions.QUESTION, questions.ANSWER)


async def test_who_asks_too_often_has_to_wait(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_ANSWERED_WITHIN_S", 0.5)

    await serve(api, HUB, FIRST)
    replies = await asyncio.gather(*(api.ask("GET", PATH) for _ in range(40)))
    found = [reply.status for reply in replies]
    assert set(found) == {504, 429}
    assert found.count(504) >= 10


def test_the_gateway_may_be_at_another_process(
    api_and_server: tuple[Api, postgresql.Server],
) -> None:
    api, _ = api_and_server

    async def run() -> None:
        await serve(api, HUB, FIRST)
        other = api.replica()
        await other.start()
        try:
            answer = {"open": 1, "streams": [stream(1)]}
            reply = await asked(api, lambda _: answer, by=other)
            assert reply.json["streams"] == [stream(1)]
        finally:
            await other.client.close()

    api.run(run())
