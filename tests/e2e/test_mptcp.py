"""Sessions over MPTCP: subflows on two hops, a hop that is cut, and sides without MPTCP."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import SATELLITE, TERRESTRIAL, StartPair, amid, whole
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download, upload
from tests.testbed.namespace import Namespace
from tests.testbed.node import TCPCL_PORT, Node, Options, Pair, terminal_node
from tests.testbed.programs import built
from tests.testbed.topology import Testbed

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(
        not Path("/proc/sys/net/mptcp/enabled").exists(), reason="the kernel has no MPTCP"
    ),
]

_RATES = {"send_rate_bps": 30_000_000, "receive_rate_bps": 30_000_000, "rtt_ms": 200}
_SIZE = 10_000_000
# Each class has two sessions, and each of these a subflow by each hop.
_SESSIONS = 8


def _options(*, hub_has_it: bool = True, terminal_has_it: bool = True, **others: Any) -> Options:
    """Return the options of one path over both hops: its first subflow is terrestrial.

    The hub listens everywhere, and tells terminals its address on the satellite.
    """
    listener: dict[str, object] = {"name": "terrestrial", "listen": f"0.0.0.0:{TCPCL_PORT}"}
    if hub_has_it:
        told = [{"address": addresses.HUB_SAT, "interface": "sat"}]
        listener |= {"mptcp": True, "mptcp_endpoints": told}
    path = {
        "name": "terrestrial",
        "neighbour": 1,
        "remote": f"{addresses.HUB_TERRESTRIAL}:{TCPCL_PORT}",
        "mptcp": terminal_has_it,
        **_RATES,
    }
    networks = [addresses.client_network(0), addresses.client_network6(0)]
    hub = {
        "listener": [listener],
        "terminal": [{"node": terminal_node(0), "networks": networks, **_RATES}],
    }
    return Options(paths=("terrestrial",), hub=hub, terminal={"path": [path]}, **others)


def _start(start_pair: StartPair, options: Options | None = None) -> Pair[Testbed]:
    return start_pair(SATELLITE, options or _options(), terrestrial=TERRESTRIAL)


def _mptcp(node: Node) -> dict[str, int] | None:
    """Return a node's status of its path's sessions."""
    (path,) = node.status()["paths"]
    found: dict[str, int] | None = path["mptcp"]
    return found


def _wait_for_subflows(pair: Pair[Testbed]) -> None:
    """Wait until all sessions have a subflow by each hop, at both ends."""

    def complete(node: Node) -> bool:
        found = _mptcp(node)
        return found is not None and found["subflows"] == 2 * _SESSIONS

    # A node looks at idle sessions when bytes move on them.
    for node in (pair.hub, pair.terminal):
        node.process.wait_until(partial(complete, node))


def _moved_bytes(namespace: Namespace, interface: str) -> int:
    (link,) = json.loads(namespace.ip("-json", "-stats", "link", "show", interface))
    counts = link["stats64"]
    return int(counts["rx"]["bytes"] + counts["tx"]["bytes"])


def _endpoints(namespace: Namespace) -> list[str]:
    """Return the addresses of the endpoints that a namespace has."""
    lines = namespace.ip("mptcp", "endpoint", "show").splitlines()
    return [line.split()[0] for line in lines if line]


@pytest.mark.parametrize("transfer", [download, upload])
def test_both_hops_carry_subflows_of_a_transfer(
    start_pair: StartPair, transfer: Callable[..., Transfer]
) -> None:
    pair = _start(start_pair)
    _wait_for_subflows(pair)
    hub = pair.testbed.hub
    before = [_moved_bytes(hub, device) for device in ("sat", "terr")]
    whole(transfer(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()))
    after = [_moved_bytes(hub, device) for device in ("sat", "terr")]
    moved = [late - early for early, late in zip(before, after, strict=True)]
    assert min(moved) > _SIZE / 20, moved
    found = _mptcp(pair.terminal)
    assert found == {"sessions": 8, "subflows": 16, "fallback_sessions": 0}
    metrics = pair.terminal.api.metrics()
    labels = 'path="terrestrial",neighbour="1"'
    assert metrics[f"underpass_path_subflows{{{labels}}}"] == 16
    assert metrics[f'underpass_path_mptcp_sessions{{{labels},transport="mptcp"}}'] == 8
    assert pair.hub.status()["mptcp"] == {
        "subflow_endpoints": [],
        "signal_endpoints": [addresses.HUB_SAT],
        "problems": [],
    }


@pytest.mark.parametrize("cut", ["terrestrial", "satellite"])
@pytest.mark.parametrize("transfer", [download, upload])
def test_a_transfer_goes_on_when_the_hop_of_one_subflow_dies(
    start_pair: StartPair, transfer: Callable[..., Transfer], cut: str
) -> None:
    pair = _start(start_pair)
    _wait_for_subflows(pair)
    hop = pair.testbed.terrestrial if cut == "terrestrial" else pair.testbed.satlink
    assert hop is not None
    with amid(pair, transfer, _SIZE) as running:
        hop.block(pair.testbed.terminal.name)
        done = running.result(90)
    whole(done)


@pytest.mark.parametrize("without", ["hub", "terminal"])
def test_where_one_side_has_no_mptcp_sessions_are_of_tcp_and_it_is_shown(
    start_pair: StartPair, without: str
) -> None:
    options = _options(hub_has_it=without != "hub", terminal_has_it=without != "terminal")
    pair = _start(start_pair, options)
    for transfer in (download, upload):
        assert transfer(pair.client, addresses.ORIGIN, 2_000_000, route=pair.socks5()).complete
    has_it, has_none = pair.terminal, pair.hub
    if without == "terminal":
        has_it, has_none = has_none, has_it
    fallen_back = {"sessions": 0, "subflows": 0, "fallback_sessions": _SESSIONS}
    has_it.process.wait_until(lambda: _mptcp(has_it) == fallen_back)
    assert _mptcp(has_none) is None
    assert "no MPTCP" in has_it.namespace.run(*_status(has_it))


def _status(node: Node) -> list[str]:
    return [built("underpass"), "status", "--socket", str(node.api.path)]


@pytest.mark.parametrize("end", ["stopped", "killed"])
def test_endpoints_and_limits_of_a_node_go_with_it(start_pair: StartPair, end: str) -> None:
    pair = _start(start_pair)
    hub, terminal = pair.testbed.hub, pair.testbed.terminal.node
    assert _endpoints(hub) == [addresses.HUB_SAT]
    limits = terminal.ip("mptcp", "limits", "show")
    assert "add_addr_accepted 4" in limits
    for node in (pair.terminal, pair.hub):
        if end == "stopped":
            node.process.stop()
        else:
            node.process.kill()
    deadline = time.monotonic() + 5
    while (_endpoints(hub) or terminal.ip("mptcp", "limits", "show") == limits) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert _endpoints(hub) == []
    assert "add_addr_accepted 0" in terminal.ip("mptcp", "limits", "show")


def test_the_endpoints_of_the_system_are_used_where_a_node_may_set_none(
    start_pair: StartPair,
) -> None:
    pair = _start(start_pair, _options(unprivileged=True))
    for node in (pair.hub, pair.terminal):
        (problem, *_) = node.status()["mptcp"]["problems"]
        assert "not permitted" in problem
    assert _endpoints(pair.testbed.hub) == []
    alone = {"sessions": 8, "subflows": 8, "fallback_sessions": 0}
    pair.terminal.process.wait_until(lambda: _mptcp(pair.terminal) == alone)
    assert download(pair.client, addresses.ORIGIN, 300_000, route=pair.socks5()).complete


def test_an_upgrade_in_place_keeps_the_mptcp_listener_and_its_endpoints(
    start_pair: StartPair,
) -> None:
    pair = _start(start_pair)
    with ThreadPoolExecutor(1) as pool:
        query = "&rate_bps=8000000"
        running = pool.submit(
            download, pair.client, addresses.ORIGIN, 8_000_000, query=query, route=pair.socks5()
        )
        for node in (pair.hub, pair.terminal):
            time.sleep(1.0)
            node.upgrade()
            node.process.wait_until(partial(node.carries, 1))
        done = running.result(60)
    whole(done)
    assert _endpoints(pair.testbed.hub) == [addresses.HUB_SAT]
    for node in (pair.hub, pair.terminal):
        assert node.status()["mptcp"]["problems"] == []
    pair.terminal.process.wait_until(
        lambda: (_mptcp(pair.terminal) or {}).get("sessions") == _SESSIONS
    )
