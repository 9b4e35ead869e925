"""A terminal in a fade: every part, from the packets on its link to the beam's plan, is real.

One direction is busy at a time: if both are, a queue in one can hide the other's capacity.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.testbed import addresses
from tests.testbed.client.transfer import download, upload
from tests.testbed.control import BEAM, REPORTS, Control
from tests.testbed.node import Options, Pair, terminal_node
from tests.testbed.profile import Link, symmetric
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

# A beam of two terminals, each with a link that would carry all of it.
RATE_BPS = 8_000_000
FADING = symmetric("fading", Link(rate_bps=RATE_BPS, delay_ms=100.0, queue_ms=500.0))
FAIR_BPS = RATE_BPS // 2
FADED_BPS = FAIR_BPS // 4
ENDLESS = 1_000_000_000_000
FOUND_WITHIN_S = 80.0


@pytest.mark.parametrize(("link", "transfer"), [("forward", download), ("return", upload)])
def test_a_fade_that_the_nodes_measure_is_planned_with(
    link: str, transfer: Callable[..., object]
) -> None:
    with Testbed(FADING, terminals=2) as testbed:
        control = Control(testbed)
        control.register()
        options = Options(return_rate_bps=FAIR_BPS, terminal=REPORTS, hub=control.hub_config)
        pair = Pair(testbed, options)
        until_s = time.monotonic() + 10.0 + FOUND_WITHIN_S

        def flow(index: int) -> None:
            client, route = testbed.terminals[index].client, pair.socks5(index)
            left_s = until_s - time.monotonic()
            transfer(client, addresses.ORIGIN, ENDLESS, route=route, deadline_s=left_s)

        def line(index: int) -> dict[str, Any]:
            path = f"/v1/beams/{BEAM}/plans/{link}?terminal={terminal_node(index)}"
            [found] = control.get(path)["lines"]
            told: dict[str, Any] = found
            return told

        def is_found() -> bool:
            path = f"/v1/terminals/{terminal_node(0)}/carried?link={link}&order=newest"
            newest = control.get(path)["carried"][0]
            near = newest["capacity_bps"] == pytest.approx(FADED_BPS, rel=0.3)
            return near and newest["capacity_reason"] in ("limit", "probe")

        def wait_until(true: Callable[[], bool]) -> None:
            while not true():
                assert time.monotonic() < until_s
                time.sleep(0.5)

        with ThreadPoolExecutor(2) as pool:
            flows = [pool.submit(flow, index) for index in (0, 1)]
            time.sleep(10.0)
            assert [line(index)["efficiency"] for index in (0, 1)] == [1, 1]
            fade = {"rate_bps": FADED_BPS}
            testbed.satlink.request("set", terminal=testbed.terminals[0].name, link=fade)
            wait_until(lambda: line(0)["efficiency"] < 0.4)
            assert line(1)["efficiency"] == 1
            # By symbols: the same capacity, at the rate that the fade leaves.
            fair = [line(index)["segments"][0]["fair_bits"] for index in (0, 1)]
            assert abs(fair[0] - fair[1]) <= 2
            wait_until(is_found)
            pair.stop()
            for one in flows:
                one.cancel()
