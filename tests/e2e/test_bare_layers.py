"""Two nodes over the convergence layers without authentication."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

from tests.e2e.conftest import NEAR, StartPair, amid, whole
from tests.testbed import addresses, bare_paths
from tests.testbed.bare_paths import BareLayer
from tests.testbed.client.transfer import download, upload
from tests.testbed.node import Options

pytestmark = pytest.mark.node

_SIZE = 3_000_000
_LAYERS = ["stcp", "mtcp", "udp", "ltp"]


def _options(layer: BareLayer) -> Options:
    """Return options by which both nodes know each other by their addresses alone."""
    return Options(
        tls=False,
        terminal=bare_paths.terminal(layer, NEAR),
        hub=bare_paths.hub(layer, NEAR),
    )


@pytest.mark.parametrize("layer", _LAYERS)
def test_transfers_go_both_ways_and_status_names_the_layer(
    start_pair: StartPair, layer: BareLayer
) -> None:
    pair = start_pair(options=_options(layer))
    for transfer in (download, upload):
        whole(transfer(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()))
    for node in (pair.hub, pair.terminal):
        (path,) = node.status()["paths"]
        # Over TCP each side sends on the connection that it opened.
        receives_only = [False, True] if layer in ("stcp", "mtcp") else [False]
        assert [session["receives_only"] for session in path["sessions"]] == receives_only
        assert {session["convergence_layer"] for session in path["sessions"]} == {layer}
        assert not path["sessions"][0]["tls"]
        assert (path["sessions"][0]["ltp"] is not None) == (layer == "ltp")


@pytest.mark.parametrize("layer", ["stcp", "ltp"])
def test_a_hub_that_was_killed_is_found_again(start_pair: StartPair, layer: BareLayer) -> None:
    pair = start_pair(options=_options(layer))
    assert download(pair.client, addresses.ORIGIN, 300_000, route=pair.socks5()).complete
    pair.hub.process.kill()
    pair.hub.start()
    # Until the terminal hears of the hub's new run, clients' connections go to the one that ended.
    deadline = time.monotonic() + 60.0
    while not download(pair.client, addresses.ORIGIN, 300_000, route=pair.socks5()).complete:
        assert time.monotonic() < deadline
        time.sleep(0.5)


@pytest.mark.parametrize("layer", ["stcp", "mtcp"])
def test_a_stranger_is_turned_away_and_harms_nobody(
    start_pair: StartPair, layer: BareLayer
) -> None:
    pair = start_pair(options=_options(layer))
    # The hub itself is not the neighbour's host.
    with pair.testbed.hub.socket(socket.AF_INET, socket.SOCK_STREAM) as stream:
        stream.settimeout(20)
        stream.connect((addresses.HUB_SAT, bare_paths.PORT))
        stream.sendall(b"\x00\x00\x00\x01\x41")
        with contextlib.suppress(ConnectionResetError):
            assert stream.recv(1) == b""
    assert download(pair.client, addresses.ORIGIN, 300_000, route=pair.socks5()).complete


def test_what_ltp_has_refused_is_in_status_and_metrics(start_pair: StartPair) -> None:
    pair = start_pair(options=_options("ltp"))
    # From the neighbour's host: bytes that are no segment, and a segment of others' session.
    with pair.testbed.terminal.node.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagrams:
        for segment in (b"\xff", bytes([3, 99, 9, 0, 1, 0, 1, 5, 0, 7])):
            datagrams.sendto(segment, (addresses.HUB_SAT, bare_paths.PORT))

    def refused() -> dict[str, int]:
        (path,) = pair.hub.status()["paths"]
        reasons: dict[str, int] = path["sessions"][0]["ltp"]["refused_segments"]
        return reasons

    pair.hub.process.wait_until(lambda: refused()["malformed"] >= 1 and refused()["foreign"] >= 1)
    counted = 'underpass_ltp_refused_segments_total{path="satellite",reason="foreign"}'
    pair.hub.process.wait_until(lambda: pair.hub.api.metrics().get(counted, 0) >= 1)
    blocks = 'underpass_ltp_blocks{path="satellite",direction="sent"}'
    assert blocks in pair.hub.api.metrics()


def test_a_blockage_amid_a_transfer_over_ltp_costs_its_time_and_no_byte(
    start_pair: StartPair,
) -> None:
    pair = start_pair(options=_options("ltp"))
    pair.testbed.satlink.block(pair.testbed.terminal.name, for_s=2.0)
    whole(download(pair.client, addresses.ORIGIN, _SIZE, route=pair.socks5()))


@pytest.mark.parametrize("layer", _LAYERS)
def test_upgrades_of_both_ends_amid_a_transfer_cost_no_byte(
    start_pair: StartPair, layer: BareLayer
) -> None:
    pair = start_pair(options=_options(layer))
    for node in (pair.hub, pair.terminal):
        before = node.process.pid
        with amid(pair, download, 8_000_000, after_s=0.6) as running:
            node.upgrade()
            done = running.result(60)
        assert node.process.pid != before
        whole(done)
