"""Bundles of any node through a chain of two: a generator, two nodes, a sink.

All four are on one loopback, without TLS. The nodes either store bundles in memory and take no
custody, or store them on disk, and take custody of each once it is durable.
The generator and the sink are one program, which compares each received bundle with the one sent,
and has at most 16 MiB in flight.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
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
# More than a node needs to connect to the sink.
_OVERHEAD_S = 30.0
_GENERATOR, _FIRST, _SECOND, _SINK = 50, 5, 6, 60
# From this size on, figures are bits, not bundles.
_LARGE = 64 << 10


@dataclass(frozen=True)
class _Way:
    """The ports of the first node and of the sink, and whether bundles are under custody."""

    first: int
    sink: int
    custody: bool = False


_ALONE = _Way(TCPCL_PORT + 40, TCPCL_PORT + 40)


def run(settings: Settings) -> Result:
    """Measure bundles per second at 1 KiB, and bits per second for larger ones, in turns."""
    result = Result("chain")
    result.told["underpass"] = "no rates; RTT 1 ms; warm: sessions up"
    if result.left_out(missing("underpass", "chain")):
        return result
    values: dict[str, list[float]] = {}
    outcomes: dict[str, list[dict[str, Any]]] = {}
    with Loopback() as bed, _nodes(bed, "memory") as memory, _nodes(bed, "disk") as disk:
        ways = {
            f"chain-{part}.{name}": (size, way)
            for name, size in _SIZES.items()
            for part, way in (("two", memory), ("alone", _ALONE))
        }
        ways["chain-custody.1k"] = (_SIZES["1k"], disk)
        for _ in range(settings.runs or _RUNS):
            for figure, (size, way) in ways.items():
                told = measure(bed, size, way)
                if told["missing"] or told["doubled"]:
                    raise ProcessError(f"not every bundle came, once: {told}")
                outcomes.setdefault(figure, []).append(told)
                rate = told["bundles_per_s"] if size < _LARGE else told["bits_per_s"] / 1e9
                values.setdefault(figure, []).append(rate)
    for figure, rates in values.items():
        made = record(figure, "underpass", rates)
        say(f"{figure}: median {made.median:.4g} {made.unit}")
        result.records.append(made)
    result.notes["outcomes"] = outcomes
    return result


def measure(bed: Loopback, size: int, way: _Way) -> dict[str, Any]:
    """Send bundles with `size` bytes of payload for some seconds; return the output of `chain`."""
    arguments = {
        "to": f"{addresses.HUB_SAT}:{way.first}",
        "listen": f"{addresses.HUB_SAT}:{way.sink}",
        "bytes": size,
        "warm": _WARM_S,
        "seconds": _SECONDS,
        "source": _GENERATOR,
        "sink": _SINK,
    }
    flags = ["--custody"] if way.custody else []
    return run_chain(bed, flags, arguments, timeout_s=_WARM_S + _SECONDS + _OVERHEAD_S)


def run_chain(
    bed: Loopback, flags: Sequence[str], arguments: Mapping[str, object], *, timeout_s: float
) -> dict[str, Any]:
    """Run the generator and the sink to their end; return their output."""
    argv = [built("chain"), *flags]
    for name, value in arguments.items():
        argv += [f"--{name}", str(value)]
    process = bed.start("chain", argv, bed.hub)
    process.wait_until(lambda: not process.running(), timeout_s=timeout_s)
    lines = process.log_path.read_text().splitlines()
    if not lines or not lines[-1].startswith("{"):
        raise ProcessError(f"chain has measured nothing:\n{process.log_tail()}")
    told: dict[str, Any] = json.loads(lines[-1])
    return told


@contextlib.contextmanager
def _nodes(bed: Loopback, durability: str) -> Iterator[_Way]:
    """Start two nodes, the second one first."""
    custody = durability == "disk"
    base = TCPCL_PORT + (20 if custody else 0)
    way = _Way(base, base + 2, custody)
    second = relay(bed, f"second-{durability}", _SECOND, base + 1, (_FIRST, _SINK, way.sink))
    second["route"] = [{"node": _GENERATOR, "via": _FIRST}]
    first = relay(bed, f"first-{durability}", _FIRST, base, (_GENERATOR, _SECOND, base + 1))
    first["route"] = [{"node": _SINK, "via": _SECOND}]
    kept = {"custody": {"durability": durability}}
    last = Node(bed, f"second-{durability}", bed.hub, merged(second, kept))
    node = Node(bed, f"first-{durability}", bed.hub, merged(first, kept))
    node.process.wait_until(lambda: node.carries(1))
    yield way
    node.process.stop()
    last.process.stop()


def relay(
    bed: Loopback, name: str, number: int, listens: int, between: tuple[int, int, int]
) -> dict[str, Any]:
    """Return the configuration of a relay that accepts one neighbour and dials another."""
    accepts, dials, port = between
    return {
        "node": {
            "number": number,
            "role": "relay",
            "state_dir": bed.dir / f"state-{name}",
            "drain_s": 1,
        },
        "tls": {"plain": True},
        "listener": [{"name": "in", "listen": f"{addresses.HUB_SAT}:{listens}"}],
        "terminal": [{"node": accepts, "rtt_ms": 1}],
        "path": [
            {
                "name": "next",
                "neighbour": dials,
                "remote": f"{addresses.HUB_SAT}:{port}",
                "rtt_ms": 1,
            }
        ],
    }
