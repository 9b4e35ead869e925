"""A speed test through the hop, by the command and by the local API."""

from __future__ import annotations

import json
import subprocess
from typing import Any

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed import ports
from tests.testbed.client.route import ProxyError
from tests.testbed.node import ApiError, Pair
from tests.testbed.profile import Link, symmetric
from tests.testbed.programs import built
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_RATE_BPS = 8_000_000
_RTT_MS = 100.0
_HOST = "speed-test.underpass.internal"


@pytest.fixture
def pair(start_pair: StartPair) -> Pair[Testbed]:
    hop = Link(rate_bps=_RATE_BPS, delay_ms=_RTT_MS / 2, queue_ms=500.0)
    return start_pair(symmetric("slow", hop))


def _command(pair: Pair[Testbed], *arguments: str) -> list[str]:
    socket = str(pair.terminal.api.path)
    return [built("underpass"), "speed-test", "--socket", socket, *arguments]


def test_it_tells_what_the_hop_gives(pair: Pair[Testbed]) -> None:
    told = subprocess.run(
        _command(pair, "--seconds", "2", "--json"), capture_output=True, text=True, check=True
    )
    report: dict[str, Any] = json.loads(told.stdout)
    assert report["state"] == "done"
    assert report["idle"]["least_ms"] >= _RTT_MS
    for direction in ("down", "up"):
        # A start-up of some round trips, headers, and a measurement of two seconds.
        assert 0.4 * _RATE_BPS < report[direction]["bps"] < _RATE_BPS, direction
        assert report[direction]["round_trips"]["count"] > 0
    shown = subprocess.run(
        _command(pair, "--seconds", "1"), capture_output=True, text=True, check=True
    )
    for word in ("idle", "download", "upload", "Mbit/s"):
        assert word in shown.stdout
    # Nobody looks at a terminal.
    assert shown.stderr == ""


def test_one_runs_at_a_time_and_can_be_broken_off(pair: Pair[Testbed]) -> None:
    api = pair.terminal.api
    api.request("POST", "/v1/speed-test", {"seconds": 20})
    with pytest.raises(ApiError, match="a speed test is running"):
        api.request("POST", "/v1/speed-test", {})
    api.request("DELETE", "/v1/speed-test")
    assert api.get("/v1/speed-test")["state"] == "failed"
    # The hub has no more of it to send.
    pair.hub.process.wait_until(lambda: api.get("/v1/streams") == [])
    api.request("POST", "/v1/speed-test", {"seconds": 1})


def test_the_name_leads_nowhere_else(pair: Pair[Testbed]) -> None:
    for route in (pair.socks5(), pair.http_connect()):
        with route.connect(pair.client, _HOST, 7, timeout_s=10) as sock:
            sock.sendall(b"12345678")
            assert sock.recv(8) == b"12345678"
        with (
            pytest.raises((ConnectionResetError, ProxyError)),
            route.connect(pair.client, _HOST, ports.HTTP, timeout_s=10) as sock,
        ):
            sock.recv(1)
