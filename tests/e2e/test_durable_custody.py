"""Nodes that are killed during transfers, and the bundles in their custody on disk."""

from __future__ import annotations

import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import NEAR, StartPair
from tests.e2e.test_relay import relay_config, relay_options
from tests.testbed import addresses
from tests.testbed.client.transfer import download, upload
from tests.testbed.custody_files import content_on_disk
from tests.testbed.node import Node, Options, Pair, terminal_node
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_DISK = {"custody": {"durability": "disk"}}
_SIZE, _SEED = 6_000_000, 7


def _custody(node: Node) -> dict[str, Any]:
    custody: dict[str, Any] = node.api.get("/v1/custody")
    return custody


def test_a_killed_relay_goes_on_with_what_it_had() -> None:
    with Testbed(NEAR) as testbed:
        config = {**relay_config(testbed, custody=True), **_DISK}
        relay = Node(testbed, "relay", testbed.hub, config)
        pair = Pair(testbed, relay_options())
        relay.process.wait_until(lambda: relay.carries(2))
        for transfer in (download, upload):
            with ThreadPoolExecutor(1) as pool:
                running = pool.submit(
                    transfer, pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()
                )
                # Held by the API, it takes custody but cannot forward.
                relay.api.block()
                relay.process.wait_until(lambda: _custody(relay)["disk"]["live_bytes"] > 0)
                time.sleep(0.3)
                relay.process.kill()
                relay.start()
                relay.process.wait_until(lambda: relay.carries(2))
                assert _custody(relay)["disk"]["restored_bundles"] > 0
                # The operator's hold outlasts the restart.
                relay.api.unblock()
                done = running.result(60)
            assert done.error is None


def test_a_killed_terminal_hands_on_what_it_had(start_pair: StartPair) -> None:
    pair = start_pair(NEAR, Options(terminal=_DISK))
    terminal = pair.terminal
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(
            upload,
            pair.client,
            addresses.ORIGIN,
            4 * _SIZE,
            route=pair.socks5(),
            seed=_SEED,
            deadline_s=20,
        )
        time.sleep(0.5)
        pair.testbed.satlink.block(pair.testbed.terminal.name)
        terminal.process.wait_until(lambda: _custody(terminal)["disk"]["live_bytes"] > 0)
        time.sleep(0.5)
        terminal.process.kill()
        # What the benchmark of kills goes by.
        folder = pair.testbed.dir / f"state-{terminal_node(0)}" / "custody"
        assert content_on_disk(folder, [_SEED])[_SEED] > 0
        assert running.result(30).error is not None
    terminal.start()
    pair.testbed.satlink.unblock(pair.testbed.terminal.name)
    terminal.process.wait_until(lambda: terminal.carries(1))
    assert _custody(terminal)["disk"]["restored_bundles"] > 0
    terminal.process.wait_until(lambda: _custody(terminal)["bundles"] == 0)
    done = download(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5())
    assert done.error is None


def test_a_full_disk_slows_uploads_and_loses_nothing(
    start_pair: StartPair, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", disk], check=True)
    request.addfinalizer(lambda: subprocess.run(["umount", "--lazy", disk], check=True))
    small = {"dir": str(disk), "segment_bytes": 1 << 20, "memory_bytes": 4 << 20}
    pair = start_pair(NEAR, Options(terminal={"custody": {"durability": "disk", **small}}))
    terminal = pair.terminal

    def stalled() -> str | None:
        why: str | None = _custody(terminal)["disk"].get("stalled")
        return why

    assert download(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()).error is None
    with ThreadPoolExecutor(4) as pool:
        running = [
            pool.submit(upload, pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5())
            for _ in range(4)
        ]
        pair.testbed.satlink.block(pair.testbed.terminal.name)
        terminal.process.wait_until(lambda: stalled() is not None)
        assert "space" in (stalled() or "")
        # No client is cut off meanwhile.
        time.sleep(1)
        assert not any(upload.done() for upload in running)
        pair.testbed.satlink.unblock(pair.testbed.terminal.name)
        assert [one.result(60).error for one in running] == [None] * 4
    terminal.process.wait_until(lambda: stalled() is None, timeout_s=10)
