from __future__ import annotations

import time
from collections.abc import Iterator
from socket import AF_INET, SOCK_DGRAM

import pytest

from tests.testbed import addresses
from tests.testbed.profile import Link, symmetric
from tests.testbed.satlink import SatlinkError
from tests.testbed.topology import Testbed
from tests.traces.trace import Step, Trace

pytestmark = pytest.mark.testbed

_PROFILE = symmetric("short", Link(rate_bps=1_000_000, delay_ms=10.0, queue_ms=1000.0))


@pytest.fixture(scope="module")
def testbed() -> Iterator[Testbed]:
    with Testbed(_PROFILE) as testbed:
        yield testbed


def trace(*rates_bps: tuple[float, int]) -> Trace:
    forward = [Step(at_s, rate_bps, 10.0) for at_s, rate_bps in rates_bps]
    return Trace("t", "a test", 10.0, forward, [Step(0.0, 1_000_000, 10.0)])


def test_a_link_follows_its_trace_from_when_it_is_told(testbed: Testbed) -> None:
    began = testbed.satlink.follow(trace((0.0, 2_000_000), (0.3, 3_000_000)))
    assert abs(time.monotonic() - began) < 1

    def rate_bps() -> int:
        link = testbed.satlink.statistics()["terminals"][testbed.terminal.name]["forward"]
        return int(link["rate_bps"])

    time.sleep(max(0.0, began + 0.4 - time.monotonic()))
    assert rate_bps() == 3_000_000
    testbed.satlink.unfollow()
    assert rate_bps() == 1_000_000


def test_the_queue_is_told_over_time(testbed: Testbed) -> None:
    began = testbed.satlink.follow(trace((0.0, 1_000_000)))
    to = (addresses.terminal_sat(0), 40_000)
    with (
        testbed.terminal.node.socket(AF_INET, SOCK_DGRAM) as sink,
        testbed.hub.socket(AF_INET, SOCK_DGRAM) as source,
    ):
        sink.bind(to)
        for _ in range(50):
            source.sendto(bytes(1222), to)
    time.sleep(0.8)
    samples = testbed.satlink.queue_ms(testbed.terminal.name, "forward")
    testbed.satlink.unfollow()
    times = [at for at, _ in samples]
    assert times[0] == pytest.approx(began, abs=0.05)
    # 50 packets of 1250 bytes are half a second at 1 Mbit/s.
    assert 400 < max(waited for _, waited in samples) <= 500
    assert samples[-1][1] == 0


def test_a_wrong_trace_is_refused_with_what_is_wrong(testbed: Testbed) -> None:
    with pytest.raises(SatlinkError, match=r"forward\[1\]: at_s"):
        testbed.satlink.follow(trace((1.0, 1_000_000), (1.0, 2_000_000)))
