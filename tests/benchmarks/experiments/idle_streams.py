"""Ten thousand open, idle streams: the memory of both nodes."""

from __future__ import annotations

import resource
import socket
import time

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.benchmarks.subjects.underpass import TOLD_NOTHING
from tests.testbed import addresses, ports
from tests.testbed.client.route import receive_exactly
from tests.testbed.loopback import Loopback
from tests.testbed.node import Pair
from tests.testbed.programs import missing

_STREAMS = 10_000
_SETTLE_S = 10.0


def run(settings: Settings) -> Result:
    """Open the streams, pass a message through each, wait, and read the nodes' memory."""
    result = Result("idle-streams")
    result.told["underpass"] = TOLD_NOTHING
    if result.left_out(missing("underpass")):
        return result
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    values = [_kib_per_stream() for _ in range(settings.runs or 3)]
    result.records.append(record("idle-streams.memory", "underpass", values))
    say(f"idle streams: {values[0]:.1f} KiB each")
    return result


def _kib_per_stream() -> float:
    with Loopback() as bed:
        pair = Pair(bed)
        nodes = (pair.hub.process, pair.terminal.process)
        before = sum(node.resident_bytes() for node in nodes)
        socks: list[socket.socket] = []
        try:
            for _ in range(_STREAMS):
                sock = pair.socks5().connect(bed.hub, addresses.ORIGIN, ports.ECHO, timeout_s=30)
                socks.append(sock)
                sock.sendall(b"still here")
                if receive_exactly(sock, 10) != b"still here":
                    raise AssertionError("the echo came back changed")
            time.sleep(_SETTLE_S)
            after = sum(node.resident_bytes() for node in nodes)
        finally:
            for sock in socks:
                sock.close()
    return float(after - before) / _STREAMS / 1024
