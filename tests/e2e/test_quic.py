"""A hop over QUIC: the way of the data, blockages, and the limits of QUIC."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import pytest

from tests.e2e.conftest import StartPair, amid, whole
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download, upload
from tests.testbed.node import Node, Options
from tests.testbed.profile import Link, symmetric

pytestmark = pytest.mark.node

_QUIC = Options(convergence_layer="quic")
_SIZE = 8_000_000
_BLOCKED_S = 3.0
_LOSSY = symmetric("lossy", Link(rate_bps=50_000_000, delay_ms=50.0, queue_ms=500.0, loss=0.01))


def test_transfers_go_both_ways_and_status_names_the_layer(start_pair: StartPair) -> None:
    pair = start_pair(options=_QUIC)
    for transfer in (download, upload):
        whole(transfer(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()))
    for node in (pair.hub, pair.terminal):
        (path,) = node.status()["paths"]
        sessions = path["sessions"]
        assert {session["convergence_layer"] for session in sessions} == {"quic"}
        assert {session["congestion_control"] for session in sessions} == {"hybla_dama"}
        assert all(session["tls"] for session in sessions)


@pytest.mark.parametrize("transfer", [download, upload])
def test_a_blockage_amid_a_transfer_costs_its_time_and_no_byte(
    start_pair: StartPair, transfer: Callable[..., Transfer]
) -> None:
    pair = start_pair(options=_QUIC)
    with amid(pair, transfer, _SIZE, after_s=0.6) as running:
        pair.testbed.satlink.block(pair.testbed.terminal.name, for_s=_BLOCKED_S)
        done = running.result(60)
    # The remaining bytes take about a second at the link's rate on an idle machine.
    assert _BLOCKED_S < whole(done) < _BLOCKED_S + 30.0


def test_upgrades_of_both_ends_amid_a_transfer_cost_no_byte(start_pair: StartPair) -> None:
    """The hub accepts its sessions, and the terminal dials them."""
    pair = start_pair(options=_QUIC)
    for node in (pair.hub, pair.terminal):
        before = node.process.pid
        with amid(pair, download, _SIZE, after_s=0.6) as running:
            node.upgrade()
            done = running.result(60)
        assert node.process.pid != before
        whole(done)
        node.process.wait_until(partial(node.carries, 1))


def test_sessions_come_again_when_the_hub_was_killed(start_pair: StartPair) -> None:
    pair = start_pair(options=_QUIC)
    pair.hub.process.kill()
    pair.hub.start()
    # Until the terminal hears that the hub no longer knows its sessions, new connections of clients
    # go to the run that ended, and are reset.
    deadline = time.monotonic() + 60.0
    while not download(pair.client, addresses.ORIGIN, 300_000, route=pair.socks5()).complete:
        assert time.monotonic() < deadline
        time.sleep(0.5)


def test_losses_cost_no_byte_and_do_not_stop_the_rate(start_pair: StartPair) -> None:
    pair = start_pair(_LOSSY, _QUIC)
    done = download(pair.client, addresses.ORIGIN, 4 * _SIZE, route=pair.socks5())
    whole(done)
    assert done.last_byte_s is not None
    # At the link's rate 5.2 s; a control that halves at each loss takes minutes.
    assert done.last_byte_s < 60.0


def test_bundles_go_as_coded_datagrams_and_repair_stands_in_for_what_is_lost(
    start_pair: StartPair,
) -> None:
    pair = start_pair(_LOSSY, _QUIC)
    # The first teaches the hub the path's losses.
    for _ in range(3):
        assert download(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()).complete

    def count(node: Node, key: str) -> int:
        (path,) = node.status()["paths"]
        return sum(int(session[key]) for session in path["sessions"])

    assert count(pair.hub, "symbols_sent") > 3 * _SIZE // 1500
    assert count(pair.hub, "repair_symbols_sent") > 0
    assert count(pair.terminal, "symbols_recovered") > 0
