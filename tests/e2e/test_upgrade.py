"""Another process takes over a node while its clients are served."""

from __future__ import annotations

import time
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial

import pytest

from tests.e2e.conftest import StartPair, whole
from tests.e2e.leftovers import nothing_left
from tests.testbed import addresses
from tests.testbed.client.route import DIRECT
from tests.testbed.client.transfer import Transfer, download, upload
from tests.testbed.node import Options, Pair, all_listeners
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

# At the origin's own pace of 8 Mbit/s, some ten seconds.
_BYTES = 10_000_000
_PACE = "&rate_bps=8000000"


def _running(pair: Pair[Testbed], pool: ThreadPoolExecutor) -> list[Future[Transfer]]:
    """Begin a download by each kind of listener, and an upload."""
    client = pair.client
    routes = [pair.socks5(0), pair.http_connect(0), pair.http_forward(0), DIRECT]
    begun = [
        pool.submit(download, client, addresses.ORIGIN, _BYTES, query=_PACE, seed=seed, route=route)
        for seed, route in enumerate(routes)
    ]
    route = pair.socks5(0)
    return [*begun, pool.submit(upload, client, addresses.ORIGIN, 3_000_000, route=route)]


@pytest.mark.parametrize("durability", ["memory", "disk"])
def test_clients_of_all_listeners_outlive_upgrades(start_pair: StartPair, durability: str) -> None:
    """TLS, interception and the helper's congestion controls go on too."""
    custody = {"custody": {"durability": durability}}
    options = Options(terminal={"edge": all_listeners(0), **custody}, hub=custody)
    pair = start_pair(options=options)
    with ThreadPoolExecutor() as pool:
        running = _running(pair, pool)
        for node in (pair.hub, pair.terminal, pair.hub):
            time.sleep(1.0)
            before = node.process.pid
            node.upgrade()
            assert node.process.pid != before
            node.process.wait_until(partial(node.carries, 1))
        transfers = [one.result(timeout=60) for one in running]
    for transfer in transfers:
        whole(transfer)
    # New clients enter by the same sockets as before; afterwards nothing is left.
    for route in (pair.socks5(0), pair.http_connect(0), pair.http_forward(0)):
        assert download(pair.client, addresses.ORIGIN, 300_000, route=route).complete
    assert download(pair.client, addresses.ORIGIN, 300_000).complete
    nothing_left(pair)
