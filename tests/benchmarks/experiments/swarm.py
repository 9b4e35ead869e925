"""Many light terminals at one hub: what they cost it idle, and what they get at once and when."""

from __future__ import annotations

from typing import Any

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, record
from tests.testbed import addresses
from tests.testbed.loopback import Loopback
from tests.testbed.programs import missing
from tests.testbed.swarm import SwarmHub, outcome

_IDLE = 2000
_IDLE_S = 600.0
_ACTIVE = 250
_BYTES = 5_000_000
_BEAM_BPS = 400_000_000
_PER_S = 20.0
_STREAMING = 1000
_OFFERED_BPS = 200_000_000
_STREAMS_BEAM_BPS = 250_000_000
_BLOCKED = 64
# Of a round trip of 600 ms, which the hub is told of.
_DELAY = ("--delay-ms", "300")


def run(settings: Settings) -> Result:
    """Leave 2,000 terminals idle for ten minutes; have 250 download 5 MB each at once."""
    result = Result("swarm")
    result.told["underpass"] = "nothing; warm: sessions up"
    if result.left_out(missing("underpass", "swarm")):
        return result
    runs = settings.runs or 1
    idle = [measure_idle(_IDLE, _IDLE_S) for _ in range(runs)]
    active = [measure_active() for _ in range(runs)]
    for figure, values in {
        "swarm-idle.memory": [run["hub_bytes_per_terminal"] / 1024 for run in idle],
        "swarm-idle.cpu": [run["hub_cpu_percent"] for run in idle],
        "swarm-idle.alive": [100 * run["alive"] / run["terminals"] for run in idle],
        "swarm-active.use": [100 * run["goodput_bps"] / _BEAM_BPS for run in active],
        "swarm-active.cpu": [1e8 * run["hub_cpu_s"] / run["delivered_bytes"] for run in active],
        "swarm-active.jain": [run["jain"] for run in active],
        "swarm-active.broken": [float(run["broken"]) for run in active],
    }.items():
        result.records.append(record(figure, "underpass", values))
    result.notes["idle"] = idle
    result.notes["active"] = active
    return result


def run_streams(settings: Settings) -> Result:
    """Have 1,000 terminals follow five paced streams each while 64 are blocked at any time."""
    result = Result("swarm-streams")
    result.told["underpass"] = "nothing of the blockages; warm: streams open"
    if result.left_out(missing("underpass", "swarm")):
        return result
    streams = [measure_streams() for _ in range(settings.runs or 1)]
    for figure, values in {
        "swarm-streams.delivered": [100 * run["delivered"] for run in streams],
        "swarm-streams.delay": [run["excess"]["p99_ms"] for run in streams],
        "swarm-streams.delay-clear": [run["clear"]["p99_ms"] for run in streams],
        "swarm-streams.delay-recovery": [run["recovery"]["p99_ms"] for run in streams],
        "swarm-streams.jain": [run["jain"] for run in streams],
        "swarm-streams.broken": [float(run["broken"]) for run in streams],
        "swarm-streams.cpu": [run["hub_cpu_percent"] for run in streams],
        "swarm-streams.cpu-swarm": [run["swarm_cpu_percent"] for run in streams],
    }.items():
        result.records.append(record(figure, "underpass", values))
    result.notes["streams"] = streams
    return result


def measure_idle(terminals: int, seconds: float) -> dict[str, Any]:
    """Connect so many, leave them alone, and say what the hub used for them."""
    with Loopback() as bed:
        hub = SwarmHub(bed, terminals)
        arguments = ["--per-s", str(_PER_S), "--measure-s", str(seconds), *_DELAY]
        swarm = hub.terminals(terminals, *arguments)
        told = outcome(swarm, timeout_s=600 + seconds)
    say(
        f"swarm  {told['alive']} of {terminals} alive: "
        f"{told['hub_bytes_per_terminal'] / 1024:.0f} KiB each, "
        f"{told['hub_cpu_percent']:.1f} % of a core"
    )
    return told


def measure_active(terminals: int = _ACTIVE, size: int = _BYTES) -> dict[str, Any]:
    """Have so many download at once through a beam, and say what came."""
    with Loopback() as bed:
        hub = SwarmHub(bed, terminals, hub={"beam": {"rate_bps": _BEAM_BPS}})
        swarm = hub.terminals(
            terminals,
            "--per-s",
            str(_PER_S),
            "--origin",
            f"{addresses.ORIGIN}:80",
            "--bytes",
            str(size),
            "--measure-s",
            "300",
            *_DELAY,
        )
        told = outcome(swarm, timeout_s=900)
    rate = told["goodput_bps"] / 1e6
    say(f"swarm  {terminals} at once: {rate:.0f} Mbit/s, Jain's index {told['jain']:.4f}")
    return told


def measure_streams(terminals: int = _STREAMING, blocked: int = _BLOCKED) -> dict[str, Any]:
    """Have so many follow paced streams while some are blocked, and say what came, and when."""
    with Loopback() as bed:
        hub = SwarmHub(bed, terminals, hub={"beam": {"rate_bps": _STREAMS_BEAM_BPS}})
        swarm = hub.streams(
            terminals,
            *("--per-s", "40", *_DELAY),
            *("--offered-bps", str(_OFFERED_BPS), "--blocked", str(blocked)),
            beam_bps=_STREAMS_BEAM_BPS,
        )
        told = outcome(swarm, timeout_s=600)
    say(
        f"swarm  {told['streams']} streams: {100 * told['delivered']:.1f} % delivered, p99 "
        f"{told['excess']['p99_ms']:.0f} ms behind the ideal queue "
        f"({told['clear']['p99_ms']:.0f} without blockages), Jain's index {told['jain']:.4f}"
    )
    return told
