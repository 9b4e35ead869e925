"""Many light terminals at one hub: their cost when idle, and their rates and delays when active."""

from __future__ import annotations

from collections.abc import Callable, Mapping
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
# Of a round trip of 600 ms, which the hub knows.
_DELAY = ("--delay-ms", "300")


def run(settings: Settings) -> Result:
    """Leave 2,000 terminals idle for ten minutes."""
    return _measured(
        "swarm",
        settings,
        lambda: measure_idle(_IDLE, _IDLE_S),
        {
            "swarm-idle.memory": lambda run: run["hub_bytes_per_terminal"] / 1024,
            "swarm-idle.cpu": lambda run: run["hub_cpu_percent"],
            "swarm-idle.alive": lambda run: 100 * run["alive"] / run["terminals"],
        },
        told="nothing; warm: sessions up",
    )


def run_active(settings: Settings) -> Result:
    """Have 250 terminals download 5 MB each at once."""
    return _measured(
        "swarm-active",
        settings,
        measure_active,
        {
            "swarm-active.use": lambda run: 100 * run["goodput_bps"] / _BEAM_BPS,
            "swarm-active.cpu": lambda run: 1e8 * run["hub_cpu_s"] / max(1, run["delivered_bytes"]),
            "swarm-active.jain": lambda run: run["jain"],
            "swarm-active.broken": lambda run: run["broken"],
        },
        told="nothing; warm: sessions up",
    )


def run_streams(settings: Settings) -> Result:
    """Have 1,000 terminals follow five paced streams each while 64 are blocked at any time."""
    return _measured(
        "swarm-streams",
        settings,
        measure_streams,
        {
            "swarm-streams.delivered": lambda run: 100 * run["delivered"],
            "swarm-streams.delay": lambda run: run["excess"]["p99_ms"],
            "swarm-streams.delay-clear": lambda run: run["clear"]["p99_ms"],
            "swarm-streams.delay-recovery": lambda run: run["recovery"]["p99_ms"],
            "swarm-streams.jain": lambda run: run["jain"],
            "swarm-streams.broken": lambda run: run["broken"],
            "swarm-streams.cpu": lambda run: run["hub_cpu_percent"],
            "swarm-streams.cpu-swarm": lambda run: run["swarm_cpu_percent"],
        },
        told="nothing of the blockages; warm: streams open",
    )


def _measured(
    name: str,
    settings: Settings,
    once: Callable[[], dict[str, Any]],
    figures: Mapping[str, Callable[[dict[str, Any]], float]],
    *,
    told: str,
) -> Result:
    """Measure as often as asked, and record each run's figures."""
    result = Result(name)
    result.told["underpass"] = told
    if result.left_out(missing("underpass", "swarm")):
        return result
    runs = [once() for _ in range(settings.runs or 1)]
    for figure, of in figures.items():
        values = [float(of(run)) for run in runs]
        result.records.append(record(figure, "underpass", values))
    result.notes["runs"] = runs
    return result


def measure_idle(terminals: int, seconds: float) -> dict[str, Any]:
    """Connect so many terminals, leave them idle, and return what the hub used for them."""
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


def measure_active() -> dict[str, Any]:
    """Have many terminals download at once through a beam; return what they received."""
    with Loopback() as bed:
        hub = SwarmHub(bed, _ACTIVE, hub={"beam": {"rate_bps": _BEAM_BPS}})
        swarm = hub.terminals(
            _ACTIVE,
            "--per-s",
            str(_PER_S),
            "--origin",
            f"{addresses.ORIGIN}:80",
            "--bytes",
            str(_BYTES),
            "--measure-s",
            "300",
            *_DELAY,
        )
        told = outcome(swarm, timeout_s=900)
    rate = told["goodput_bps"] / 1e6
    say(f"swarm  {_ACTIVE} at once: {rate:.0f} Mbit/s, Jain's index {told['jain']:.4f}")
    return told


def measure_streams() -> dict[str, Any]:
    """Have many terminals follow paced streams while some are blocked; return bytes and delays."""
    with Loopback() as bed:
        hub = SwarmHub(bed, _STREAMING, hub={"beam": {"rate_bps": _STREAMS_BEAM_BPS}})
        swarm = hub.streams(
            _STREAMING,
            *("--per-s", "40", *_DELAY),
            *("--offered-bps", str(_OFFERED_BPS), "--blocked", str(_BLOCKED)),
            beam_bps=_STREAMS_BEAM_BPS,
        )
        told = outcome(swarm, timeout_s=600)
    say(
        f"swarm  {told['streams']} streams: {100 * told['delivered']:.1f} % delivered, p99 "
        f"{told['excess']['p99_ms']:.0f} ms behind the ideal queue "
        f"({told['clear']['p99_ms']:.0f} without blockages), Jain's index {told['jain']:.4f}"
    )
    return told
