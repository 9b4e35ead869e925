"""A terminal's position: from a real gpsd, and from NMEA 0183 by every kind of input."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from dama.prediction import Fix
from tests.drives.drive import drive
from tests.drives.island import island
from tests.drives.nmea_log import nmea_log
from tests.drives.roads import Roads
from tests.e2e.conftest import StartPair
from tests.testbed import vehicle
from tests.testbed.loopback import Loopback
from tests.testbed.node import HUB_NODE, Node, Options, Pair, terminal_node
from tests.testbed.process import Process
from tests.testbed.topology import Testbed, listens

pytestmark = [
    pytest.mark.node,
    pytest.mark.skipif(vehicle.missing() is not None, reason=str(vehicle.missing())),
]

_ROOT = Path(__file__).parents[2]
_PYTHONPATH = {"PYTHONPATH": f"{_ROOT / 'control-api'}:{_ROOT}"}
_GPSD = 2947
_FEED = 2948
_TCP = 10110
_UDP = 10111


@pytest.fixture(scope="module")
def track() -> Sequence[Fix]:
    """A drive of some minutes; its times are years ago."""
    return drive(Roads(island()), 3).fixes[:200]


@pytest.fixture(scope="module")
def log(track: Sequence[Fix], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log of its receiver."""
    path = tmp_path_factory.mktemp("drive") / "drive.nmea"
    path.write_bytes("".join(nmea_log(track)).encode())
    return path


@pytest.fixture
def vehicles() -> Iterator[Loopback]:
    """A namespace for nodes without a hub."""
    with Loopback() as bed:
        yield bed


def _lone_terminal(bed: Loopback, name: str, positions: dict[str, object]) -> Node:
    """Start a terminal whose hub is never there."""
    return Node(
        bed,
        name,
        bed.hub,
        {
            "node": {
                "number": terminal_node(0),
                "role": "terminal",
                "state_dir": bed.dir / f"state-{name}",
                "drain_s": 1,
            },
            "tls": {"plain": True},
            "path": [{"name": "satellite", "neighbour": HUB_NODE, "remote": "127.0.0.1:4556"}],
            "reports": {"to": HUB_NODE},
            "positions": positions,
        },
    )


def _replay(bed: Loopback, log: Path, to: str, *more: str) -> Process:
    program = [sys.executable, "-m", "underpass_control", "replay", str(log), "--json"]
    argv = [*program, "--loop", "--to", to, *more]
    return bed.start(f"replay-{to[:3]}", argv, bed.hub, _PYTHONPATH)


def _state(node: Node) -> Any:
    try:
        return node.api.get("/v1/position")["source"]["state"]
    except OSError:
        # The source was only just started.
        return None


def _wait_for(node: Node, state: str) -> None:
    node.process.wait_until(lambda: _state(node) == state)


def _is_of(place: dict[str, Any], track: Sequence[Fix]) -> bool:
    return any(
        abs(place["longitude"] - fix.lon) < 1e-6 and abs(place["latitude"] - fix.lat) < 1e-6
        for fix in track
    )


def _latest(pair: Pair[Testbed]) -> dict[str, Any]:
    terminals = pair.hub.api.get("/v1/reports")["terminals"]
    position: dict[str, Any] = terminals[0].get("position", {}) if terminals else {}
    return position


