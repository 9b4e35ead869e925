"""Custody on disk: its cost in throughput, memory and time to start."""

from __future__ import annotations

import os
import statistics
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects.underpass import TOLD_NOTHING
from tests.testbed import addresses, ports
from tests.testbed.client.drain import drain_bps
from tests.testbed.client.transfer import Transfer, download
from tests.testbed.loopback import Loopback
from tests.testbed.node import HUB_NODE, TCPCL_PORT, Node, Options, Pair, terminal_node
from tests.testbed.programs import missing

_BYTES = 2_000_000_000
_DEADLINE_S = 300.0
# The target: this part of the rate with custody in memory, or of the disk's rate.
_OF_MEMORY, _OF_DISK = 0.7, 0.8

_MIB = 1 << 20
_IN_CUSTODY_BYTES = 1 << 30
# A node returns freed memory to the system some seconds after its use.
_AT_REST_S = 10.0
# Each of a relay's two neighbours gets at most half of it.
_QUOTA_BYTES = 3 << 30
_DISK = {"custody": {"durability": "disk", "quota_bytes": _QUOTA_BYTES}}
_RELAY_NODE, _RELAY_PORT = 5, 4600


@dataclass(frozen=True)
class _Filled:
    """Memory above idle: with 1 GiB waiting, and the maximum before; the time to serve again."""

    waiting_mib: float
    filling_mib: float
    serves_s: float


def run_throughput(settings: Settings) -> Result:
    """Two nodes on loopback, custody on disk against custody in memory, in turns."""
    result = Result("disk-throughput")
    result.told = dict.fromkeys(("underpass", "underpass-memory", "underpass-disk"), TOLD_NOTHING)
    if result.left_out(missing("underpass")):
        return result
    for streams in (1, 64):
        rates: dict[str, list[float]] = {"memory": [], "disk": []}
        written: list[float] = []
        with Loopback() as bed:
            disk_bps = _disk_bps(bed.dir)
            pairs = {
                "memory": Pair(bed, Options(tls=False), name="-memory"),
                "disk": Pair(
                    bed,
                    Options(tls=False, terminal=_DISK, hub=_DISK),
                    name="-disk",
                    port_offset=1,
                ),
            }
            for _ in range(settings.runs or 10):
                for name, pair in pairs.items():
                    # Writes left over from an earlier run must not slow this one.
                    os.sync()
                    before = _committed_bytes(pair)
                    rate = drain_bps(
                        bed.hub,
                        addresses.ORIGIN,
                        ports.HTTP,
                        route=pair.http_connect(),
                        streams=streams,
                        size=_BYTES // streams,
                        deadline_s=_DEADLINE_S,
                    )
                    rates[name].append(rate / 1e6)
                    if name == "disk":
                        written.append((_committed_bytes(pair) - before) / _BYTES)
        memory = statistics.median(rates["memory"])
        copies = statistics.median(written)
        # Data that is never written does not depend on the disk.
        least = _OF_MEMORY * memory
        if copies > 0:
            least = min(least, _OF_DISK * disk_bps / 1e6 / copies)
        for name, of_name in rates.items():
            figure = f"disk-throughput-{streams}.rate"
            result.records.append(record(figure, f"underpass-{name}", of_name))
        ratios = [rate / least for rate in rates["disk"]]
        result.records.append(record(f"disk-throughput-{streams}.ratio", "underpass", ratios))
        result.notes[f"{streams} streams"] = (
            f"the disk sustains {disk_bps / 1e6:.0f} Mbit/s; copies written per byte {copies:.2f}"
        )
        say(
            f"disk throughput, {streams} streams: {statistics.median(rates['disk']):.0f} of "
            f"{memory:.0f} Mbit/s, {copies:.2f} copies written"
        )
    return result


def run_restart(settings: Settings) -> Result:
    """A relay with 1 GiB in custody: its memory, and how soon it serves again after a kill."""
    result = Result("disk-restart")
    result.told["underpass"] = TOLD_NOTHING
    if result.left_out(missing("underpass")):
        return result
    filled: list[_Filled] = []
    for _ in range(settings.runs or 3):
        one = _fill_and_kill()
        filled.append(one)
        say(
            f"1 GiB in custody: {one.waiting_mib:.0f} MiB above idle, {one.filling_mib:.0f} while "
            f"it came, serves after {one.serves_s:.2f} s"
        )
    for figure, values in (
        ("disk-memory", [one.waiting_mib for one in filled]),
        ("disk-memory-filling", [one.filling_mib for one in filled]),
        ("disk-restart", [one.serves_s for one in filled]),
    ):
        result.records.append(record(figure, "underpass", values))
    return result


