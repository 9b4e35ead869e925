"""Files over convergence layers that cannot send from the disk.

UDP limits the size of a bundle: without custody, files go in fragments, and long ones are
reassembled on the disk. LTP has each bundle in memory, or in a file until it is whole.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.e2e.conftest import NEAR
from tests.testbed import bare_paths
from tests.testbed.applications import applications, bp
from tests.testbed.node import HUB_NODE, Options, Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

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
        served = partial(applications, testbed.dir, max_payload_bytes=most)
        options = Options(
            tls=False,
            terminal={**bare_paths.terminal(layer, NEAR), **served(testbed.terminal.name)},
            hub={**bare_paths.hub(layer, NEAR), **served("hub")},
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
