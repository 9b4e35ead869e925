"""A node that is killed and started again inside a blockage: when data flows after it."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, quantile, record
from tests.benchmarks.subjects.underpass import TOLD_PAIR
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download
from tests.testbed.node import Node, Options, Pair
from tests.testbed.profile import PROFILE_V
from tests.testbed.programs import missing
from tests.testbed.topology import Testbed

_DISK = {"custody": {"durability": "disk"}}
_RUNS = 20
_SIZE = 16_000_000
# A download starts; then the link is blocked, the node is killed, and the link comes back.
_LEAD_S = 1.5
_KILLED_AFTER_S = 1.0
_BLOCKED_S = 6.0
# The terminal dials every half second; each run's link returns at another moment between dials.
_SHIFT_S = 0.5
_PATIENCE_S = 60.0
_QUIET_S = 1.0
_AGAIN_S = 0.05


def run(settings: Settings) -> Result:
    """Kill terminal and hub by turns, and time the first byte of a new request.

    A killed node's connections are lost, so a client sends a new request inside the blockage, as
    soon as the terminal accepts connections again, and waits; after a reset, it asks again at
    once.
    """
    result = Result("restart-blocked")
    result.told["underpass"] = TOLD_PAIR
    if result.left_out(missing("underpass")):
        return result
    found: list[_Behind] = []
    runs = settings.runs or _RUNS
    with Testbed(PROFILE_V, seed=settings.seed) as testbed:
        pair = Pair(testbed, Options(terminal=_DISK, hub=_DISK))
        for number in range(runs):
            testbed.satlink.seed(settings.seed + number)
            node = (pair.terminal, pair.hub)[number % 2]
            found.append(_one(pair, node, _SHIFT_S * number / runs))
            say(f"restart in a blockage, {node.name}: {found[-1]}")
            time.sleep(_QUIET_S)
            pair.wait_until_ready()
    values = [one.first_byte_s for one in found]
    result.records.append(record("restart-blocked.v", "underpass", values))
    result.notes["resets, each run; the terminal's first"] = [one.resets for one in found]
    p95 = quantile(values, 0.95)
    result.records.append(record("restart-blocked-p95.v", "underpass", [p95]))
    result.notes["measured"] = (
        f"terminal and hub killed by turns {_KILLED_AFTER_S:.0f} s into a blockage of "
        f"{_BLOCKED_S:.0f} s and started again at once, with a download under way; a new request, "
        "made when the terminal takes connections again, gets its first byte: from the link's "
        "return, which by itself needs one round trip"
    )
    return result


@dataclass(frozen=True)
class _Behind:
    """When the first byte came after the link's return, and how often a request was reset."""

    first_byte_s: float
    resets: int

    def __str__(self) -> str:
        return f"first byte after {self.first_byte_s:.2f} s, {self.resets} requests reset"


def _one(pair: Pair[Testbed], node: Node, shift_s: float) -> _Behind:
    testbed, route = pair.testbed, pair.socks5()

    def fetch(deadline_s: float) -> Transfer:
        return download(pair.client, addresses.ORIGIN, _SIZE, route=route, deadline_s=deadline_s)

    with ThreadPoolExecutor(1) as pool:
        before = pool.submit(fetch, _LEAD_S + _KILLED_AFTER_S)
        time.sleep(_LEAD_S)
        back = time.monotonic() + _BLOCKED_S + shift_s
        testbed.satlink.block(testbed.terminal.name, for_s=_BLOCKED_S + shift_s)
        time.sleep(_KILLED_AFTER_S)
        before.result()
        node.process.kill()
        node.start()
        node.process.wait_until(lambda: node.carries(0))
        if (before_s := back - time.monotonic()) < 1.0:
            raise RuntimeError(f"{node.name} started only {before_s:.1f} s before the return")
        asked, transfer, resets = time.monotonic(), fetch(_PATIENCE_S), 0
        while transfer.error and time.monotonic() < back + _PATIENCE_S:
            resets += 1
            time.sleep(_AGAIN_S)
            asked, transfer = time.monotonic(), fetch(_PATIENCE_S)
    if not transfer.complete or transfer.first_byte_s is None:
        raise RuntimeError(f"behind the restart: {transfer.error}")
    first = asked + transfer.first_byte_s
    if first < back:
        raise RuntimeError("a byte came through a blocked link")
    return _Behind(first - back, resets)
