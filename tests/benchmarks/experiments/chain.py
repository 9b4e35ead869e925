"""Bundles of any node through a chain of two: a generator, two nodes, a sink.

All four are on one loopback, without TLS; the nodes keep bundles in memory and take no custody.
The generator and the sink are one program, which compares each bundle that comes with what was
sent, and has 16 MiB on their way at most.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.testbed import addresses
from tests.testbed.loopback import Loopback
from tests.testbed.node import TCPCL_PORT, Node, merged
from tests.testbed.process import ProcessError
from tests.testbed.programs import built, missing

_SIZES = {"1k": 1 << 10, "64k": 64 << 10, "1m": 1 << 20}
_WARM_S, _SECONDS = 1.0, 3.0
_RUNS = 10
# More than the time that a node needs to reach the sink.
_OVERHEAD_S = 30.0
_GENERATOR, _FIRST, _SECOND, _SINK = 50, 5, 6, 60
_SINK_PORT, _ALONE_PORT = TCPCL_PORT + 10, TCPCL_PORT + 20


def run(settings: Settings) -> Result:
    """Measure bundles a second of 1 KiB, and bits a second of larger ones; in turns, both alone."""
    result = Result("chain")
    result.told["underpass"] = "no rates; RTT 1 ms; warm: sessions up"
    if reason := missing("underpass", "chain"):
        say(f"chain is left out: {reason}")
        result.notes["left out"] = reason
        return result
    values: dict[str, list[float]] = {}
    outcomes: dict[str, list[dict[str, Any]]] = {}
    with Loopback() as bed, _nodes(bed):
        for _ in range(settings.runs or _RUNS):
            for name, size in _SIZES.items():
                for part, way in (("two", _through()), ("alone", _alone())):
                    told = measure(bed, size, way)
                    if told["missing"] or told["doubled"]:
                        raise ProcessError(f"not every bundle came, once: {told}")
                    outcomes.setdefault(f"{name}, {part}", []).append(told)
                    rate = told["bundles_per_s"] if name == "1k" else told["bits_per_s"] / 1e9
                    values.setdefault(f"chain-{part}.{name}", []).append(rate)
    for figure, rates in values.items():
        made = record(figure, "underpass", rates)
        say(f"{figure}: median {made.median:.4g} {made.unit}")
        result.records.append(made)
    result.notes["outcomes"] = outcomes
    return result


def measure(bed: Loopback, size: int, way: dict[str, str]) -> dict[str, Any]:
    """Send bundles of such a payload (bytes) for some seconds; what `chain` tells."""
    arguments = {
        **way,
        "bytes": str(size),
        "warm": str(_WARM_S),
        "seconds": str(_SECONDS),
        "source": str(_GENERATOR),
        "sink": str(_SINK),
    }
    argv = [built("chain")]
    for name, value in arguments.items():
        argv += [f"--{name}", value]
    process = bed.start("chain", argv, bed.hub)
    process.wait_until(lambda: not process.running(), timeout_s=_WARM_S + _SECONDS + _OVERHEAD_S)
    lines = process.log_path.read_text().splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise ProcessError(f"chain has measured nothing:\n{process.log_tail()}")
    told: dict[str, Any] = json.loads(lines[-1])
    return told


def _through() -> dict[str, str]:
    return {
        "to": f"{addresses.HUB_SAT}:{TCPCL_PORT}",
        "listen": f"{addresses.HUB_SAT}:{_SINK_PORT}",
    }


def _alone() -> dict[str, str]:
    itself = f"{addresses.HUB_SAT}:{_ALONE_PORT}"
    return {"to": itself, "listen": itself}


@contextlib.contextmanager
def _nodes(bed: Loopback) -> Iterator[None]:
    """Start both nodes, the second one first."""
    second = _relay(bed.dir, _SECOND, _FIRST, (_SINK, _SINK_PORT))
    first = _relay(bed.dir, _FIRST, _GENERATOR, (_SECOND, TCPCL_PORT + 1))
    listen = {"listener": [{"name": "in", "listen": f"{addresses.HUB_SAT}:{TCPCL_PORT + 1}"}]}
    routes = {"route": [{"node": _GENERATOR, "via": _FIRST}]}
    last = Node(bed, "second", bed.hub, merged(second, {**listen, **routes}))
    node = Node(
        bed,
        "first",
        bed.hub,
        merged(
            first,
            {
                "listener": [{"name": "in", "listen": f"{addresses.HUB_SAT}:{TCPCL_PORT}"}],
                "route": [{"node": _SINK, "via": _SECOND}],
            },
        ),
    )
    node.process.wait_until(lambda: node.carries(1))
    yield
    node.process.stop()
    last.process.stop()


def _relay(directory: Path, number: int, accepts: int, dials: tuple[int, int]) -> dict[str, object]:
    neighbour, port = dials
    return {
        "node": {
            "number": number,
            "role": "relay",
            "state_dir": directory / f"state-{number}",
            "drain_s": 1,
        },
        "tls": {"plain": True},
        "custody": {"durability": "memory"},
        "terminal": [{"node": accepts, "rtt_ms": 1}],
        "path": [
            {
                "name": "next",
                "neighbour": neighbour,
                "remote": f"{addresses.HUB_SAT}:{port}",
                "rtt_ms": 1,
            }
        ],
    }
