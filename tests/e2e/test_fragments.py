"""Files over convergence layers that cannot send from the disk.

UDP limits the size of a bundle: without custody, files go in fragments, and long ones are
reassembled on the disk. LTP has each bundle in memory, or in a file until it is whole.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import NEAR
from tests.testbed import addresses
from tests.testbed.applications import applications, bp
from tests.testbed.node import HUB_NODE, Options, Pair, terminal_node
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_PORT = 4_700
_RATE = NEAR.forward.rate_bps
_MOST = 16 << 20


@pytest.fixture(
    params=[("udp", 1 << 20), ("udp", _MOST), ("ltp", 1 << 20)],
    ids=["udp, on disk", "udp, in memory", "ltp, on disk"],
)
def pair(request: pytest.FixtureRequest) -> Iterator[Pair[Testbed]]:
    """Two nodes over udp, whose bundles are 65,507 bytes long at most, or over ltp.

    The other parameter is the greatest payload that applications have in memory.
    """
    layer, most = request.param
    with Testbed(NEAR) as testbed:
        terminal = addresses.terminal_sat(0)

        def node(name: str, neighbour: int, remote: str, listen: str) -> dict[str, object]:
            path = {
                "name": "satellite",
                "neighbour": neighbour,
                "remote": f"{remote}:{_PORT}",
                "listen": f"{listen}:{_PORT}",
                "convergence_layer": layer,
                "send_rate_bps": _RATE,
                "receive_rate_bps": _RATE,
                "rtt_ms": round(NEAR.rtt_ms),
            }
            return {"path": [path], **applications(testbed.dir, name, max_payload_bytes=most)}

        hub = node("hub", terminal_node(0), terminal, addresses.HUB_SAT)
        options = Options(
            tls=False,
            terminal=node(testbed.terminal.name, HUB_NODE, addresses.HUB_SAT, terminal),
            hub={**hub, "listener": [], "terminal": []},
        )
        yield Pair(testbed, options)


@pytest.mark.parametrize("size", [60_000, 200_000, 5_000_000, 40_000_000])
def test_a_file_is_whole_at_the_other_end(pair: Pair[Testbed], tmp_path: Path, size: int) -> None:
    sent = tmp_path / "file"
    sent.write_bytes(random.Random(size).randbytes(size))
    received = tmp_path / "received"
    received.mkdir()
    bp(pair.terminal, "send", "--no-custody", f"ipn:{HUB_NODE}.9", str(sent))
    args = ("--service", "9", "--count", "1", "--folder", str(received))
    bp(pair.hub, "receive", *args)
    (file,) = received.iterdir()
    assert file.read_bytes() == sent.read_bytes()
