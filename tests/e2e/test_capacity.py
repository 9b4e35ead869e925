"""Links whose capacity is configured wrongly, or not at all."""

from __future__ import annotations

import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import download
from tests.testbed.node import HUB_NODE, Node, Options, Pair, Told, terminal_node
from tests.testbed.profile import Link, symmetric
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

RATE_BPS = 8_000_000
NARROW = symmetric("narrow", Link(rate_bps=RATE_BPS, delay_ms=60.0, queue_ms=800.0))


def capacity_bps(node: Node) -> float | None:
    """The capacity that a node has found for its only hop."""
    [path] = node.status()["paths"]
    found: float | None = path["measured"]["capacity_bps"]
    return found


def is_right(found_bps: float | None) -> bool:
    """Whether it is near enough for a busy machine; the configured rate is far off."""
    return found_bps is not None and 0.5 * RATE_BPS < found_bps < 1.3 * RATE_BPS


def test_what_a_hop_carries_is_found_and_known_to_the_next_run(start_pair: StartPair) -> None:
    pair = start_pair(NARROW, Options(told="nothing"))
    assert capacity_bps(pair.hub) is None
    done = download(pair.client, addresses.ORIGIN, 6_000_000, route=pair.http_forward())
    assert done.complete
    assert is_right(capacity_bps(pair.hub))
    pair.stop()
    kept = json.loads((pair.testbed.dir / f"state-{HUB_NODE}" / "links.json").read_text())
    kept = kept[f"terminal-{terminal_node(0)}"]
    assert is_right(kept["capacity_bps"])
    assert 120 <= kept["base_rtt_ms"] < 400
    pair.start_again()
    # Too short to find the capacity by itself.
    assert download(pair.client, addresses.ORIGIN, 50_000, route=pair.http_forward()).complete
    pair.hub.process.wait_until(lambda: is_right(capacity_bps(pair.hub)))


@pytest.mark.parametrize("told", ["hints", "rates"])
def test_a_hop_that_carries_a_fifth_of_what_was_told_has_no_standing_queue(
    start_pair: StartPair, told: Told
) -> None:
    wide = symmetric("wide", Link(rate_bps=5 * RATE_BPS, delay_ms=60.0))
    pair = start_pair(wide, Options(told=told))
    queue = {"limit_ms": 800.0}
    pair.testbed.satlink.set_link(direction="forward", rate_bps=RATE_BPS, queue=queue)
    done = download(pair.client, addresses.ORIGIN, 6_000_000, route=pair.http_forward())
    assert done.complete
    assert is_right(capacity_bps(pair.hub))
    [path] = pair.hub.status()["paths"]
    assert path["measured"]["queue_ms"] < 400


def gets(pair: Pair[Testbed], index: int) -> bool:
    """Download an object at a terminal; tell whether it is complete."""
    client = pair.testbed.terminals[index].client
    route = pair.http_forward(index)
    return download(client, addresses.ORIGIN, 5_000_000, route=route).complete


def test_two_terminals_of_a_beam_without_a_rate_leave_no_standing_queue() -> None:
    with Testbed(NARROW, terminals=2, shared=True) as testbed:
        pair = Pair(testbed, Options(told="nothing"))
        queues_ms: list[float] = []
        with ThreadPoolExecutor(2) as pool:
            transfers = [pool.submit(gets, pair, index) for index in range(2)]
            while not all(transfer.done() for transfer in transfers):
                paths = pair.hub.status()["paths"]
                queues_ms += [path["measured"]["queue_ms"] for path in paths]
                time.sleep(0.1)
            assert all(transfer.result() for transfer in transfers)
        assert statistics.median(queues_ms) < 400


def test_a_beam_that_carries_a_fifth_of_what_was_told_is_not_sent_more() -> None:
    beam = {"beam": {"rate_bps": 5 * RATE_BPS}}
    with Testbed(NARROW, terminals=2, shared=True) as testbed:
        pair = Pair(testbed, Options(told="hints", hub=beam))
        with ThreadPoolExecutor(2) as pool:
            assert all(pool.map(lambda index: gets(pair, index), range(2)))
        told = pair.hub.api.get("/v1/beam")
        assert told["allowed_bps"] == 5 * RATE_BPS
        assert is_right(told["rate_bps"])
