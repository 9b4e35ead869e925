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
        # Their beacons are heard, or their silence would say nothing of their links.
        assert hub.node.api.metrics()['underpass_beacons_total{socket="beam",outcome="heard"}'] > 0
    assert told["connected"] == told["alive"] == _TERMINALS
    assert told["complete"] == _TERMINALS
    assert told["broken"] == 0
    assert told["blockages"] == 0
    assert told["delivered_bytes"] >= _TERMINALS * _BYTES
