"""Faults of paths: one direction is dead, large packets are lost, both paths are gone, connections
are forgotten, the terminal's address changes. No stream breaks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Literal

import pytest

from tests.e2e.conftest import SATELLITE, TERRESTRIAL, StartPair, amid, whole
from tests.testbed import addresses
from tests.testbed.client.transfer import Transfer, download, upload
from tests.testbed.node import Node, Options, Pair
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.node

_SIZE = 10_000_000
# On the satellite alone, the transfer takes 4 s.
_PATIENCE_S = 60.0
_BOTH_GONE_S = 4.0
# Half of the time in which a keepalive finds a dead session.
_FOUND_DEAD_S = 30.0
# In the terminal's client network, so that the hop leads there.
_OTHER_ADDRESS = "10.1.0.77"

Layer = Literal["tcpcl", "quic"]
_LAYERS = pytest.mark.parametrize("layer", ["tcpcl", "quic"])
_TRANSFERS = pytest.mark.parametrize("transfer", [download, upload])


def _both_paths(start_pair: StartPair, layer: Layer) -> Pair[Testbed]:
    options = Options(paths=("satellite", "terrestrial"), convergence_layer=layer)
    return start_pair(SATELLITE, options, terrestrial=TERRESTRIAL)


def _through(
    pair: Pair[Testbed], transfer: Callable[..., Transfer], fault: Callable[[], None]
) -> Transfer:
    """Cause a fault during a transfer."""
    with amid(pair, transfer, _SIZE, deadline_s=_PATIENCE_S) as running:
        fault()
        done = running.result(2 * _PATIENCE_S)
    whole(done)
    return done


@_LAYERS
@_TRANSFERS
@pytest.mark.parametrize("direction", ["forward", "return"])
def test_a_path_that_is_dead_one_way_only_breaks_no_stream(
    start_pair: StartPair, layer: Layer, transfer: Callable[..., Transfer], direction: str
) -> None:
    pair = _both_paths(start_pair, layer)
    terrestrial = pair.testbed.terrestrial
    assert terrestrial is not None
    nothing = {"model": "independent", "probability": 1.0}

    def fault() -> None:
        terrestrial.set_link(direction=direction, loss=nothing)

    _through(pair, transfer, fault)
    # Both ends know it: the end that hears learns from the other that that one does not.
    for node, name in ((pair.terminal, "terrestrial"), (pair.hub, pair.hub_path("terrestrial"))):
        node.process.wait_until(partial(_is_blocked, node, name))


def _is_blocked(node: Node, name: str) -> bool:
    [path] = [path for path in node.status()["paths"] if path["name"] == name]
    return bool(path["blocked"])


@_LAYERS
@_TRANSFERS
def test_a_path_whose_packets_have_become_smaller_breaks_no_stream(
    start_pair: StartPair, layer: Layer, transfer: Callable[..., Transfer]
) -> None:
    """A router on the way silently drops larger packets."""
    pair = _both_paths(start_pair, layer)
    # As in docs/configuration.md for TCP.
    for end in (pair.testbed.hub, pair.testbed.terminal.node):
        end.sysctl(**{"net.ipv4.tcp_mtu_probing": "1"})
    # The rule is at the receiver, where packets arrive with their sizes on the line.
    receiver = pair.testbed.terminal.node if transfer is download else pair.testbed.hub

    def fault() -> None:
        receiver.run("nft", "add table ip narrow")
        receiver.run(
            "nft", "add chain ip narrow in { type filter hook prerouting priority -300 ; }"
        )
        receiver.run("nft", 'add rule ip narrow in iifname "terr" ip length > 1300 drop')

    _through(pair, transfer, fault)


@_LAYERS
@_TRANSFERS
def test_while_both_paths_are_gone_all_waits(
    start_pair: StartPair, layer: Layer, transfer: Callable[..., Transfer]
) -> None:
    pair = _both_paths(start_pair, layer)
    assert pair.testbed.terrestrial is not None
    hops = (pair.testbed.satlink, pair.testbed.terrestrial)

    def fault() -> None:
        for hop in hops:
            hop.block(pair.testbed.terminal.name, for_s=_BOTH_GONE_S)

    done = _through(pair, transfer, fault)
    assert done.last_byte_s is not None
    assert done.last_byte_s > _BOTH_GONE_S


def _forget_connections(pair: Pair[Testbed]) -> None:
    """Drop TCP between the nodes, except for connections that begin from now on."""
    begins = "tcp flags & (syn | ack) == syn add @known { tcp sport }"
    # They are dropped on arrival: a node would get an error for a packet that it cannot send.
    ends = (
        (pair.testbed.terminal.node, "output", 'oifname "sat"', "tcp dport"),
        (pair.testbed.hub, "prerouting", 'iifname "sat"', "tcp sport"),
    )
    for end, hook, beginning, port in ends:
        for part in (
            "table ip forgetful",
            "set ip forgetful known { type inet_service ; flags dynamic ; size 1024 ; }",
            f"chain ip forgetful begins {{ type filter hook {hook} priority -310 ; }}",
            f"rule ip forgetful begins {beginning} {begins}",
            "chain ip forgetful in { type filter hook prerouting priority -300 ; }",
            f'rule ip forgetful in iifname "sat" {port} != @known drop',
        ):
            end.run("nft", f"add {part}")


@_TRANSFERS
def test_a_device_on_the_way_that_forgets_all_connections_breaks_no_stream(
    start_pair: StartPair, transfer: Callable[..., Transfer]
) -> None:
    """As an address translator does after a restart; beacons come through."""
    pair = start_pair(SATELLITE, Options(convergence_layer="tcpcl"))
    done = _through(pair, transfer, lambda: _forget_connections(pair))
    assert done.last_byte_s is not None
    assert done.last_byte_s < _FOUND_DEAD_S


def _move(pair: Pair[Testbed]) -> None:
    """Replace the terminal's address on the satellite."""
    terminal = pair.testbed.terminal.node
    terminal.ip("address", "add", f"{_OTHER_ADDRESS}/32", "dev", "sat")
    terminal.ip("address", "del", f"{addresses.terminal_sat(0)}/16", "dev", "sat")
    terminal.ip("route", "add", f"{addresses.HUB_SAT}/32", "dev", "sat", "src", _OTHER_ADDRESS)


@_LAYERS
@_TRANSFERS
def test_a_terminal_that_moves_its_address_keeps_its_streams(
    start_pair: StartPair, layer: Layer, transfer: Callable[..., Transfer]
) -> None:
    pair = start_pair(SATELLITE, Options(convergence_layer=layer))
    _through(pair, transfer, lambda: _move(pair))
    if layer == "tcpcl":
        # QUIC moves the same session, and its status has the address at which that began.
        [path] = pair.hub.status()["paths"]
        remotes = {session["remote"].rpartition(":")[0] for session in path["sessions"]}
        assert _OTHER_ADDRESS in remotes, remotes
