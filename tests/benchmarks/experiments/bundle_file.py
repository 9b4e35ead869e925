"""A file of 10 GB as one bundle: the memory of both nodes, and the rate."""

from __future__ import annotations

import subprocess
import threading
import time
from dataclasses import dataclass

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.testbed.applications import applications, socket_of
from tests.testbed.loopback import Loopback
from tests.testbed.node import Node, Options, Pair
from tests.testbed.programs import built, missing

_BYTES = 10_000_000_000
_RUNS = 1
_DESTINATION = "ipn:1.40"
_DEADLINE_S = 3600.0
_BETWEEN_SAMPLES_S = 0.2


@dataclass(frozen=True)
class _Sent:
    """Each node's largest memory (MiB), and the total time (s)."""

    terminal_mib: float
    hub_mib: float
    time_s: float


def run(settings: Settings) -> Result:
    """Send the file from the terminal to the hub, and have an application there read it."""
    result = Result("bundle-file")
    if result.left_out(missing("underpass")):
        return result
    runs = [_send_and_receive(_BYTES) for _ in range(settings.runs or _RUNS)]
    for one in runs:
        say(
            f"{_BYTES} bytes in {one.time_s:.0f} s: the terminal had {one.terminal_mib:.0f} MiB "
            f"of memory at most, the hub {one.hub_mib:.0f} MiB"
        )
    for figure, values in (
        ("bundle-file.memory", [max(one.terminal_mib, one.hub_mib) for one in runs]),
        ("bundle-file.rate", [_BYTES / 1e6 / one.time_s for one in runs]),
    ):
        result.records.append(record(figure, "underpass", values))
    return result


def _send_and_receive(size: int) -> _Sent:
    with Loopback() as bed:
        hub, terminal = (applications(bed.dir, name) for name in ("hub", bed.terminals[0].name))
        pair = Pair(bed, Options(terminal=terminal, hub=hub))
        # A sparse file, without blocks on the disk: three copies exist at a time.
        path = bed.dir / "file"
        with path.open("wb") as file:
            file.truncate(size)
        nodes = (pair.terminal, pair.hub)
        with _Memory(nodes) as memory:
            begun = time.monotonic()
            _bp(pair.terminal, "send", _DESTINATION, str(path))
            _bp(pair.hub, "receive", "--service", "40", "--count", "1", "--timeout", "600")
            time_s = time.monotonic() - begun
        return _Sent(*memory.most_mib(), time_s)


def _bp(node: Node, command: str, *args: str) -> None:
    """Run `underpass bp` at a node; received data is counted and discarded."""
    argv = [built("underpass"), "bp", command, "--json", "--socket", str(socket_of(node)), *args]
    subprocess.run(argv, check=True, timeout=_DEADLINE_S, stdout=subprocess.DEVNULL)


class _Memory:
    """Samples the nodes' resident memory without file pages."""

    def __init__(self, nodes: tuple[Node, Node]) -> None:
        self._nodes = nodes
        self._most = [0, 0]
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)

    def __enter__(self) -> _Memory:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()

    def most_mib(self) -> tuple[float, float]:
        """Return each node's maximum, MiB."""
        return self._most[0] / (1 << 20), self._most[1] / (1 << 20)

    def _sample(self) -> None:
        while not self._ended.wait(_BETWEEN_SAMPLES_S):
            for index, node in enumerate(self._nodes):
                now = node.process.resident_bytes()
                self._most[index] = max(self._most[index], now)
