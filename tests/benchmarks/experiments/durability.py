"""Custody on disk: what it costs in throughput, memory and time to start."""

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
# The part of the memory's rate, or of the disk's, that is asked for.
_OF_MEMORY, _OF_DISK = 0.7, 0.8

_MIB = 1 << 20
_IN_CUSTODY_BYTES = 1 << 30
# Freed memory is given back some seconds after it was used.
_AT_REST_S = 10.0
# One of the two neighbours of a relay gets half of it at most.
_QUOTA_BYTES = 3 << 30
_DISK = {"custody": {"durability": "disk", "quota_bytes": _QUOTA_BYTES}}
_RELAY_NODE, _RELAY_PORT = 5, 4600


@dataclass(frozen=True)
class _Filled:
    """Memory above idle, with 1 GiB waiting and the most while it came; when data flowed again."""

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
                    # What a run before has left to write is no part of this one.
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
        # What was never written does not depend on the disk.
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
    """A relay with 1 GiB in custody: its memory, and how soon it serves again when killed."""
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
    """Fill a relay whose way on is blocked, kill it, and let it go on."""
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
        # The new process knows of no blockage: what it has custody of goes on by itself.
        client.join()
        (transfer,) = done
        restored = relay.status()["custody"]["disk"]["restored_bundles"]
        if not transfer.complete or restored < held:
            raise AssertionError(f"{restored} of {held} bundles came back: {transfer.error}")
        assert transfer.first_byte_s is not None
        serves_s = begun + transfer.first_byte_s - started
        return _Filled((waiting - idle) / _MIB, (most - idle) / _MIB, serves_s)


def _holds_all(relay: Node) -> bool:
    """Tell whether all of the download is on its disk."""
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
            # So wide that one download fills the relay.
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
    """Return what the disk sustains when bytes are written in order and made durable."""
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
