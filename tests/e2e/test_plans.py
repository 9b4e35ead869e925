"""Plans, followed by the link schedulers of a hub and its terminals."""

from __future__ import annotations

import functools
import http.client
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download, upload
from tests.testbed.node import HUB_NODE, Node, Options, Pair, terminal_node
from tests.testbed.profile import Link, symmetric
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

# Wider than any plan, so that only the plan limits the nodes' rates.
_WIDE = symmetric("wide", Link(rate_bps=8_000_000, delay_ms=50.0, queue_ms=500.0))
_CAPACITY_BPS = 4_000_000
_GUARANTEED_BPS = 1_000_000
_MBIT = 1_000_000
# More than any of the tests can carry.
_ENDLESS = 200_000_000


@dataclass(frozen=True)
class Part:
    """One terminal's rates from one time to the next, in s from the plan's start."""

    until_s: float
    rate_bps: int
    state: str


def _document(
    link: str, version: int, start_s: float, lines: Mapping[int, Sequence[Part]]
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
    """Keep a transfer of each terminal going until a time; restart it if it breaks."""

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


def _assert_rates(
    pair: Pair[Testbed],
    start_s: float,
    between_s: tuple[float, float],
    *,
    forward: tuple[float, float],
    back: tuple[float, float],
) -> None:
    """Wait, and compare each terminal's rates in a part of the plan; Mbit/s of IP."""
    counted: list[tuple[float, list[int], list[int]]] = []
    for at_s in between_s:
        time.sleep(max(0.0, start_s + at_s - time.time()))
        counts = _sent_bytes(pair, "forward"), _sent_bytes(pair, "return")
        counted.append((time.monotonic(), *counts))
    (begun, *before), (ended, *after) = counted
    measured = [
        [(b - a) * 8 / (ended - begun) / _MBIT for a, b in zip(x, y, strict=True)]
        for x, y in zip(before, after, strict=True)
    ]
    for rates, planned in zip(measured, (forward, back), strict=True):
        for rate, of_plan in zip(rates, planned, strict=True):
            # A busy machine sends less than it may, but never more. The rates of these plans differ
            # enough to be told apart.
            least = 0.76 * of_plan
            assert least <= rate <= 1.12 * of_plan + 0.05, f"between {between_s}: {measured}"


def _followed(node: Node, link: str, role: str = "follow") -> dict[str, Any]:
    """Return the plan that a node has of a link, {} without one."""
    plans = node.api.get("/v1/plans")["plans"]
    return next((p for p in plans if (p["link"], p["role"]) == (link, role)), {})


def _has_plan(node: Node) -> bool:
    return _followed(node, "return") != {}


def _told(pair: Pair[Testbed], terminal: Node) -> int | None:
    """Return the plan in force according to the newest status that the hub has of a terminal."""
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


def test_rates_follow_the_plans_through_a_blockage_a_restart_and_their_end(
    start_pair: StartPair,
) -> None:
    """13 s of plans: the rates of each of their parts are measured on the hop."""
    options = Options(terminal={"reports": {"to": HUB_NODE, "interval_ms": 200}})
    pair = start_pair(_WIDE, options, terminals=2)
    first = pair.terminal
    start_s = time.time() + 2.0
    lines = {
        terminal_node(0): [
            Part(3.0, 3 * _MBIT, "borrowing"),
            Part(8.0, 0, "blocked"),
            Part(11.0, 2 * _MBIT, "fair"),
        ],
        terminal_node(1): [
            Part(3.0, 1 * _MBIT, "lending"),
            Part(8.0, 3 * _MBIT, "repaid"),
            Part(11.0, 2 * _MBIT, "fair"),
        ],
    }
    # Bytes sent just before the entry still arrive.
    entry = start_s + 3.1 - time.time() + time.monotonic()
    pair.testbed.satlink.schedule(pair.testbed.terminals[0].name, [(entry, 4.9)])
    until_s = start_s + 13.2
    with _always(pair, upload, until_s), _always(pair, download, until_s):
        for link in ("return", "forward"):
            pair.hub.api.request("PUT", "/v1/plans", _document(link, 42, start_s, lines))
        assert _followed(pair.hub, "forward")["state"] == "waiting"
        for node in pair.terminals:
            node.process.wait_until(functools.partial(_has_plan, node))
            assert _followed(node, "return")["state"] == "waiting"
        _assert_rates(pair, start_s, (1.0, 2.9), forward=(3.0, 1.0), back=(3.0, 1.0))
        assert [_told(pair, node) for node in pair.terminals] == [42, 42]
        # Restarted in its blockage, the terminal knows from its disk when that ends.
        time.sleep(max(0.0, start_s + 4.0 - time.time()))
        first.process.kill()
        first.start()
        first.process.wait_until(lambda: _blocked_by(first) == "plan")
        assert _followed(first, "return")["version"] == 42
        # On the forward link the second also has the rate that the first cannot use.
        _assert_rates(pair, start_s, (5.5, 7.8), forward=(0.0, 4.0), back=(0.0, 3.0))
        _assert_rates(pair, start_s, (9.0, 10.9), forward=(2.0, 2.0), back=(2.0, 2.0))
        # After the plans' end, the last known capacity is shared by weight.
        _assert_rates(pair, start_s, (11.5, 13.0), forward=(2.0, 2.0), back=(1.0, 1.0))
    followed = [_followed(node, "return") for node in pair.terminals]
    followed.append(_followed(pair.hub, "forward"))
    assert {plan["state"] for plan in followed} == {"stale"}
