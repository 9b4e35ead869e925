"""Plans reach the gateways of their terminals: all plans, in order, once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from sqlalchemy import update
from underpass_control.roles import Role
from underpass_control.storage.models import Terminal

from tests.control_api import postgresql
from tests.control_api.service.api import FIRST, SECOND, Api, now_ms
from tests.control_api.service.sse import Stream

HUB, OTHER_HUB = 1, 2


class Plans:
    """A gateway's stream."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._events = Stream(response)

    @property
    def last_id(self) -> str:
        """The id of the last event that came."""
        return self._events.last_id

    async def next(self) -> dict[str, Any]:
        """Return the next plan."""
        kind, data = await self._events.next()
        assert kind == "plan", data
        plan: dict[str, Any] = data
        return plan

    async def until(
        self, link: str, is_it: Callable[[dict[str, Any]], bool] = lambda _: True
    ) -> dict[str, Any]:
        """Return the next plan of a link that fulfils a condition."""
        while True:
            plan = await self.next()
            if plan["link"] == link and is_it(plan):
                return plan


def has(*nodes: int) -> Callable[[dict[str, Any]], bool]:
    """Return whether a plan has exactly these terminals."""
    return lambda plan: (
        sorted(node for line in plan["lines"] for node in line["terminals"]) == [*nodes]
    )


def carries(rate_bps: int) -> Callable[[dict[str, Any]], bool]:
    """Return whether a plan has this capacity."""
    return lambda plan: bool(plan["capacity"][0]["rate_bps"] == rate_bps)


