"""Which callers may do what."""

from __future__ import annotations

import asyncio
import time

import pytest
from sqlalchemy import select
from underpass_control.access.lookup import find_caller
from underpass_control.http.callers import TokenEndedError
from underpass_control.instants import moment_of, rfc3339
from underpass_control.roles import Role
from underpass_control.storage.models import Token

from tests.control_api.service.api import FIRST, SECOND, Api, now_ms


def position(terminal: int | None = None) -> dict[str, object]:
    body: dict[str, object] = {
        "time": rfc3339(moment_of(now_ms())),
        "longitude": 7.5,
        "latitude": 46.5,
    }
    return body if terminal is None else {**body, "terminal": terminal}


def test_without_a_token_nothing_but_health_is_told(api: Api) -> None:
    for endpoint in api.service.endpoints:
        path = endpoint.path.format(
            beam="ku-1",
            terminal=FIRST,
            obstruction="a",
            gateway=1,
            user="a",
            source="a",
            token=1,
            tenant="default",
            link="forward",
            version=1,
            intervention=1,
            alert=1,
            rule=1,
            target=1,
            enrolment=1,
            node=1,
            slice="a",
            function="a",
            site="a",
            z=1,
            x=0,
            y=0,
            rollout=1,
        )
        status = api.call(endpoint.method, path, caller=None).status
        # Signing in needs a body instead of a token; the revocation list needs an authority.
        open_to_all = 415 if endpoint.body else 409 if "authority" in path else 200
        assert status == (open_to_all if endpoint.roles is None else 401), path
    refused = api.get("/v1/beams", caller=None)
    assert refused.headers["WWW-Authenticate"].startswith("Bearer")
    assert "token" in refused.problem


@pytest.mark.parametrize("path", ["/v1/session", "/v1/node/enrolment", "/v1/node/certificate"])
def test_who_shows_no_token_has_no_large_body_kept(unchanged: Api, path: str) -> None:
    body = {"name": "ada", "password": "x" * 70_000}
    assert unchanged.call("POST", path, body, caller=None).status == 413
    small = unchanged.call("POST", path, {"name": "ada", "password": "x" * 60_000}, caller=None)
    assert small.status == 422


@pytest.mark.parametrize("header", ["Bearer", "Bearer ", "Basic YTpi", "Bearer upc_x", "upc_x"])
def test_what_is_no_token_is_refused(unchanged: Api, header: str) -> None:
    assert unchanged.get("/v1/beams", caller=None, headers={"Authorization": header}).status == 401


def test_an_expired_token_is_refused(api: Api) -> None:
    past = now_ms() - 1000
    token = api.run(api.token(Role.OPERATOR, created_ms=past - 1000, expires_ms=past))
    assert "expired" in api.get("/v1/beams", caller=token).problem


def test_a_token_expires_though_it_has_just_been_used(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = api.run(api.token(Role.OPERATOR, expires_ms=now_ms() + 60_000))
    assert api.get("/v1/beams", caller=token).status == 200
    later_ns = time.time_ns() + 60_000_000_000
    monkeypatch.setattr(time, "time_ns", lambda: later_ns)
    assert api.get("/v1/beams", caller=token).status == 401


def test_a_stream_that_begins_while_others_of_its_token_end_is_watched(api: Api) -> None:
    callers = api.service._callers

    async def run() -> None:
        async with api.database.reading() as connection:
            caller = await find_caller(connection, api.tokens["viewer"], now_ms())
        assert caller is not None

        async def stream() -> None:
            async with callers.while_in_force(caller):
                await asyncio.sleep(60)

        first = asyncio.create_task(stream())
        await asyncio.sleep(0)
        callers.forget(caller.credential)
        second = asyncio.create_task(stream())
        for one in (first, second):
            with pytest.raises(TokenEndedError):
                await asyncio.wait_for(one, 10)
            callers.forget(caller.credential)

    api.run(run())


def test_only_operators_change_beams_and_terminals(api: Api) -> None:
    for caller in ("viewer", "gateway", "first"):
        for path in ("/v1/beams/ku-1", f"/v1/terminals/{FIRST}"):
            assert api.call("PUT", path, {}, caller=caller).status == 403
            assert api.call("DELETE", path, caller=caller).status == 403
    assert api.get("/v1/beams/ku-1").status == 200


def test_a_terminal_reads_only_its_own(api: Api) -> None:
    for of in ("", "/positions", "/positions.geojson"):
        assert api.get(f"/v1/terminals/{FIRST}{of}", caller="first").status == 200
        assert "its own" in api.get(f"/v1/terminals/{SECOND}{of}", caller="first").problem
    assert api.get(f"/v1/terminals/{SECOND}/positions/newest", caller="first").status == 403
    assert api.get("/v1/terminals", caller="first").status == 403
    assert api.get("/v1/beams", caller="first").status == 403


def test_a_terminal_reports_only_its_own(api: Api) -> None:
    def one(node: int) -> int:
        path = f"/v1/terminals/{node}/positions"
        return api.call("POST", path, position(), caller="first").status

    assert (one(FIRST), one(SECOND)) == (202, 403)
    mixed = {"positions": [position(FIRST), position(SECOND)]}
    assert api.call("POST", "/v1/positions", mixed, caller="first").status == 403
    assert api.get(f"/v1/terminals/{SECOND}/positions").json["positions"] == []
    assert api.call("POST", "/v1/positions", mixed, caller="gateway").status == 202
    assert api.call("POST", "/v1/positions", mixed, caller="viewer").status == 403


def test_tokens_are_stored_as_hashes_only(api: Api) -> None:
    async def rows() -> list[object]:
        async with api.database.reading() as connection:
            return list((await connection.execute(select(Token.__table__))).all())

    stored = str(api.run(rows()))
    assert "the tests' operator" in stored
    assert not any(token in stored for token in api.tokens.values())
