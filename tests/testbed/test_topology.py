from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from tests.testbed import addresses, namespace, ports
from tests.testbed.client.crowd import crowd
from tests.testbed.client.echo import echo_times
from tests.testbed.client.route import DIRECT, reset_when_closed
from tests.testbed.client.transfer import download, request, upload
from tests.testbed.content import pieces
from tests.testbed.profile import Link, symmetric
from tests.testbed.topology import Testbed

pytestmark = pytest.mark.testbed

NEAR = symmetric("near", Link(rate_bps=200_000_000, delay_ms=10.0, queue_ms=500.0))


@pytest.fixture(scope="module")
def near() -> Iterator[Testbed]:
    with Testbed(NEAR, terminals=2, terrestrial=NEAR) as testbed:
        yield testbed


@pytest.mark.parametrize("origin", [addresses.ORIGIN, addresses.ORIGIN6])
def test_plain_ip_passes_from_every_client_to_the_origin(near: Testbed, origin: str) -> None:
    for terminal in near.terminals:
        transfer = download(terminal.client, origin, 3_000_000, seed=terminal.index)
        assert transfer.error is None
        assert transfer.bytes == 3_000_000
        assert transfer.connected_s is not None
        assert transfer.connected_s >= NEAR.rtt_s


def test_behind_a_wan_clients_of_hub_and_ground_share_the_link_to_the_origin() -> None:
    with Testbed(NEAR, wan=NEAR) as testbed:
        for client in (testbed.terminal.client, testbed.ground):
            assert download(client, addresses.ORIGIN, 100_000).complete
        with DIRECT.connect(testbed.hub, addresses.ORIGIN, ports.HTTP, timeout_s=5):
            pass


def test_an_upload_reaches_the_origin_whole(near: Testbed) -> None:
    assert upload(near.terminal.client, addresses.ORIGIN, 3_000_000).complete


@pytest.mark.parametrize(
    ("linger", "wrong", "ending"),
    [(True, False, "reset"), (False, False, "end"), (True, True, "reset")],
)
def test_the_origin_keeps_account_of_an_upload_that_breaks_off(
    near: Testbed, linger: bool, wrong: bool, ending: str
) -> None:
    name, sent = f"cut-{ending}-{wrong}", b"".join(pieces(5, 300_000))
    if wrong:
        sent = sent[:-1] + bytes([sent[-1] ^ 1])
    head = f"POST /sink?seed=5&name={name} HTTP/1.1\r\nContent-Length: 1000000\r\n\r\n"
    client = near.terminal.client
    with DIRECT.connect(client, addresses.ORIGIN, ports.HTTP, timeout_s=5) as sock:
        sock.sendall(head.encode() + sent)
        while not (receipts := _receipts(near, name)) or receipts[0]["bytes"] < len(sent):
            time.sleep(0.02)
        if linger:
            reset_when_closed(sock)
    while (receipt := _receipts(near, name)[0])["ending"] == "open":
        time.sleep(0.02)
    assert receipt["ending"] == ending
    assert receipt["announced"] == 1_000_000
    assert (receipt["wrong"] is not None) == wrong


def test_the_origin_breaks_an_upload_off_when_asked(near: Testbed) -> None:
    client, query = near.terminal.client, "&name=broken"
    with ThreadPoolExecutor(1) as pool:
        endless = pool.submit(upload, client, addresses.ORIGIN, 10**12, query=query)
        while not _receipts(near, "broken"):
            time.sleep(0.02)
        _, body = request(near.hub, addresses.ORIGIN, "/break/broken")
        assert json.loads(body) == {"broken": 1}
        assert "ConnectionResetError" in (endless.result().error or "")
    _, body = request(near.hub, addresses.ORIGIN, "/break/broken")
    assert json.loads(body) == {"broken": 0}


def _receipts(testbed: Testbed, name: str) -> list[dict[str, Any]]:
    _, body = request(testbed.hub, addresses.ORIGIN, f"/receipts/{name}")
    receipts: list[dict[str, Any]] = json.loads(body)
    return receipts


def test_the_terrestrial_path_is_there_beside_the_satellite(near: Testbed) -> None:
    terminal = near.terminal
    assert near.terrestrial is not None
    for hub in (addresses.HUB_TERRESTRIAL, addresses.HUB_TERRESTRIAL6):
        with pytest.raises(ConnectionRefusedError):
            DIRECT.connect(terminal.node, hub, ports.CLOSED, timeout_s=5)
    stats = near.terrestrial.statistics()["terminals"][terminal.name]
    assert stats["forward"]["packets_out"] >= 2


def test_a_blocked_terminal_hears_nothing_and_the_other_goes_on(near: Testbed) -> None:
    blocked, other = near.terminals
    near.satlink.block(blocked.name)
    try:
        assert not download(blocked.client, addresses.ORIGIN, 1000, deadline_s=0.5).complete
        assert download(other.client, addresses.ORIGIN, 1000).complete
    finally:
        near.satlink.unblock(blocked.name)
    assert download(blocked.client, addresses.ORIGIN, 1000).complete


def test_the_origin_resets_in_mid_body_when_asked(near: Testbed) -> None:
    with DIRECT.connect(near.terminal.client, addresses.ORIGIN, ports.HTTP, timeout_s=5) as sock:
        sock.sendall(b"GET /reset/100000?after=5000 HTTP/1.1\r\nHost: o\r\n\r\n")
        with pytest.raises(ConnectionResetError):
            while sock.recv(65536):
                pass


def test_echo_comes_back_after_a_round_trip(near: Testbed) -> None:
    with DIRECT.connect(near.terminal.client, addresses.ORIGIN, ports.ECHO, timeout_s=5) as sock:
        assert min(echo_times(sock, count=3, interval_s=0.01)) >= NEAR.rtt_s


def test_a_crowd_gets_each_its_own_content(near: Testbed) -> None:
    times = crowd(near.terminal.client, addresses.ORIGIN, clients=50, size=20_000, deadline_s=20)
    assert len(times) == 50
    assert None not in times


def test_request_shows_the_address_that_the_origin_saw(near: Testbed) -> None:
    status, body = request(near.terminal.client, addresses.ORIGIN, "/request")
    assert status == 200
    assert addresses.client(0).encode() in body


def test_what_a_killed_test_bed_left_is_found_and_removed() -> None:
    script = (
        "import sys, time\n"
        "from tests.testbed.namespace import Namespace, instance_prefix\n"
        "space = Namespace(instance_prefix() + 'left', forwarding=False)\n"
        "print(space.name, flush=True)\n"
        "time.sleep(60)\n"
    )
    root = Path(__file__).parents[2]
    with subprocess.Popen(
        [sys.executable, "-c", script], cwd=root, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        name = owner.stdout.readline().strip()
        assert name not in namespace.leftovers()
        owner.send_signal(signal.SIGKILL)
    assert name in namespace.leftovers()
    assert name in namespace.sweep()
    assert namespace.leftovers() == []


def test_nothing_remains_after_an_error_inside() -> None:
    with pytest.raises(ZeroDivisionError), Testbed(NEAR) as testbed:
        raise ZeroDivisionError
    left = {entry.name for entry in Path("/run/netns").iterdir()}
    assert not [name for name in left if name.startswith(testbed.prefix)]
    assert not _alive(testbed.satlink.process.pid)


def test_a_socket_stays_in_the_namespace_it_was_made_in(near: Testbed) -> None:
    with near.origin.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.bind((addresses.ORIGIN, 0))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(OSError):
        sock.bind((addresses.ORIGIN, 0))


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