@asynccontextmanager
async def following(
    api: Api, gateway: int = HUB, last_id: str = "", caller: str = "gateway"
) -> AsyncIterator[Plans]:
    headers = api.headers(caller)
    if last_id:
        headers["Last-Event-ID"] = last_id
    async with api.client.get(f"/v1/gateways/{gateway}/plans", headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        await response.content.readline()
        await response.content.readline()
        yield Plans(response)


async def serve(api: Api, gateway: int | None, *nodes: int) -> None:
    """Make a gateway serve terminals, as if it had reported them."""
    async with api.changes.transaction() as (connection, _):
        await connection.execute(
            update(Terminal).where(Terminal.node.in_(nodes)).values(heard_by=gateway)
        )
    for node in nodes:
        body = {"beam": "ku-1", "name": f"vehicle {node}"}
        assert (await api.ask("PUT", f"/v1/terminals/{node}", body)).status == 200


async def test_a_gateway_is_sent_the_plans_of_its_terminals_and_each_new_one(api: Api) -> None:
    await serve(api, HUB, FIRST, SECOND)
    async with following(api) as plans:
        plan = await plans.until("forward", has(FIRST, SECOND))
        assert plan["beam"] == "ku-1"
        (line,) = plan["lines"]
        assert line["guaranteed_bps"] == 4_000_000
        assert {s["rate_bps"] for s in line["segments"]} == {4_000_000}
        beam = {
            "name": "Ku 1",
            "forward_capacity_bps": 6_000_000,
            "return_capacity_bps": 2_000_000,
        }
        assert (await api.ask("PUT", "/v1/beams/ku-1", beam)).status == 200
        later = await plans.until("forward", carries(6_000_000))
        assert later["plan"] > plan["plan"]
        assert {s["rate_bps"] for line in later["lines"] for s in line["segments"]} == {3_000_000}


async def test_what_was_sent_before_a_cut_is_not_sent_again_and_what_was_missed_is(
    api: Api,
) -> None:
    await serve(api, HUB, FIRST, SECOND)
    async with following(api) as plans:
        seen = await plans.until("forward", has(FIRST, SECOND))
        while "return" not in plans.last_id:
            await plans.next()
    beam = {"name": "Ku 1", "forward_capacity_bps": 6_000_000, "return_capacity_bps": 2_000_000}
    assert (await api.ask("PUT", "/v1/beams/ku-1", beam)).status == 200
    async with following(api, last_id=plans.last_id) as again:
        missed = await again.until("forward")
        assert missed["plan"] > seen["plan"]
    async with following(api) as anew:
        assert (await anew.until("forward"))["plan"] >= missed["plan"]


async def test_a_terminal_that_moves_to_another_gateway_is_in_a_new_plan_of_both(api: Api) -> None:
    await serve(api, HUB, FIRST, SECOND)
    async with (
        following(api) as here,
        following(api, OTHER_HUB, caller="operator") as there,
    ):
        await here.until("forward", has(FIRST, SECOND))
        await serve(api, OTHER_HUB, SECOND)
        assert (await here.until("forward", has(FIRST)))["capacity"][0]["rate_bps"] == 4_000_000
        assert (await there.until("forward", has(SECOND)))["plan"] > 0


def test_a_gateway_follows_its_own_plans_only(api: Api) -> None:
    refused = api.get(f"/v1/gateways/{OTHER_HUB}/plans", caller="gateway")
    assert (refused.status, refused.problem) == (403, "the token is for gateway 1")
    assert api.get(f"/v1/gateways/{HUB}/plans", caller="viewer").status == 403
    assert api.get(f"/v1/gateways/{HUB}/plans", caller="first").status == 403


async def test_a_gateways_stream_ends_within_a_second_of_its_tokens_revocation(api: Api) -> None:
    token = await api.token(Role.GATEWAY, HUB)
    await serve(api, HUB, FIRST, SECOND)
    async with following(api, caller=token) as plans:
        await plans.until("forward", has(FIRST, SECOND))
        await api.revoke(token)
        async with asyncio.timeout(10):
            with pytest.raises(AssertionError, match="revoked"):
                await plans.until("forward", carries(0))


def test_a_stream_outlives_the_loss_of_the_database_and_goes_on_after_it(
    api_and_server: tuple[Api, postgresql.Server],
) -> None:
    api, server = api_and_server

    async def run() -> None:
        await serve(api, HUB, FIRST, SECOND)
        async with following(api) as plans:
            before = await plans.until("forward", has(FIRST, SECOND))
            await asyncio.to_thread(server.stop)
            await asyncio.sleep(1)
            await asyncio.to_thread(server.start)
            beam = {
                "name": "Ku 1",
                "forward_capacity_bps": 6_000_000,
                "return_capacity_bps": 2_000_000,
            }
            async with asyncio.timeout(60):
                while (await api.ask("PUT", "/v1/beams/ku-1", beam)).status != 200:
                    await asyncio.sleep(0.1)
            after = await plans.until("forward", carries(6_000_000))
            assert after["plan"] > before["plan"]
            path = f"/v1/beams/ku-1/plans/forward/{before['plan']}"
            assert (await api.ask("GET", path)).status == 200

    api.run(run())


def announcing(entry_ms: int) -> dict[str, Any]:
    """Return the post of a gateway whose first terminal has recognised a road tunnel."""
    said = {
        "kind": "announcement",
        "uptime_ms": 5000,
        "incarnation": 7,
        "announced_ms": now_ms(),
        "entry_ms": entry_ms,
        "duration_ms": 30_000,
        "confidence": 0.9,
    }
    reports = [{"node": FIRST, "age_ms": 10, "report": said}]
    return {"version": 1, "node": HUB, "sent_ms": now_ms(), "reports": reports}


def foresees(entry_ms: int) -> Callable[[dict[str, Any]], bool]:
    """Return whether a plan has the first terminal blocked from a time on."""

    def does(plan: dict[str, Any]) -> bool:
        return any(
            segment["state"] == "blocked" and segment["start_ms"] == entry_ms
            for line in plan["lines"]
            for segment in line["segments"]
            if FIRST in line["terminals"]
        )

    return does


async def test_what_a_terminal_foresees_is_in_the_next_plan_of_both_links(api: Api) -> None:
    await serve(api, HUB, FIRST, SECOND)
    async with following(api) as plans:
        await plans.until("forward", has(FIRST, SECOND))
        entry_ms = now_ms() + 60_000
        reply = await api.ask("POST", "/v1/reports", announcing(entry_ms), caller="gateway")
        assert reply.json["accepted"] == 1
        both = {"return": entry_ms, "forward": entry_ms - 300}
        while both:
            plan = await plans.next()
            if plan["link"] in both and foresees(both[plan["link"]])(plan):
                del both[plan["link"]]


def test_any_process_streams_what_another_has_planned(api: Api) -> None:
    if api.database.is_sqlite:
        pytest.skip("SQLite has one process")
    other = api.replica()
    api.run(other.start())

    async def run() -> None:
        await serve(api, HUB, FIRST, SECOND)
        async with following(other) as plans:
            await plans.until("forward", has(FIRST, SECOND))
            entry_ms = now_ms() + 60_000
            # The report may come in at the process that does not plan the beam.
            reply = await other.ask("POST", "/v1/reports", announcing(entry_ms), caller="gateway")
            assert reply.json["accepted"] == 1
            await plans.until("return", foresees(entry_ms))

    try:
        api.run(run())
    finally:
        api.run(other.client.close())
