"""A terminal in a fade: from the packets on its link to the plan of its beam, all of it real."""

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

pytestmark = [pytest.mark.node, pytest.mark.timeout(180)]

# A beam of two terminals, each with a link that would carry all of it.
RATE_BPS = 8_000_000
FADING = symmetric("fading", Link(rate_bps=RATE_BPS, delay_ms=100.0, queue_ms=500.0))
FAIR_BPS = RATE_BPS // 2
FADED_BPS = FAIR_BPS // 4
LINKS = ("forward", "return")
ENDLESS = 1_000_000_000_000
FOUND_WITHIN_S = 80.0


def test_a_fade_that_the_nodes_measure_is_planned_with_in_both_directions() -> None:
    with Testbed(FADING, terminals=2) as testbed:
        control = Control(testbed)
        control.register()
        options = Options(return_rate_bps=FAIR_BPS, terminal=REPORTS, hub=control.hub_config)
        pair = Pair(testbed, options)
        until_s = time.monotonic() + 10.0 + FOUND_WITHIN_S

        def flow(transfer: Callable[..., object], index: int) -> None:
            client, route = testbed.terminals[index].client, pair.socks5(index)
            left_s = until_s - time.monotonic()
            transfer(client, addresses.ORIGIN, ENDLESS, route=route, deadline_s=left_s)

        def line(link: str, index: int) -> dict[str, Any]:
            path = f"/v1/beams/{BEAM}/plans/{link}?terminal={terminal_node(index)}"
            [found] = control.get(path)["lines"]
            told: dict[str, Any] = found
            return told

        def is_found(link: str) -> bool:
            path = f"/v1/terminals/{terminal_node(0)}/carried?link={link}&order=newest"
            newest = control.get(path)["carried"][0]
            near = newest["capacity_bps"] == pytest.approx(FADED_BPS, rel=0.3)
            return near and newest["capacity_reason"] in ("limit", "probe")

        with ThreadPoolExecutor(4) as pool:
            flows = [pool.submit(flow, one, n) for one in (upload, download) for n in (0, 1)]
            time.sleep(10.0)
            for link in LINKS:
                assert [line(link, n)["efficiency"] for n in (0, 1)] == [1, 1]
            fade = {"rate_bps": FADED_BPS}
            testbed.satlink.request("set", terminal=testbed.terminals[0].name, link=fade)
            left = set(LINKS)
            while left:
                assert time.monotonic() < until_s, left
                time.sleep(0.5)
                left -= {link for link in left if line(link, 0)["efficiency"] < 0.4}
            for link in LINKS:
                faded, other = (line(link, n) for n in (0, 1))
                assert other["efficiency"] == 1
                # By symbols: the same capacity, and the rate is the fade's.
                fair = [one["segments"][0]["fair_bits"] for one in (faded, other)]
                assert abs(fair[0] - fair[1]) <= 2
            left = set(LINKS)
            while left:
                assert time.monotonic() < until_s, left
                time.sleep(0.5)
                left -= {link for link in left if is_found(link)}
            pair.stop()
            for one in flows:
                one.cancel()