def test_positions_of_a_gpsd_reach_the_hub_and_wait_in_a_blockage(
    start_pair: StartPair, track: Sequence[Fix], log: Path
) -> None:
    # Its receiver gives five fixes a second, dated years ago.
    positions = {"source": "gpsd", "replay": True, "interval_ms": 200}
    pair = start_pair(
        options=Options(terminal={"reports": {"to": HUB_NODE}, "positions": positions})
    )
    program = ["gpsfake", "-1", "-n", "-q", "-P", str(_GPSD), "-c", "0.1", str(log)]
    pair.testbed.start("gpsfake", program, pair.testbed.terminals[0].node)
    # The first fix may come before the date is known.
    pair.hub.process.wait_until(lambda: "gnss_time_ms" in _latest(pair))
    report = _latest(pair)
    assert _is_of(report, track)
    # The drive's clock runs five times too fast, but starts from the time of the first fix.
    ahead_ms = report["gnss_time_ms"] - report["node_time_ms"]
    assert -1_000 < ahead_ms < 60_000

    pair.terminal.api.block()
    waiting = "underpass_reports_waiting"
    pair.terminal.process.wait_until(lambda: pair.terminal.api.metrics()[waiting] >= 8)
    known = _latest(pair)["uptime_ms"]
    pair.terminal.api.unblock()
    pair.hub.process.wait_until(lambda: _latest(pair)["uptime_ms"] > known)
    # Those that had waited follow, but none of them replaces the newest one.
    assert _latest(pair)["age_s"] < 1
    pair.terminal.process.wait_until(lambda: pair.terminal.api.metrics()[waiting] == 0)
    metrics = pair.terminal.api.metrics()
    assert metrics["underpass_position_fixed"] == 1
    assert metrics["underpass_position_reports_total"] >= 5
    assert metrics["underpass_reports_dropped_total"] == 0


def test_a_gpsd_that_is_killed_is_found_again(
    vehicles: Loopback, track: Sequence[Fix], log: Path
) -> None:
    program = ["gpsd", "-N", "-n", "-S", str(_GPSD), f"udp://127.0.0.1:{_FEED}"]
    node = _lone_terminal(vehicles, "vehicle", {"source": "gpsd"})
    _wait_for(node, "connecting")
    for _ in range(2):
        gpsd = vehicles.start("gpsd", program, vehicles.hub)
        gpsd.wait_until(lambda: listens(vehicles.hub, _GPSD))
        receiver = _replay(vehicles, log, f"udp://127.0.0.1:{_FEED}", "--speed", "5")
        _wait_for(node, "fix")
        fix = node.api.get("/v1/position")["fix"]
        assert _is_of(fix, track)
        assert abs(fix["gnss_time_ms"] - fix["node_time_ms"]) < 2_000
        gpsd.kill()
        _wait_for(node, "connecting")
        receiver.kill()
    position = node.api.get("/v1/position")
    assert position["fix"] is not None
    assert "refused" in position["source"]["error"] or "closed" in position["source"]["error"]


def test_nmea_comes_by_datagrams_tcp_and_a_serial_line_that_may_be_unplugged(
    vehicles: Loopback, track: Sequence[Fix], log: Path
) -> None:
    line = vehicles.dir / "receiver"
    sources: dict[str, tuple[str, dict[str, object]]] = {
        "serial": (f"pty:{line}", {"device": line, "baud": 9600}),
        "tcp": (f"tcp-listen://127.0.0.1:{_TCP}", {"address": f"127.0.0.1:{_TCP}"}),
        "udp": (f"udp://127.0.0.1:{_UDP}", {"listen": f"127.0.0.1:{_UDP}"}),
    }
    receivers = {name: _replay(vehicles, log, to) for name, (to, _) in sources.items()}
    # A node that finds no receiver looks again ever more seldom.
    receivers["serial"].wait_until(line.is_symlink)
    receivers["tcp"].wait_until(lambda: listens(vehicles.hub, _TCP))
    nodes = {
        name: _lone_terminal(vehicles, name, {"source": "nmea", **table})
        for name, (_, table) in sources.items()
    }
    for node in nodes.values():
        _wait_for(node, "fix")
        fix = node.api.get("/v1/position")["fix"]
        assert _is_of(fix, track)
        assert abs(fix["gnss_time_ms"] - fix["node_time_ms"]) < 2_000
        metrics = node.api.metrics()
        assert metrics['underpass_position_refused_total{reason="spoilt"}'] == 0
    unplugged = ("serial", "tcp")
    for name in unplugged:
        receivers[name].kill()
    for name in unplugged:
        _wait_for(nodes[name], "connecting")
        losses = nodes[name].api.metrics()["underpass_position_source_losses_total"]
        assert losses >= 1
        # Another receiver is plugged in at the same place.
        _replay(vehicles, log, sources[name][0])
    for name in unplugged:
        _wait_for(nodes[name], "fix")
