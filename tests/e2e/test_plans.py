"""Plans, followed by the link schedulers of a hub and its terminals."""

from __future__ import annotations

import http.client
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, upload
from tests.testbed.node import HUB_NODE, Node, Options, Pair, terminal_node
from tests.testbed.profile import Link, symmetric
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

# Wider than any plan: what holds the nodes to their rates is the plan alone.
_WIDE = symmetric("wide", Link(rate_bps=20_000_000, delay_ms=50.0, queue_ms=500.0))
_CAPACITY_BPS = 4_000_000
_GUARANTEED_BPS = 1_000_000
_MBIT = 1_000_000
# More than can pass in any of the tests.
_ENDLESS = 200_000_000


@dataclass(frozen=True)
class Part:
    """What one terminal has, from one time to the next, in s from the plan's start."""

    until_s: float
    rate_bps: int
    state: str


def _document(
    link: str, version: int, start_s: float, lines: dict[int, Sequence[Part]]
) -> dict[str, object]:
    """Return a plan; `start_s` in s since the Unix epoch."""
    start_ms = round(start_s * 1000)
    ends = {part.until_s for parts in lines.values() for part in parts}
    return {
        "version": 1,
        "beam": "east",
        "link": link,
        "plan": version,
        "issued_ms": start_ms,
        "start_ms": start_ms,
        "end_ms": start_ms + round(max(ends) * 1000),
        "capacity": [{"from_ms": start_ms, "rate_bps": _CAPACITY_BPS}],
        "lines": [
            {
                "terminals": [terminal],
                "guaranteed_bps": _GUARANTEED_BPS,
                "segments": [
                    {
                        "start_ms": start_ms + round(begin * 1000),
                        "end_ms": start_ms + round(part.until_s * 1000),
                        "rate_bps": part.rate_bps,
                        "state": part.state,
                    }
                    for begin, part in zip(
                        (0.0, *(part.until_s for part in parts)), parts, strict=False
                    )
                ],
            }
            for terminal, parts in lines.items()
        ],
    }


@contextmanager
def _always(
    pair: Pair[Testbed], transfer: Callable[..., Transfer], until_s: float
) -> Iterator[None]:
    """Keep a transfer of each terminal going until a time, begun anew if it breaks."""

    def again(index: int) -> None:
        client, route = pair.testbed.terminals[index].client, pair.socks5(index)
        while (left_s := until_s - time.time()) > 0:
            transfer(client, addresses.ORIGIN, _ENDLESS, route=route, deadline_s=left_s)
            time.sleep(0.05)

    with ThreadPoolExecutor(len(pair.terminals)) as pool:
        running = [pool.submit(again, index) for index in range(len(pair.terminals))]
        yield
        for transfers in running:
            transfers.result(30)


def _sent_bytes(pair: Pair[Testbed], direction: str) -> list[int]:
    """Return the IP bytes that each terminal's link has carried."""
    links = pair.testbed.satlink.statistics()["terminals"]
    return [links[terminal.name][direction]["bytes_sent"] for terminal in pair.testbed.terminals]


def _rates(pair: Pair[Testbed], direction: str, from_s: float, to_s: float) -> list[float]:
    """Wait, and return each terminal's rate between two times since the Unix epoch, Mbit/s."""
    time.sleep(max(0.0, from_s - time.time()))
    begun, before = time.monotonic(), _sent_bytes(pair, direction)
    time.sleep(max(0.0, to_s - time.time()))
    after, passed = _sent_bytes(pair, direction), time.monotonic() - begun
    return [(b - a) * 8 / passed / _MBIT for a, b in zip(before, after, strict=True)]


def _followed(node: Node, link: str, role: str = "follow") -> dict[str, Any]:
    """Return the plan that a node has of a link, {} without one."""
    plans = node.api.get("/v1/plans")["plans"]
    return next((p for p in plans if (p["link"], p["role"]) == (link, role)), {})


def _told(pair: Pair[Testbed], terminal: Node) -> int | None:
    """Return the plan in force by the newest status of a terminal that the hub has."""
    number = terminal_node(pair.terminals.index(terminal))
    reports = pair.hub.api.get("/v1/reports")["terminals"]
    links = [link for r in reports if r["node"] == number for link in r["status"]["links"]]
    return next((link.get("plan_version") for link in links), None)


def _blocked_by(node: Node) -> str | None:
    try:
        (path,) = node.api.get("/v1/paths")
    except (OSError, ValueError, http.client.HTTPException):
        return None
    source: str | None = path["link"]["blocked_by"]
    return source


def test_return_rates_follow_the_plan_through_a_blockage_a_restart_and_its_end(
    start_pair: StartPair,
) -> None:
    options = Options(terminal={"reports": {"to": HUB_NODE, "interval_ms": 200}})
    pair = start_pair(_WIDE, options, terminals=2)
    first, second = pair.terminals
    start_s = time.time() + 2.0
    lines = {
        terminal_node(0): [
            Part(3.0, 3 * _MBIT, "borrowing"),
            Part(9.0, 0, "blocked"),
            Part(12.0, 2 * _MBIT, "fair"),
        ],
        terminal_node(1): [
            Part(3.0, 1 * _MBIT, "lending"),
            Part(9.0, 3 * _MBIT, "repaid"),
            Part(12.0, 2 * _MBIT, "fair"),
        ],
    }
    monotonic = start_s - time.time() + time.monotonic()
    blocked = pair.testbed.terminals[0].name
    # What was sent just before the entry still passes.
    pair.testbed.satlink.schedule(blocked, [(monotonic + 3.1, 5.9)])
    with _always(pair, upload, start_s + 14.6):
        pair.hub.api.request("PUT", "/v1/plans", _document("return", 42, start_s, lines))
        for node in pair.terminals:
            node.process.wait_until(lambda node=node: _followed(node, "return") != {})
            assert _followed(node, "return")["state"] == "waiting"
        assert _rates(pair, "return", start_s + 1.0, start_s + 2.9) == pytest.approx(
            [3.0, 1.0], rel=0.1
        )
        assert [_told(pair, node) for node in pair.terminals] == [42, 42]
        # Restarted in its blockage, the terminal knows from its disk when that ends.
        time.sleep(max(0.0, start_s + 4.0 - time.time()))
        first.process.kill()
        first.start()
        first.process.wait_until(lambda: _blocked_by(first) == "plan")
        assert _followed(first, "return")["version"] == 42
        rates = _rates(pair, "return", start_s + 6.0, start_s + 8.8)
        assert rates == pytest.approx([0.0, 3.0], rel=0.1, abs=0.05)
        rates = _rates(pair, "return", start_s + 10.0, start_s + 11.9)
        assert rates == pytest.approx([2.0, 2.0], rel=0.1)
        rates = _rates(pair, "return", start_s + 12.5, start_s + 14.5)
        assert rates == pytest.approx([1.0, 1.0], rel=0.1)
    assert {_followed(node, "return")["state"] for node in (first, second)} == {"stale"}
