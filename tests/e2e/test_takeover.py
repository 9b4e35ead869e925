"""The standby sessions take over when a link comes back."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import download
from tests.testbed.node import Node, Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_SIZE = 60_000_000
# One that outlasts any timer of TCP, and more so that one of them meets a bundle in its middle.
_BLOCKAGES_S = [5.0, 1.0, 1.0, 1.0, 1.0, 1.0]
_RECEIVED = 'underpass_streams_received_bytes_total{class="normal"}'


def _path(node: Node) -> dict[str, Any]:
    (path,) = node.api.get("/v1/paths")
    return dict(path)


def _carrying(node: Node) -> dict[int, int]:
    """Return the session that carries each class's bundles."""
    return {s["class"]: s["id"] for s in _path(node)["sessions"] if s["carrying"]}


def _resumed(node: Node) -> float:
    rows = node.api.metrics().items()
    return sum(count for name, count in rows if name.startswith("underpass_path_resumed_bundles"))


def _wait_for_standbys(node: Node) -> None:
    deadline = time.monotonic() + 60.0
    while True:
        sessions = _path(node)["sessions"]
        standbys = [s for s in sessions if not s["carrying"]]
        if len(standbys) == len(sessions) / 2 > 0:
            return
        assert time.monotonic() < deadline, sessions
        time.sleep(0.05)


def _block(pair: Pair[Testbed], for_s: float) -> None:
    """Cut the link, tell both nodes, and wait for the first new byte after it."""
    nodes = [pair.hub, *pair.terminals]
    pair.testbed.satlink.block(pair.testbed.terminal.name)
    for node in nodes:
        node.api.block()
    time.sleep(for_s)
    held = pair.terminal.api.metrics()[_RECEIVED]
    pair.testbed.satlink.unblock(pair.testbed.terminal.name)
    for node in nodes:
        node.api.unblock()
    free_at = time.monotonic()
    while pair.terminal.api.metrics()[_RECEIVED] == held:
        assert time.monotonic() < free_at + 10.0, "nothing comes after the blockage"
        time.sleep(0.005)


def test_a_download_goes_on_on_the_standby_when_the_link_is_back(start_pair: StartPair) -> None:
    pair = start_pair()
    nodes = [pair.hub, *pair.terminals]
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(download, pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5())
        for blocked_s in _BLOCKAGES_S:
            for node in nodes:
                _wait_for_standbys(node)
            time.sleep(0.5)
            before = _carrying(pair.hub)
            _block(pair, blocked_s)
            after = _carrying(pair.hub)
            assert any(before[c] != after[c] for c in after), "the session in use was replaced"
        assert not running.done()
        done = running.result(60)
    # The client compares every byte with what the origin has sent.
    assert done.error is None
    # When the blockage begins, the first segments of a bundle that has several may be
    # acknowledged or not.
    assert _resumed(pair.hub) >= 1


def test_a_terminal_restarted_in_a_blockage_has_its_sessions_after_it(
    start_pair: StartPair,
) -> None:
    pair = start_pair()
    classes = set(_carrying(pair.hub))
    pair.testbed.satlink.block(pair.testbed.terminal.name)
    pair.terminal.process.kill()
    pair.terminal.start()
    # So long that the kernel repeats a lost SYN only seconds later.
    time.sleep(8.0)
    pair.testbed.satlink.unblock(pair.testbed.terminal.name)
    deadline = time.monotonic() + 10.0
    while set(_carrying(pair.terminal)) != classes:
        assert time.monotonic() < deadline, _path(pair.terminal)
        time.sleep(0.02)
    done = download(pair.client, addresses.ORIGIN, 100_000, route=pair.socks5())
    assert done.error is None
