"""A terminal's streams are asked of its gateway when somebody wants to know, and of nobody else."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest
from underpass_control import questions
from underpass_control.roles import Role

from tests.control_api import postgresql
from tests.control_api.service.api import FIRST, Api, Reply
from tests.control_api.service.sse import Stream
from tests.control_api.service.test_plan_stream import HUB, OTHER_HUB, serve

PATH = f"/v1/terminals/{FIRST}/streams"
ANSWERS = f"/v1/gateways/{HUB}/streams"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let answers come as late as a busy machine has them."""
    monkeypatch.setattr(questions, "_ANSWERED_WITHIN_S", 60.0)


def stream(number: int, **more: object) -> dict[str, object]:
    """Return a stream as a gateway says it is."""
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


R = TypeVar("R")
Answering = Callable[[dict[str, Any]], dict[str, object] | None]


async def asked(
    api: Api, answer: Answering, *, path: str = PATH, by: Api | None = None, gateway: int = HUB
) -> Reply:
    """Ask for streams while the hub follows its plans at `by`; return what the asker is told."""
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
    plans = f"/v1/gateways/{HUB}/plans"
    async with hub.client.get(plans, headers=api.headers("gateway")) as response:
        events = Stream(response)
        await response.content.readline()
        asking = asyncio.create_task(asks)
        kind, question = await events.next()
        while kind != "streams":
            kind, question = await events.next()
        body = answer(question)
        if body is not None:
            body = {"question": question["question"], **body}
            answers, caller = f"/v1/gateways/{gateway}/streams", api.tokens["operator"]
            if gateway == HUB:
                caller = api.tokens["gateway"]
            posted = await hub.ask("POST", answers, body, caller=caller)
            assert posted.status == 200, posted.text
        return await asking


def test_what_the_gateway_answers_is_shown_to_who_asks(api: Api) -> None:
    async def run() -> None:
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

    api.run(run())


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


def test_the_longest_answer_there_may_be_comes_whole_and_in_order(api: Api) -> None:
    # In JSON of ASCII each of these takes twelve bytes.
    name, most = "\N{SATELLITE ANTENNA}", 2**63 - 1
    counts = dict.fromkeys(("epoch", "age_ms", "forward_bytes", "return_bytes"), most)
    counts |= dict.fromkeys(("waiting_bytes", "unread_bytes"), most)
    text = {"target": 261 * name, "class": 64 * name, "paths": 4 * [64 * name]}
    rows = [stream(most - n, **text, **counts) for n in range(questions.MOST_STREAMS)]

    async def run() -> None:
        await serve(api, HUB, FIRST)
        answer = {"open": 100_000, "streams": rows}
        reply = await asked(api, lambda _: answer, path=f"{PATH}?limit={len(rows)}")
        assert reply.json["streams"] == rows

    api.run(run())


def test_who_answers_more_than_was_asked_for_is_not_listened_to(api: Api) -> None:
    async def run() -> None:
        await serve(api, HUB, FIRST)
        answer = {"open": 3, "streams": [stream(n) for n in range(3)]}
        reply = await asked(api, lambda _: answer, path=f"{PATH}?limit=1")
        assert [one["id"] for one in reply.json["streams"]] == [0]

    api.run(run())


def test_nobody_answers_for_another_gateway(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_ANSWERED_WITHIN_S", 0.5)

    async def run() -> None:
        await serve(api, HUB, FIRST)
        answer: dict[str, object] = {"open": 1, "streams": [stream(1)]}
        others, body = f"/v1/gateways/{OTHER_HUB}/streams", {"question": "0" * 16, **answer}
        refused = await api.ask("POST", others, body, caller="gateway")
        assert (refused.status, f"gateway {HUB}" in refused.problem) == (403, True)
        reply = await asked(api, lambda _: answer, gateway=OTHER_HUB)
        assert reply.status == 504, reply.text

    api.run(run())


def test_an_answer_that_nobody_waits_for_changes_nothing(api: Api) -> None:
    body = {"question": "0" * 16, "open": 0, "streams": []}
    assert api.call("POST", ANSWERS, body, caller="gateway").status == 200


def test_it_is_said_why_there_is_no_answer(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_ANSWERED_WITHIN_S", 0.5)
    assert "at no gateway" in api.get(PATH).problem

    async def run() -> None:
        await serve(api, HUB, FIRST)
        alone = await api.ask("GET", PATH)
        assert (alone.status, f"gateway {HUB}" in alone.problem) == (504, True)
        silent = await asked(api, lambda _: None)
        assert (silent.status, "has not answered" in silent.problem) == (504, True)

    api.run(run())
    assert api.get("/v1/terminals/99/streams").status == 404


def test_a_viewer_and_a_terminal_are_not_told_where_clients_go(api: Api) -> None:
    for caller in ("viewer", "gateway", "first"):
        assert api.get(PATH, caller=caller).status == 403
    tenant = api.run(api.token(Role.OPERATOR, tenant="default"))
    # It is the tenant's own, and at no gateway.
    assert api.get(PATH, caller=tenant).status == 409


def test_those_who_follow_events_see_neither_question_nor_answer(api: Api) -> None:
    async def run() -> None:
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

    api.run(run())


def test_who_asks_too_often_has_to_wait(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(questions, "_ANSWERED_WITHIN_S", 0.5)

    async def run() -> list[int]:
        await serve(api, HUB, FIRST)
        replies = await asyncio.gather(*(api.ask("GET", PATH) for _ in range(40)))
        return [reply.status for reply in replies]

    found = api.run(run())
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
