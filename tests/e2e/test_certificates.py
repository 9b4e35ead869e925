"""Wrong clocks, and certificates that expire."""

from __future__ import annotations

import shutil
import socket
import time
from datetime import UTC, datetime
from functools import reduce
from operator import xor
from pathlib import Path

import pytest

from tests.e2e.conftest import StartPair
from tests.testbed import addresses, wrong_clock
from tests.testbed.client.transfer import download
from tests.testbed.namespace import command
from tests.testbed.node import HUB_NODE, Node, Options, Pair, terminal_node
from tests.testbed.programs import built
from tests.testbed.topology import Testbed
from tests.testbed.wrong_clock import clock_that_shows

pytestmark = pytest.mark.node

_DAY_S = 86_400
_NMEA_PORT = 10111
_NEVER_SET = "@1970-01-01 00:00:10"
# Until then, the terminal is started again and has its session.
_ENDS_IN_S = 45.0
needs_wrong_clock = pytest.mark.skipif(
    wrong_clock.missing() is not None, reason=wrong_clock.missing() or ""
)


def _log(node: Node) -> str:
    return node.process.log_path.read_text()


def _has_a_session(pair: Pair[Testbed]) -> None:
    pair.wait_until_ready()
    done = download(pair.client, addresses.ORIGIN, 100_000, route=pair.socks5())
    assert done.complete, done.error


def _renew(pair: Pair[Testbed], node: int, days: int, *, clock: list[str] | None = None) -> None:
    pki = str(pair.testbed.dir / "pki")
    renew = [built("underpass"), "pki", "renew", "--dir", pki, "--node", str(node)]
    command([*(clock or []), *renew, "--days", str(days)])


def _renewed(pair: Pair[Testbed], node: Node, number: int, days: int) -> None:
    """Renew a node's certificate, and wait until the node has read it."""
    before = _log(node).count("certificates read again")
    _renew(pair, number, days)
    node.process.wait_until(lambda: _log(node).count("certificates read again") > before)


@needs_wrong_clock
def test_a_terminal_whose_clock_says_1970_finds_its_hub(start_pair: StartPair) -> None:
    pair = start_pair(options=Options(terminal_wrapper=clock_that_shows(_NEVER_SET)))
    assert _log(pair.terminal).startswith("1970-01-01T")
    # All it knows of the time is that its own certificate is already valid.
    _has_a_session(pair)


@needs_wrong_clock
def test_certificates_are_judged_by_the_kept_time_where_the_clock_is_behind_it(
    start_pair: StartPair,
) -> None:
    pair = start_pair(options=Options(terminal_wrapper=clock_that_shows(_NEVER_SET)))
    terminal = pair.terminal
    kept = pair.testbed.dir / f"state-{terminal_node(0)}" / "known-time"
    _restarted_with(terminal, kept, time.time() + 400 * _DAY_S)
    terminal.process.wait_until(lambda: "certificate has ended" in _log(terminal))
    pair.hub.process.wait_until(lambda: not pair.hub.carries(1))
    time.sleep(2.0)
    assert not terminal.carries(1)
    _restarted_with(terminal, kept, time.time())
    _has_a_session(pair)


@needs_wrong_clock
def test_the_time_of_a_gnss_receiver_makes_a_certificate_valid(start_pair: StartPair) -> None:
    positions = {"source": "nmea", "listen": f"127.0.0.1:{_NMEA_PORT}"}
    pair = start_pair(
        options=Options(
            terminal={"reports": {"to": HUB_NODE}, "positions": positions},
            terminal_wrapper=clock_that_shows(_NEVER_SET),
        )
    )
    # The hub's next certificate begins the day after tomorrow.
    ahead_s = 3 * _DAY_S
    pair.terminal.process.stop()
    _renew(pair, HUB_NODE, 365, clock=clock_that_shows(f"+{ahead_s}"))
    pair.hub.process.wait_until(lambda: "certificates read again" in _log(pair.hub))
    pair.terminal.start()
    pair.terminal.process.wait_until(lambda: "CertNotValidYet" in _log(pair.terminal))
    assert not pair.terminal.carries(1)
    with pair.testbed.terminals[0].node.socket(socket.AF_INET, socket.SOCK_DGRAM) as receiver:

        def told() -> bool:
            receiver.sendto(_sentence(time.time() + ahead_s), ("127.0.0.1", _NMEA_PORT))
            return pair.terminal.carries(1)

        pair.terminal.process.wait_until(told)


def _sentence(time_s: float) -> bytes:
    """Return an RMC sentence of NMEA 0183: somewhere in Munich, standing still."""
    at = datetime.fromtimestamp(time_s, UTC)
    text = f"GPRMC,{at:%H%M%S.%f}"[:-4] + f",A,4808.0,N,01134.0,E,0.0,0.0,{at:%d%m%y},,,A"
    checksum = reduce(xor, text.encode())
    return f"${text}*{checksum:02X}\r\n".encode()


def _restarted_with(terminal: Node, kept: Path, time_s: float) -> None:
    terminal.process.stop()
    kept.write_text(f"{1000 * int(time_s)}\n")
    terminal.start()


@needs_wrong_clock
@pytest.mark.parametrize("whose", ["hub", "terminal"])
def test_a_session_ends_with_a_certificate_and_comes_back_with_the_next(
    start_pair: StartPair, whose: str
) -> None:
    pair = start_pair()
    node, number = {
        "hub": (pair.hub, HUB_NODE),
        "terminal": (pair.terminal, terminal_node(0)),
    }[whose]
    peer = pair.terminal if whose == "hub" else pair.hub
    end = time.time() + _ENDS_IN_S
    _renew(pair, number, 1, clock=clock_that_shows(f"{_ENDS_IN_S - _DAY_S:+.0f}"))
    node.process.wait_until(lambda: "certificates read again" in _log(node))
    # Sessions keep the certificate with which they began.
    pair.terminal.process.stop()
    pair.terminal.start()
    _has_a_session(pair)
    assert time.time() < end, "the machine is too slow for this test"
    pair.hub.process.wait_until(lambda: not pair.hub.carries(1))
    assert time.time() >= end
    # Both sides check every two seconds; the first to notice closes the session.
    said = (
        "sessions closed: this node's certificate has ended" in _log(node),
        "sessions closed: their peers' certificates have ended" in _log(peer),
    )
    assert any(said)
    _renew(pair, number, 365)
    _has_a_session(pair)


def test_the_end_of_a_certificate_is_warned_of_from_thirty_days_before(
    start_pair: StartPair,
) -> None:
    pair = start_pair()
    hub = pair.hub
    _renewed(pair, hub, HUB_NODE, 31)
    assert "certificate ends soon" not in _log(hub)
    _renewed(pair, hub, HUB_NODE, 30)
    assert "certificate ends soon" in _log(hub)
    end = hub.api.metrics()["underpass_certificate_expiry_timestamp_seconds"]
    assert end == pytest.approx(time.time() + 30 * _DAY_S, abs=60)
    # The same holds for a node that starts with it.
    hub.process.stop()
    shutil.move(hub.process.log_path, hub.process.log_path.with_suffix(".before"))
    hub.start()
    _has_a_session(pair)
    assert "certificate ends soon" in _log(hub)
