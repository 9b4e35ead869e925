"""Light terminals in one process are terminals to the hub: connected, alive, and served."""

from __future__ import annotations

import pytest

from tests.testbed import addresses
from tests.testbed.loopback import Loopback
from tests.testbed.swarm import SwarmHub, outcome

pytestmark = pytest.mark.swarm

_TERMINALS = 12
_BYTES = 500_000


def test_light_terminals_connect_and_download_every_byte() -> None:
    with Loopback() as bed:
        hub = SwarmHub(bed, _TERMINALS)
        swarm = hub.terminals(
            _TERMINALS,
            "--settle-s",
            "2",
            "--measure-s",
            "60",
            "--origin",
            f"{addresses.ORIGIN}:80",
            "--bytes",
            str(_BYTES),
        )
        told = outcome(swarm, timeout_s=100)
        # Their beacons are heard; otherwise their silence would not show the state of their links.
        assert hub.node.api.metrics()['underpass_beacons_total{socket="beam",outcome="heard"}'] > 0
    assert told["connected"] == told["alive"] == _TERMINALS
    assert told["complete"] == _TERMINALS
    assert told["broken"] == 0
    assert told["blockages"] == 0
    assert told["delivered_bytes"] >= _TERMINALS * _BYTES


def test_streams_keep_to_an_ideal_queue_while_some_are_blocked() -> None:
    terminals, blocked, beam_bps = 20, 3, 5_000_000
    with Loopback() as bed:
        hub = SwarmHub(bed, terminals, hub={"beam": {"rate_bps": beam_bps}})
        swarm = hub.streams(
            terminals,
            *("--delay-ms", "300", "--settle-s", "2"),
            *("--offered-bps", "4e6", "--blocked", str(blocked), "--blockage-s", "3"),
            *("--warm-up-s", "4", "--measure-s", "8"),
            beam_bps=beam_bps,
        )
        told = outcome(swarm, timeout_s=100)
        metrics = hub.node.api.metrics()
    assert told["connected"] == terminals
    assert told["streams"] == 5 * terminals
    assert told["broken"] == told["refused"] == 0
    # Changes of the last seconds may not have been noticed yet.
    seen = sum(v for k, v in metrics.items() if k.startswith("underpass_path_blockages_total"))
    assert told["blockages"] >= 4 * blocked
    assert min(seen, told["blockages_seen"]) >= told["blockages"] - 2 * blocked
    # The bounds allow for a busy machine.
    assert told["delivered"] > 0.85
    assert told["jain"] > 0.95
    assert told["clear"]["chunks"] > told["recovery"]["chunks"] > 0
    assert told["clear"]["median_ms"] < 50
    assert told["recovery"]["median_ms"] < 500
