"""The effect on open connections of a path that is cut, held or slowed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import NEAR, StartPair, amid, whole
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download, upload
from tests.testbed.node import Node, Options, Pair
from tests.testbed.profile import Link, Profile
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_SIZE = 8_000_000
_BLOCKED_S = 3.0


@pytest.mark.parametrize("transfer", [download, upload])
def test_a_blockage_amid_a_transfer_costs_its_time_and_no_byte(
    start_pair: StartPair, transfer: Callable[..., Transfer]
) -> None:
    pair = start_pair()
    with amid(pair, transfer, _SIZE, after_s=0.6) as running:
        pair.testbed.satlink.block(pair.testbed.terminal.name, for_s=_BLOCKED_S)
        done = running.result(60)
    assert whole(done) > _BLOCKED_S


def _link(node: Node) -> dict[str, Any]:
    (path,) = node.api.get("/v1/paths")
    link: dict[str, Any] = path["link"]
    return link


def _wait_until_blocked_by(node: Node, source: str | None, within_s: float) -> None:
    deadline = time.monotonic() + within_s
    while _link(node)["blocked_by"] != source:
        assert time.monotonic() < deadline, f"{node.name}: {_link(node)}"
        time.sleep(0.02)


def _bundles_sent(node: Node) -> float:
    rows = node.api.metrics().items()
    return sum(count for name, count in rows if name.startswith("underpass_path_sent_bundles"))


def test_both_ends_find_out_a_blockage_without_a_plan_and_its_end(
    start_pair: StartPair,
) -> None:
    pair = start_pair()
    nodes = [pair.hub, *pair.terminals]
    for node in nodes:
        _wait_until_blocked_by(node, None, 5.0)
        deadline = time.monotonic() + 60.0
        while not _link(node)["probed"]:
            assert time.monotonic() < deadline
            time.sleep(0.05)
    with amid(pair, download, _SIZE, after_s=0.6) as running:
        pair.testbed.satlink.block(pair.testbed.terminal.name)
        # A round trip of 0.1 s and 0.5 s, and some time for a busy machine.
        for node in nodes:
            _wait_until_blocked_by(node, "probing", 3.0)
        sent = [_bundles_sent(node) for node in nodes]
        time.sleep(2.0)
        assert [_bundles_sent(node) for node in nodes] == sent
        assert [_link(node)["blocked_by"] for node in nodes] == ["probing", "probing"]
        pair.testbed.satlink.unblock(pair.testbed.terminal.name)
        for node in nodes:
            _wait_until_blocked_by(node, None, 3.0)
        done = running.result(60)
    assert done.error is None


def test_an_origin_with_a_send_timeout_goes_on_through_a_longer_blockage(
    start_pair: StartPair,
) -> None:
    # A server with full buffers can write again only after much of their content was read.
    timeout_s, blocked_s = 45.0, 55.0
    pair = start_pair(options=Options(hub={"custody": {"durability": "disk"}}))
    query = f"&send_timeout_s={timeout_s:.0f}"
    with amid(pair, download, 40_000_000, after_s=0.6, deadline_s=140.0, query=query) as running:
        pair.testbed.satlink.block(pair.testbed.terminal.name, for_s=blocked_s)
        # By then the hub has everything for which there was credit.
        time.sleep(5.0)
        before = _bytes_in_custody(pair.hub)
        time.sleep(timeout_s)
        assert _bytes_in_custody(pair.hub) - before >= 2_000_000
        done = running.result(150)
    assert whole(done) > blocked_s


def _bytes_in_custody(node: Node) -> int:
    used: int = node.status()["custody"]["used_bytes"]
    return used


def test_what_was_read_on_in_a_blockage_does_not_go_before_what_is_new(
    start_pair: StartPair,
) -> None:
    disk = {"custody": {"durability": "disk"}}
    near = Profile("narrow", NEAR.forward, Link(rate_bps=4_000_000, delay_ms=50.0, queue_ms=500.0))
    pair = start_pair(near, Options(terminal=disk, hub=disk))
    with ThreadPoolExecutor(12) as pool:
        held_back = [
            pool.submit(upload, pair.client, addresses.ORIGIN, 500_000, route=pair.socks5())
            for _ in range(12)
        ]
        time.sleep(0.5)
        pair.testbed.satlink.block(pair.testbed.terminal.name, for_s=6.0)
        # By then the terminal has read everything that the clients send.
        time.sleep(6.0 + near.rtt_s)
        assert _bytes_in_custody(pair.terminal) > 2_000_000
        for kind in (upload, download):
            assert kind(pair.client, addresses.ORIGIN, 2000, route=pair.socks5()).complete
        assert sum(not one.done() for one in held_back) > 6
        assert all(one.result().complete for one in held_back)


def test_a_path_held_by_the_local_api_holds_a_download_and_releases_it(
    underpass_pair: Pair[Testbed],
) -> None:
    pair = underpass_pair
    with amid(pair, download, _SIZE, after_s=0.5) as running:
        pair.hub.api.block()
        held_at = time.monotonic()
        time.sleep(2.5)
        assert not running.done()
        pair.hub.api.unblock()
        held_s = time.monotonic() - held_at
        done = running.result(60)
    assert whole(done) > held_s


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
            # Bytes in flight or in socket buffers arrive at the old rate.
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
