"""Connections that begin while the hub is down, and its next run."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download
from tests.testbed.node import Options

pytestmark = pytest.mark.node

_SIZE = 300_000
_EACH = 10


@pytest.mark.parametrize("durability", ["memory", "disk"])
def test_downloads_that_begin_while_the_hub_is_down_complete(
    start_pair: StartPair, durability: str
) -> None:
    pair = start_pair(options=Options(terminal={"custody": {"durability": durability}}))
    assert download(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()).complete
    pair.hub.process.kill()
    # Data sent to the run that ended is not sent again.
    pair.terminal.process.wait_until(lambda: not pair.terminal.carries(1))
    with ThreadPoolExecutor(2 * _EACH) as pool:
        routes = [pair.socks5(), pair.http_connect()] * _EACH
        running = [
            pool.submit(download, pair.client, addresses.ORIGIN, _SIZE, route=route)
            for route in routes
        ]
        # All have opened their streams.
        pair.terminal.process.wait_until(
            lambda: len(pair.terminal.api.get("/v1/streams")) >= len(routes)
        )
        pair.hub.start()
        done: list[Transfer] = [one.result(90) for one in running]
    assert [one.error for one in done] == [None] * len(routes)
    assert all(one.complete for one in done)
