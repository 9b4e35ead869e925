"""Bad tokens and open endpoints cost little, and callers that ask too often are refused."""

from __future__ import annotations

import asyncio
import secrets
from ipaddress import ip_network
from typing import Any

import pytest
from aiohttp import ClientResponse
from structlog.testing import capture_logs
from underpass_control.access.lookup import find_caller
from underpass_control.http import blockages, callers, observed, positions, routes, sse
from underpass_control.instants import moment_of, rfc3339
from underpass_control.roles import Role
from underpass_control.settings import Settings
from underpass_control.storage.schema import check_schema

from tests.control_api.service.api import FIRST, SECOND, Api, now_ms, served
from tests.control_api.service.two_tenants import NORTH, SOUTH, settle

FEW = Settings(token_requests_per_s=2, address_requests_per_s=1)


class Counted:
    """Counts the calls of a coroutine function that stands in for another."""

    def __init__(self, function: Any) -> None:
        self.calls = 0
        self._function = function

    async def __call__(self, *arguments: Any) -> Any:
        self.calls += 1
        return await self._function(*arguments)


def test_guessing_is_refused_before_the_database_is_asked(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = Counted(find_caller)
    monkeypatch.setattr("underpass_control.http.callers.find_caller", looked_up)
    with served(url, FEW) as api:
        assert api.get("/v1/beams", caller="viewer").status == 200

        async def guess() -> list[int]:
            guesses = ["upc_" + secrets.token_urlsafe(32) for _ in range(60)]
            replies = await asyncio.gather(
                *(api.ask("GET", "/v1/beams", caller=guess) for guess in guesses)
            )
            for reply in replies:
                assert reply.status == 401 or int(reply.headers["Retry-After"]) >= 1
            return [reply.status for reply in replies]

        statuses = api.run(guess())
        assert set(statuses) == {401, 429}
        assert statuses.count(401) < 10
        assert looked_up.calls == 1 + statuses.count(401)
        # A known token is not refused because of others at its address.
        assert api.get("/v1/beams", caller="viewer").status == 200


def test_many_who_show_the_same_token_at_once_cost_one_query(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = Counted(find_caller)
    monkeypatch.setattr("underpass_control.http.callers.find_caller", looked_up)
    with served(url, Settings(address_requests_per_s=1)) as api:

        async def run() -> None:
            replies = await asyncio.gather(
                *(api.ask("GET", "/v1/beams", caller="viewer") for _ in range(50))
            )
            assert {reply.status for reply in replies} == {200}

        api.run(run())
    assert looked_up.calls == 1


@pytest.mark.parametrize("text", ["a b", "ü", "x" * 129])
def test_what_cannot_be_a_token_is_never_looked_up(
    api: Api, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_up = Counted(find_caller)
    monkeypatch.setattr("underpass_control.http.callers.find_caller", looked_up)
    assert api.get("/v1/beams", caller=text).status == 401
    assert looked_up.calls == 0


def test_a_token_that_asks_too_often_is_refused_alone(url: str) -> None:
    with served(url, FEW) as api:

        async def ask() -> list[int]:
            replies = [await api.ask("GET", "/v1/beams", caller="viewer") for _ in range(40)]
            return [reply.status for reply in replies]

        assert 429 in api.run(ask())
        assert api.get("/v1/beams", caller="gateway").status == 200


def test_readiness_is_looked_at_once_a_second_however_many_ask(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked = Counted(check_schema)
    monkeypatch.setattr("underpass_control.http.status.check_schema", checked)
    monkeypatch.setattr("underpass_control.http.status._READY_FOR_S", 3600.0)
    with served(url, FEW) as api:

        async def ask() -> None:
            replies = await asyncio.gather(
                *(api.ask("GET", "/ready", caller=None) for _ in range(100))
            )
            assert {reply.status for reply in replies} == {200}

        api.run(ask())
    assert checked.calls == 1


def test_the_description_is_written_once_and_need_not_be_read_again(url: str) -> None:
    with served(url, FEW) as api:
        first = api.get("/openapi.json", caller=None)
        known = {"If-None-Match": first.headers["ETag"]}
        assert api.get("/openapi.json", caller=None, headers=known).status == 304
        statuses = [api.get("/docs", caller=None).status for _ in range(10)]
        assert statuses[-1] == 429
        assert api.get("/health", caller=None).status == 200


def test_tokens_are_checked_often_enough_to_end_within_a_second() -> None:
    assert callers._CHECK_EVERY_S + sse._CUT_WITHIN_S < 1


async def test_a_revoked_token_is_refused_though_it_has_just_been_used(api: Api) -> None:
    token = await api.token(Role.VIEWER)
    assert (await api.ask("GET", "/v1/beams", caller=token)).status == 200
    await api.revoke(token)
    async with asyncio.timeout(10):
        while (await api.ask("GET", "/v1/beams", caller=token)).status == 200:
            await asyncio.sleep(0.05)


async def test_one_token_cannot_take_the_streams_of_all(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("underpass_control.http.events.MOST_FOLLOWERS", 4)

    async def follow(caller: str) -> int:
        response = await api.client.get("/v1/events", headers=api.headers(caller))
        opened.append(response)
        return response.status

    opened: list[ClientResponse] = []
    assert [await follow("first") for _ in range(3)] == [200, 200, 429]
    assert [await follow("viewer") for _ in range(2)] == [200, 429]
    assert await follow("operator") == 200
    assert await follow("administrator") == 503
    for response in opened:
        response.close()


def test_a_tenant_cannot_take_the_streams_of_all_by_many_tokens(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    settle(api)
    monkeypatch.setattr("underpass_control.http.events.MOST_FOLLOWERS", 8)
    tokens = [api.run(api.token(Role.VIEWER, tenant=NORTH)) for _ in range(6)]
    other = api.run(api.token(Role.VIEWER, tenant=SOUTH))
    opened: list[ClientResponse] = []

    async def follow(caller: str) -> int:
        response = await api.client.get("/v1/events", headers=api.headers(caller))
        opened.append(response)
        return response.status

    async def run() -> None:
        # All at once, so that none is counted late.
        asked = await asyncio.gather(*(follow(token) for token in tokens))
        assert sorted(asked) == [200] * 4 + [429] * 2
        assert [await follow(other), await follow("viewer")] == [200, 200]
        next(one for one in opened if one.status == 200).close()
        async with asyncio.timeout(20):
            # Wait until the service has noticed that one is gone.
            while await follow("operator") != 200:
                await asyncio.sleep(0.1)
        for response in opened:
            response.close()

    api.run(run())


def test_refusals_of_one_address_fill_no_log(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed, "_LOGGED_AT_ONCE", 3)
    monkeypatch.setattr(observed, "_LOGGED_PER_S", 0.001)
    behind_proxy = Settings(trusted_proxies=(ip_network("127.0.0.0/8"),))
    many, few = "192.0.2.6", "192.0.2.7"
    with served(url, behind_proxy) as api, capture_logs() as logs:
        for one in [*[many] * 5, few]:
            path, forwarded = "/nothing/" + "x" * 1_000, {"X-Forwarded-For": one}
            assert api.get(path, caller=None, headers=forwarded).status == 404
        refused = [one for one in logs if one["event"] == "request refused"]
        # Another client behind the same proxy counts separately.
        assert [one["address"] for one in refused] == [many, many, many, few]
        assert all(len(one["path"]) == 200 for one in refused)
        # The refusals are counted all the same.
        text = api.get("/metrics", caller="viewer").text
    labels = 'endpoint="none",method="any",status="404"'
    assert f"underpass_control_http_requests_total{{{labels}}} 6.0" in text


def test_what_a_terminal_sends_is_counted_before_it_is_read(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "_BODY_BYTES", 20_000)
    monkeypatch.setattr(callers, "_BODY_BYTES_PER_S", 1.0)
    of = f"/v1/terminals/{FIRST}/positions"
    with served(url) as api:
        api.add_beam()
        body = "[" + "0," * 3_000 + "0]"
        replies = [api.call("POST", of, body, caller="first") for _ in range(4)]
        assert [reply.status for reply in replies] == [422, 422, 422, 429]
        assert int(replies[-1].headers["Retry-After"]) > 60
        # Other terminals have their own limit; callers for many terminals have none.
        own = of.replace(str(FIRST), str(SECOND))
        assert api.call("POST", own, body, caller="second").status == 422
        for _ in range(4):
            assert api.call("POST", of, body).status == 422


def test_a_terminal_that_is_stolen_fills_neither_queue_nor_disk(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (positions, blockages, routes):
        monkeypatch.setattr(module, "_BURST", 4)
        monkeypatch.setattr(module, "_PER_S", 0.01)
    soon = rfc3339(moment_of(now_ms() + 60_000))
    line = {"type": "LineString", "coordinates": [[7.5, 46.5], [7.6, 46.6]]}
    announced = {"entry": soon, "duration_ms": 1_000, "confidence": 0.5}
    at = now_ms()
    three = [
        {"terminal": FIRST, "time": rfc3339(moment_of(at + n)), "longitude": 7, "latitude": 46}
        for n in range(3)
    ]
    with served(url) as api:
        api.add_beam()
        of = f"/v1/terminals/{FIRST}"
        for method, path, body, most in (
            ("POST", f"{of}/announcements", announced, 4),
            ("PUT", f"{of}/route", line, 4),
            # Each position of a batch counts.
            ("POST", "/v1/positions", {"positions": three}, 1),
        ):
            replies = [api.call(method, path, body, caller="first") for _ in range(most + 1)]
            assert [reply.status < 300 for reply in replies] == [True] * most + [False]
            assert replies[-1].status == 429
            assert int(replies[-1].headers["Retry-After"]) > 60
            # A caller for many terminals is not limited.
            assert api.call(method, path, body).status < 300
        assert api.call("DELETE", f"{of}/route", caller="first").status == 429
        assert api.get(of, caller="first").status == 200
