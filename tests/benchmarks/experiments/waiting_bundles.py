"""A million bundles for an absent neighbour: the node's memory, and the rate of forwarding."""

from __future__ import annotations

import time
from dataclasses import dataclass

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.experiments.chain import relay, run_chain
from tests.benchmarks.records import Result, record
from tests.testbed import addresses
from tests.testbed.loopback import Loopback
from tests.testbed.node import TCPCL_PORT, Node
from tests.testbed.programs import missing

_BUNDLES = 1_000_000
_BYTES = 1 << 10
_RUNS = 3
_GENERATOR, _NODE, _SINK = 50, 5, 60
_PORT, _SINK_PORT = TCPCL_PORT + 60, TCPCL_PORT + 62
# Far above the measured times, so that a slow machine does not end the run.
_DEADLINE_S = 900.0
# A node returns freed memory to the system some seconds after its use.
_SETTLE_S = 10.0


@dataclass(frozen=True)
class _Waited:
    """The node's memory per bundle (bytes), and bundles per second as they left."""

    bytes_each: float
    drained_per_s: float


def run(settings: Settings) -> Result:
    """Fill the node's store with bundles of 1 KiB in custody, then start the sink."""
    result = Result("waiting-bundles")
    result.told["underpass"] = "no rates; RTT 1 ms"
    if result.left_out(missing("underpass", "chain")):
        return result
    runs: list[_Waited] = []
    for _ in range(settings.runs or _RUNS):
        one = _wait_and_drain()
        runs.append(one)
        say(
            f"{_BUNDLES} bundles: {one.bytes_each:.0f} bytes of memory each, "
            f"drained at {one.drained_per_s:.0f}/s"
        )
    for figure, values in (
        ("waiting-bundles.memory", [one.bytes_each for one in runs]),
        ("waiting-bundles.drained", [one.drained_per_s for one in runs]),
    ):
        result.records.append(record(figure, "underpass", values))
    return result


def _wait_and_drain() -> _Waited:
    """Have a node store all bundles and then forward them, with a state folder of its own."""
    with Loopback() as bed:
        config = {
            **relay(bed, "waiting", _NODE, _PORT, (_GENERATOR, _SINK, _SINK_PORT)),
            "custody": {
                "durability": "disk",
                "quota_bytes": 8 << 30,
                "quota_bundles": 4 * _BUNDLES,
            },
        }
        node = Node(bed, "waiting", bed.hub, config)
        node.process.wait_until(lambda: node.carries(0))
        idle = node.process.resident_bytes()
        chain = {
            "to": f"{addresses.HUB_SAT}:{_PORT}",
            "listen": f"{addresses.HUB_SAT}:{_SINK_PORT}",
            "bytes": _BYTES,
            "source": _GENERATOR,
            "sink": _SINK,
        }
        run_chain(
            bed, ["--custody", "--only-send"], {**chain, "count": _BUNDLES}, timeout_s=_DEADLINE_S
        )
        time.sleep(_SETTLE_S)
        waiting = node.process.resident_bytes() - idle
        drained = run_chain(
            bed, ["--custody"], {**chain, "only-receive": _BUNDLES}, timeout_s=_DEADLINE_S
        )
        node.process.stop()
    return _Waited(waiting / _BUNDLES, float(drained["bundles_per_s"]))
