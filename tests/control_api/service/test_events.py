"""Events: who receives which, and their cost."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from hypothesis import given
from hypothesis import strategies as st
from underpass_control.events import Cut, Events, Filter
from underpass_control.http.events import _follow
from underpass_control.roles import Role
from underpass_control.storage.changes import MOST_BYTES, listed

from tests.control_api import postgresql
from tests.control_api.service.api import FIRST, SECOND, Api, now_ms, served
from tests.control_api.service.conftest import migrated
from tests.control_api.service.sse import Stream
from tests.control_api.service.test_positions import position

BEAM = {"name": "Ka", "forward_capacity_bps": 40_000_000, "return_capacity_bps": 4_000_000}


# Changes by callers; in the meantime the service itself goes on planning.
_ASKED_FOR = "kinds=beam,terminal,positions"


@asynccontextmanager
async def following(
    api: Api, query: str = _ASKED_FOR, caller: str = "viewer", last_id: str = ""
) -> AsyncIterator[Stream]:
    headers = api.headers(caller) | ({"Last-Event-ID": last_id} if last_id else {})
    async with api.client.get(f"/v1/events?{query}", headers=headers) as response:
        assert response.status == 200, await response.text()
        assert response.headers["Content-Type"].startswith("text/event-stream")
        await response.content.readline()
        yield Stream(response)


async def send(api: Api, *nodes: int) -> None:
    batch = [position(now_ms() - 1000 + n, terminal=node) for n, node in enumerate(nodes)]
    assert (await api.ask("POST", "/v1/positions", {"positions": batch})).status == 202


async def test_each_change_is_told_once_it_is_stored(api: Api) -> None:
    async with following(api) as stream:
        await api.ask("PUT", "/v1/beams/ka-2", BEAM)
        kind, data = await stream.next()
        assert (kind, data["beam"], data["action"]) == ("beam", "ka-2", "set")
        assert data["state"]["name"] == "Ka"
        await api.ask("DELETE", "/v1/beams/ka-2")
        assert await stream.next() == ("beam", {"beam": "ka-2", "action": "deleted"})
        body = {"beam": "ku-1", "name": "renamed"}
        await api.ask("PUT", f"/v1/terminals/{FIRST}", body)
        kind, data = await stream.next()
        assert (kind, data["state"]["name"]) == ("terminal", "renamed")
        await send(api, FIRST, SECOND, FIRST)
        kind, data = await stream.next()
        assert kind == "positions"
        # All of them, in order of time: a road is recognised by several fixes in a row.
        assert [one["terminal"] for one in data["positions"]] == [FIRST, SECOND, FIRST]


@pytest.mark.parametrize("option", ["ssl=disable", "prepared_statement_cache_size=10"])
def test_changes_are_told_over_a_connection_with_options(
    request: pytest.FixtureRequest, tmp_path: Path, option: str
) -> None:
    async def run(api: Api) -> None:
        async with following(api) as stream:
            await api.ask("PUT", "/v1/beams/ka-2", BEAM)
            assert (await stream.next())[0] == "beam"

    with served(f"{migrated(request, 'postgresql', tmp_path)}?{option}") as api:
        api.run(run(api))


async def test_what_fails_is_not_told(api: Api) -> None:
    async with following(api) as stream:
        assert (await api.ask("DELETE", "/v1/beams/ku-1")).status == 409
        lost = {"beam": "nowhere", "name": "lost"}
        assert (await api.ask("PUT", "/v1/terminals/99", lost)).status == 409
        await send(api, FIRST)
        assert (await stream.next())[0] == "positions"


async def test_a_follower_gets_what_it_asks_for(api: Api) -> None:
    async with (
        following(api, f"kinds=positions,terminal&terminal={SECOND}") as second,
        following(api, "kinds=beam") as beams,
    ):
        await send(api, FIRST, SECOND)
        await api.ask("PUT", "/v1/beams/ka-2", BEAM)
        kind, data = await second.next()
        assert kind == "positions"
        assert [one["terminal"] for one in data["positions"]] == [SECOND]
        assert (await beams.next())[0] == "beam"
    assert "kinds are" in (await api.ask("GET", "/v1/events?kinds=colour")).text


def test_settings_are_followed_by_their_kind(api: Api) -> None:
    async def run() -> tuple[str, Any]:
        async with following(api, "kinds=settings") as stream:
            answer = await api.ask("PUT", f"/v1/terminals/{FIRST}/settings", {})
            assert answer.status == 200, answer.text
            return await stream.next()

    kind, told = api.run(run())
    assert (kind, told["terminal"], told["action"]) == ("settings", FIRST, "set")


async def test_a_terminal_follows_its_own_only(api: Api) -> None:
    async with following(api, caller="first") as own:
        await api.ask("PUT", "/v1/beams/ka-2", BEAM)
        await send(api, SECOND)
        await send(api, FIRST)
        _, data = await own.next()
        assert [one["terminal"] for one in data["positions"]] == [FIRST]
    assert (await api.ask("GET", f"/v1/events?terminal={SECOND}", caller="first")).status == 403


async def test_who_connects_again_gets_what_was_missed(api: Api) -> None:
    async with following(api) as stream:
        await api.ask("PUT", "/v1/beams/ka-2", BEAM)
        await stream.next()
    for name in ("ka-3", "ka-4"):
        await api.ask("PUT", f"/v1/beams/{name}", BEAM)
    async with following(api, last_id=stream.last_id) as again:
        heard = [(await again.next())[1]["beam"] for _ in range(2)]
    assert heard == ["ka-3", "ka-4"]


async def test_a_quiet_stream_goes_on_from_what_it_did_not_follow(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("underpass_control.http.events._QUIET_S", 0.05)
    async with following(api, "kinds=terminal") as stream, following(api, "") as other:
        ids: set[str] = set()
        recording = asyncio.create_task(other.record(ids))
        await api.ask("PUT", "/v1/beams/ka-2", BEAM)
        await stream.until_id(ids)
        recording.cancel()


async def test_an_id_that_is_not_here_is_cut_and_forgotten(api: Api) -> None:
    async with following(api, last_id="0123456789abcdef") as stream:
        kind, data = await stream.next()
        assert (kind, stream.last_id) == ("cut", "")
        assert "no longer here" in data["reason"]


@given(
    st.lists(
        st.fixed_dictionaries({"path": st.text(max_size=128), "longitude": st.floats(-180, 180)}),
        max_size=60,
    )
)
def test_a_long_list_is_told_in_as_many_changes_as_it_needs(
    members: list[dict[str, object]],
) -> None:
    changes = list(listed("links", members))
    assert [one for change in changes for one in change["links"]] == members
    for change in changes:
        assert change["kind"] == "links"
        assert len(json.dumps(change, separators=(",", ":"))) <= MOST_BYTES
    for one, other in pairwise(changes):
        both = {**one, "links": [*one["links"], other["links"][0]]}
        assert len(json.dumps(both, separators=(",", ":"))) > MOST_BYTES - 100


def told(number: int, event_id: str, kind: str = "beam", size: int = 8_000) -> str:
    """Return a change as announced, of about this size in bytes."""
    return json.dumps(
        {"kind": kind, kind: str(number), "event_id": event_id, "padding": "x" * size}
    )


def test_ids_leave_the_ring_with_their_events() -> None:
    events = Events()
    for n in range(2000):
        events.tell(told(n, f"{n:x}"))
    with pytest.raises(Cut, match="no longer here"):
        events.follow(Filter(), f"{500:x}")
    assert b'"1999"' in events.follow(Filter(), f"{1998:x}").pending(16_384)
    assert events.follow(Filter(), f"{1999:x}").pending(16_384) == b""
    events.interrupt()
    with pytest.raises(Cut, match="no longer here"):
        events.follow(Filter(), f"{1999:x}")


def test_streams_end_with_the_service_and_say_so(url: str) -> None:
    with served(url) as api:

        async def run() -> None:
            async with following(api) as stream:
                closing = asyncio.create_task(api.client.server.close())
                assert await stream.next() == ("cut", {"reason": "the service ends"})
                await closing

        api.run(run())


async def test_a_stream_ends_when_its_token_does(api: Api) -> None:
    # Long enough to be shown once even on a busy machine.
    token = await api.token(Role.VIEWER, expires_ms=now_ms() + 3_000)
    async with following(api, caller=token) as stream:
        async with asyncio.timeout(10):
            kind, data = await stream.next()
        assert kind == "cut"
        assert "expired" in data["reason"]


async def test_a_busy_stream_ends_within_a_second_of_its_tokens_revocation(api: Api) -> None:
    token = await api.token(Role.VIEWER)
    async with following(api, caller=token) as stream, following(api) as other:
        busy = asyncio.create_task(report_for_ever(api))
        await stream.next()
        await api.revoke(token)
        async with asyncio.timeout(10):
            while (told := await stream.next())[0] != "cut":
                pass
        assert "revoked" in told[1]["reason"]
        # It was busy to the end, and continues for others.
        await other.next()
        busy.cancel()


async def test_a_stream_that_nobody_reads_ends_with_its_token_too(api: Api) -> None:
    token = await api.token(Role.VIEWER)
    _, writer = await asyncio.open_connection(api.client.host, api.client.port, limit=1024)
    head = f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}"
    writer.write(f"{head}\r\n\r\n".encode())
    busy = asyncio.create_task(report_for_ever(api))
    metric = "underpass_control_event_followers"
    while f"{metric} 1.0" not in (await api.ask("GET", "/metrics")).text:
        await asyncio.sleep(0.02)
    await api.revoke(token)
    async with asyncio.timeout(10):
        while f"{metric} 0.0" not in (await api.ask("GET", "/metrics")).text:
            await asyncio.sleep(0.02)
    busy.cancel()
    writer.close()


async def test_a_stream_ends_by_its_token_also_when_news_come_at_that_moment() -> None:
    class Out:
        async def send(self, data: bytes) -> None:
            pass

    events = Events()
    stream = asyncio.create_task(
        _follow(Out(), events.follow(Filter()))  # type: ignore[arg-type]
    )
    for _ in range(5):
        await asyncio.sleep(0)
    events.tell(json.dumps({"kind": "beam", "beam": "ku-1", "event_id": "1"}))
    stream.cancel()
    await asyncio.wait([stream], timeout=5)
    assert stream.cancelled()


async def report_for_ever(api: Api) -> None:
    while True:
        await send(api, FIRST)
        await asyncio.sleep(0.02)


def test_who_is_too_slow_is_cut_and_the_others_are_not() -> None:
    events = Events()
    slow, fast = events.follow(Filter()), events.follow(Filter())
    for n in range(2000):
        events.tell(told(n, str(n)))
        assert f'"{n}"'.encode() in fast.pending(16_384)
    with pytest.raises(Cut, match="too slow"):
        slow.pending(16_384)


def test_thousands_of_small_changes_at_once_cut_nobody() -> None:
    events = Events()
    follower = events.follow(Filter())
    for n in range(10_000):
        events.tell(told(n, f"{n:x}", size=500))
    heard = 0
    while pending := follower.pending(16_384):
        heard += pending.count(b"event: beam")
    assert heard == 10_000


def test_many_small_events_make_room_for_large_ones() -> None:
    events = Events()
    for n in range(40_000):
        events.tell(told(n, f"{n:x}", size=1))
    for number in (23_616, 39_999):
        assert events.follow(Filter(), f"{number:x}")
    with pytest.raises(Cut):
        events.follow(Filter(), f"{23_615:x}")
    for n in range(40_000, 42_000):
        events.tell(told(n, f"{n:x}"))
    with pytest.raises(Cut):
        events.follow(Filter(), f"{40_000:x}")
    assert events.follow(Filter(), f"{41_000:x}")


def test_a_thousand_followers_who_read_nothing_cost_what_one_does() -> None:
    def cost(followers: int) -> int:
        tracemalloc.start()
        events = Events()
        kept = [events.follow(Filter()) for _ in range(followers)]
        for n in range(2000):
            events.tell(json.dumps({"kind": "beam", "beam": "x" * 5000, "event_id": str(n)}))
        used, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert kept
        return used

    assert cost(1000) < cost(1) + 1_000_000


async def test_a_thousand_subscribers_all_hear_a_change(api: Api) -> None:
    connector = aiohttp.TCPConnector(limit=0)
    url = api.client.make_url(f"/v1/events?{_ASKED_FOR}")
    async with aiohttp.ClientSession(connector=connector) as session:
        asked = [session.get(url, headers=api.headers("viewer")) for _ in range(1000)]
        streams = await asyncio.gather(*asked)
        await api.ask("PUT", "/v1/beams/ka-2", BEAM)
        heard = await asyncio.gather(*(Stream(one).next() for one in streams))
        assert {kind for kind, _ in heard} == {"beam"}
        metrics = await api.ask("GET", "/metrics")
        assert "underpass_control_event_followers 1000.0" in metrics.text


async def test_a_client_that_does_not_read_holds_up_nobody(api: Api) -> None:
    reader, writer = await asyncio.open_connection(api.client.host, api.client.port, limit=1024)
    head = f"GET /v1/events HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {api.tokens['viewer']}"
    writer.write(f"{head}\r\n\r\n".encode())
    await reader.readline()
    async with following(api) as stream:
        for n in range(300):
            await send(api, FIRST)
            if n % 100 == 0:
                assert (await stream.next())[0] == "positions"
    writer.close()


def test_events_cross_replicas_and_a_lost_database_cuts_them(
    api_and_server: tuple[Api, postgresql.Server],
) -> None:
    api, server = api_and_server
    other = api.replica()
    api.run(other.start())

    async def run() -> None:
        async with following(other) as there, following(api) as here:
            await send(api, FIRST)
            assert (await there.next())[0] == (await here.next())[0] == "positions"
            assert there.last_id == here.last_id != ""
            await send(api, SECOND)
            await there.next()
            async with following(other, last_id=here.last_id) as moved:
                assert (await moved.next())[1] == (await here.next())[1]
            await asyncio.to_thread(server.stop)
            kind, data = await there.next()
            assert kind == "cut"
            assert "missing" in data["reason"]

    try:
        api.run(run())
    finally:
        api.run(other.client.close())


def test_requests_are_counted_by_endpoint(api: Api) -> None:
    api.get("/v1/beams/ku-1")
    api.get("/v1/beams/none")
    api.get("/nowhere/at/all")
    text = api.get("/metrics", caller="viewer").text
    labels = 'endpoint="/v1/beams/{beam}",method="GET"'
    assert f'underpass_control_http_requests_total{{{labels},status="200"}} 1.0' in text
    assert f'underpass_control_http_requests_total{{{labels},status="404"}} 1.0' in text
    assert "nowhere" not in text
    assert api.get("/metrics", caller="first").status == 403