def _fill_and_kill() -> _Filled:
    """Fill a relay whose onward link is blocked, kill it, and start it again."""
    with Loopback() as bed:
        relay = Node(bed, "relay", bed.hub, _relay_config(bed))
        pair = Pair(bed, _relayed())
        relay.process.wait_until(lambda: relay.carries(2))
        idle = relay.process.resident_bytes()
        relay.api.request("POST", f"/v1/link/block?path=terminal-{terminal_node(0)}")
        done: list[Transfer] = []
        begun = time.monotonic()

        def fetch() -> None:
            route, size = pair.http_connect(), _IN_CUSTODY_BYTES
            done.append(
                download(bed.hub, addresses.ORIGIN, size, route=route, deadline_s=_DEADLINE_S)
            )

        client = threading.Thread(target=fetch, name="client")
        client.start()
        most = idle
        while not _holds_all(relay):
            most = max(most, relay.process.resident_bytes())
            if time.monotonic() > begun + _DEADLINE_S:
                raise TimeoutError(f"the relay is not full: {relay.status()['custody']}")
            time.sleep(0.05)
        time.sleep(_AT_REST_S)
        waiting = relay.process.resident_bytes()
        held = relay.status()["custody"]["bundles"]
        relay.process.kill()
        started = time.monotonic()
        relay.start()
        # The new process knows of no blockage: it forwards its bundles in custody at once.
        client.join()
        (transfer,) = done
        restored = relay.status()["custody"]["disk"]["restored_bundles"]
        if not transfer.complete or restored < held:
            raise AssertionError(f"{restored} of {held} bundles came back: {transfer.error}")
        assert transfer.first_byte_s is not None
        serves_s = begun + transfer.first_byte_s - started
        return _Filled((waiting - idle) / _MIB, (most - idle) / _MIB, serves_s)


def _holds_all(relay: Node) -> bool:
    """Tell whether the relay has the whole download on its disk."""
    disk = relay.status()["custody"]["disk"]
    return bool(disk["live_bytes"] >= _IN_CUSTODY_BYTES and disk["uncommitted_bytes"] == 0)


def _relay_config(bed: Loopback) -> dict[str, object]:
    return {
        "node": {
            "number": _RELAY_NODE,
            "role": "relay",
            "state_dir": bed.dir / "state-relay",
            "drain_s": 2,
        },
        "tls": {"plain": True},
        "listener": [{"name": "near", "listen": f"{addresses.HUB_SAT}:{_RELAY_PORT}"}],
        "terminal": [{"node": terminal_node(0)}],
        "path": [
            {
                "name": "hub",
                "neighbour": HUB_NODE,
                "remote": f"{addresses.HUB_SAT}:{TCPCL_PORT}",
            }
        ],
        "route": [
            {"node": HUB_NODE, "via": HUB_NODE, "custody": True},
            {"node": terminal_node(0), "via": terminal_node(0), "custody": True},
        ],
        **_DISK,
    }


def _relayed() -> Options:
    path = {
        "name": "satellite",
        "neighbour": _RELAY_NODE,
        "remote": f"{addresses.HUB_SAT}:{_RELAY_PORT}",
    }
    return Options(
        tls=False,
        terminal={
            "path": [path],
            "route": [{"node": HUB_NODE, "via": _RELAY_NODE}],
            # So large that one download fills the relay.
            "streams": {"window_bytes": 2 * _IN_CUSTODY_BYTES},
        },
        hub={
            "terminal": [{"node": _RELAY_NODE}],
            "route": [{"node": terminal_node(0), "via": _RELAY_NODE}],
        },
    )


def _committed_bytes(pair: Pair[Loopback]) -> int:
    nodes = (pair.hub, pair.terminal)
    disks = [node.status()["custody"].get("disk") for node in nodes]
    return sum(disk["committed_bytes"] for disk in disks if disk)


def _disk_bps(folder: Path) -> float:
    """Return the disk's sustained rate for sequential, durable writes, bit/s."""
    block = os.urandom(4 << 20)
    path = folder / "probe"
    started = time.monotonic()
    with path.open("wb") as file:
        for _ in range(256):
            file.write(block)
        file.flush()
        os.fdatasync(file.fileno())
    path.unlink()
    return 256 * len(block) * 8 / (time.monotonic() - started)
