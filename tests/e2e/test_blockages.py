"""What a path that is cut, held or slowed does to open connections."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download, upload
from tests.testbed.node import Node, Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_SIZE = 8_000_000
_BLOCKED_S = 3.0


@pytest.mark.parametrize("transfer", [download, upload])
def test_a_blockage_amid_a_transfer_costs_its_time_and_no_byte(
    start_pair: StartPair, transfer: Callable[..., Transfer]
) -> None:
    pair = start_pair()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            transfer,
            pair.client,
            addresses.ORIGIN,
            _SIZE,
            route=pair.socks5(),
        )
        time.sleep(0.6)
        assert not running.done()
        pair.testbed.satlink.block(pair.testbed.terminal.name, for_s=_BLOCKED_S)
        done = running.result(60)
    assert done.error is None
    assert done.last_byte_s is not None
    assert done.last_byte_s > _BLOCKED_S


def test_a_path_held_by_the_local_api_holds_a_download_and_releases_it(
    underpass_pair: Pair[Testbed],
) -> None:
    pair = underpass_pair
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(download, pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5())
        time.sleep(0.5)
        pair.hub.api.block()
        held_at = time.monotonic()
        time.sleep(2.5)
        assert not running.done()
        pair.hub.api.unblock()
        held_s = time.monotonic() - held_at
        done = running.result(60)
    assert done.error is None
    assert done.last_byte_s is not None
    assert done.last_byte_s > held_s


def _set_rate(node: Node, rate_bps: int) -> None:
    (path,) = node.api.get("/v1/paths")
    node.api.request("PATCH", f"/v1/paths/{path['name']}", {"rate_bps": rate_bps})


def test_a_rate_set_by_the_local_api_bounds_a_download_that_runs(
    underpass_pair: Pair[Testbed],
) -> None:
    pair, stop = underpass_pair, threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            download, pair.client, addresses.ORIGIN, 200_000_000, route=pair.socks5(), stop=stop
        )
        try:
            time.sleep(0.5)
            _set_rate(pair.hub, 2_000_000)
            # What was in flight or in socket buffers arrives at the old rate.
            time.sleep(1.5)
            before = pair.terminal.api.metrics()
            time.sleep(2.0)
            after = pair.terminal.api.metrics()
        finally:
            _set_rate(pair.hub, 50_000_000)
            stop.set()
            running.result(60)
    key = 'underpass_streams_received_bytes_total{class="normal"}'
    received = after[key] - before[key]
    assert 0 < received < 2 * 2.0 * 2_000_000 / 8
