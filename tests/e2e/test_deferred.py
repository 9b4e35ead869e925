"""Requests that wait for the link: curl alone, blockages, and nodes that are killed."""

from __future__ import annotations

import json
import random
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.conftest import NEAR
from tests.e2e.counting_origin import PORT, CountingOrigin, content
from tests.testbed import addresses
from tests.testbed.node import HTTP_PORT, ApiError, Node, Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_PROXY = f"http://{addresses.terminal_lan(0)}:{HTTP_PORT}"
_FINAL = ("answered", "failed", "unknown", "expired", "cancelled")


@dataclass(frozen=True)
class Curled:
    """A response, as curl got it."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """Return the body's JSON."""
        return json.loads(self.body)


@dataclass(frozen=True)
class World:
    """A pair and an origin that counts."""

    pair: Pair[Testbed]
    origin: CountingOrigin

    def curl(self, *args: str) -> Curled:
        """Run curl at the client; raise if it gets no answer."""
        argv = ["curl", "-sS", "-i", "--max-time", "20", "-H", "Expect:", *args]
        inside = self.pair.client.argv(*argv)
        done = subprocess.run(inside, capture_output=True, check=False)
        if done.returncode != 0:
            raise ConnectionError(done.stderr.decode())
        head, _, body = done.stdout.partition(b"\r\n\r\n")
        first, *fields = head.decode("latin-1").split("\r\n")
        named = (field.partition(": ") for field in fields)
        return Curled(
            int(first.split()[1]), {name.lower(): value for name, _, value in named}, body
        )

    def defer(self, path: str, *args: str) -> Curled:
        """Send a request through the proxy, to be answered later."""
        url = f"http://{addresses.ORIGIN}:{PORT}{path}"
        return self.curl("-x", _PROXY, "-H", "Prefer: respond-async", *args, url)

    def ended(self, url: str, timeout_s: float = 60.0) -> dict[str, Any]:
        """Wait until the request has ended; return its status document."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            try:
                document: dict[str, Any] = self.curl("--fail", url).json
            except (ConnectionError, ValueError) as error:
                # The node is starting.
                document = {"state": str(error)}
            if document["state"] in _FINAL:
                return document
            time.sleep(0.2)
        raise TimeoutError(str(document))


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with Testbed(NEAR) as testbed:
        pair = Pair(testbed)
        with CountingOrigin(testbed.origin) as origin:
            yield World(pair, origin)


def test_a_deferred_post_is_answered_202_and_its_response_fetched_in_ranges(world: World) -> None:
    accepted = world.defer("/post/100000/0", "-d", "a=1&b=2")
    assert accepted.status == 202
    assert accepted.headers["preference-applied"] == "respond-async"
    url = accepted.headers["location"]
    assert url == accepted.json["url"]
    assert accepted.json["state"] == "stored"
    done = world.ended(url)
    assert done["state"] == "answered"
    assert done["response_bytes"] == 100_000
    whole = world.curl(done["response_url"])
    assert (whole.status, whole.body) == (200, content(100_000))
    assert whole.headers["x-name"] == "post"
    part = world.curl("-r", "50000-50009", done["response_url"])
    assert (part.status, part.body) == (206, content(100_000)[50_000:50_010])
    assert part.headers["content-range"] == "bytes 50000-50009/100000"
    beyond = world.curl("-r", "100000-", done["response_url"])
    assert (beyond.status, beyond.headers["content-range"]) == (416, "bytes */100000")
    assert world.origin.bodies["post"] == b"a=1&b=2"
    assert world.origin.counts["post"] == 1
    assert world.curl("-X", "DELETE", url).status == 204
    assert world.curl(url).status == 404


def test_a_request_made_in_a_blockage_is_answered_after_it(world: World) -> None:
    world.pair.testbed.satlink.block(world.pair.testbed.terminal.name, for_s=3.0)
    accepted = world.defer("/blocked/10/0", "-X", "POST", "-d", "x")
    assert accepted.status == 202
    time.sleep(1.0)
    assert world.curl(accepted.headers["location"]).json["state"] == "stored"
    assert world.ended(accepted.headers["location"])["state"] == "answered"
    assert world.origin.counts["blocked"] == 1


def test_a_refused_destination_fails_with_the_reason(world: World) -> None:
    args = ("-x", _PROXY, "-H", "Prefer: respond-async", "http://127.0.0.1:1/x")
    done = world.ended(world.curl(*args).headers["location"])
    assert done["state"] == "failed"
    response = world.curl(done["response_url"])
    assert response.status == 403
    assert "destination_ip_prohibited" in response.headers["proxy-status"]


def test_what_is_too_large_is_refused_in_words(world: World) -> None:
    refused = world.defer("/large/1/0", "-X", "POST", "-H", "Content-Length: 99999999999")
    assert refused.status == 413
    assert b"67108864 bytes at most" in refused.body


def test_the_queue_is_shown_in_pages_and_a_waiting_request_cancelled(world: World) -> None:
    api = world.pair.terminal.api
    world.pair.terminal.api.block()
    try:
        urls = [world.defer(f"/page{i}/1/0").headers["location"] for i in range(3)]
        ids = [url.rpartition("/")[2] for url in urls]
        waiting = api.get("/v1/deferred?state=stored&limit=2")
        assert [row["id"] for row in waiting] == ids[:2]
        more = api.get(f"/v1/deferred?state=stored&after={ids[1]}")
        assert [row["id"] for row in more] == ids[2:]
        assert api.metrics()['underpass_deferred_requests{state="stored"}'] == 3
        api.request("DELETE", f"/v1/deferred/{ids[0]}")
    finally:
        api.unblock()
    assert world.ended(urls[0])["state"] == "cancelled"
    assert [world.ended(url)["state"] for url in urls[1:]] == ["answered"] * 2
    assert world.origin.counts["page0"] == 0
    with pytest.raises(ApiError, match="404"):
        api.get(f"/v1/deferred/{'0' * 32}")


def test_an_exchange_that_a_crash_cuts_is_unknown_and_the_client_may_repeat_it(
    world: World,
) -> None:
    url = world.defer("/cut/5/3000", "-X", "POST", "-d", "x").headers["location"]
    get = world.defer("/cutget/5/3000").headers["location"]
    for name in ("cut", "cutget"):
        _wait_for(lambda name=name: world.origin.counts[name] == 1)
    _restart(world.pair.hub)
    done = world.ended(url)
    assert done["state"] == "unknown"
    # The hub itself repeats a request that may be repeated.
    assert world.ended(get)["state"] == "answered"
    assert world.origin.counts["cutget"] == 2
    assert world.origin.counts["cut"] == 1
    repeated = world.curl("-X", "POST", done["repeat_url"])
    assert repeated.status == 202
    assert world.ended(url)["state"] == "answered"
    assert world.origin.counts["cut"] == 2


def test_kills_at_random_moments_lose_nothing_and_send_nothing_twice(world: World) -> None:
    chance = random.Random(7)
    accepted: dict[str, str] = {}
    with ThreadPoolExecutor(1) as pool:
        for number in range(6):
            victim = chance.choice([world.pair.terminal, world.pair.hub])
            killed = pool.submit(_kill_after, victim, chance.uniform(0.0, 1.5))
            for name in (f"kill{number}-{i}" for i in range(5)):
                try:
                    done = world.defer(f"/{name}/150000/100", "-X", "POST", "-d", name * 9_000)
                except ConnectionError:
                    continue
                if done.status == 202:
                    accepted[name] = done.headers["location"]
                time.sleep(chance.uniform(0.0, 0.3))
            killed.result()
            # Not in that thread: a process ends with the thread that started it.
            victim.start()
            world.pair.wait_until_ready()
    assert len(accepted) > 10
    for name, url in accepted.items():
        end = world.ended(url)
        assert end["state"] in ("answered", "unknown"), end
        assert world.origin.counts[name] <= 1
        if end["state"] == "answered":
            assert world.origin.counts[name] == 1
            assert world.origin.bodies[name] == (name * 9_000).encode()
            assert world.curl(end["response_url"]).body == content(150_000)


def _kill_after(victim: Node, pause_s: float) -> None:
    time.sleep(pause_s)
    victim.process.kill()


def _restart(victim: Node) -> None:
    victim.process.kill()
    victim.start()


def _wait_for(condition: Any, timeout_s: float = 60.0) -> None:
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)
