"""Twenty terminals download beside an attacker, and beside one more that only downloads.

Five more have paced streams, which show how long chunks wait in the hub. Each attack is measured by
itself, on a hub of its own, since a mean over all attacks would hide one that harms.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tests.benchmarks.bench import Settings, say
from tests.benchmarks.records import Result, part_of, record
from tests.testbed import addresses
from tests.testbed.loopback import Loopback
from tests.testbed.node import terminal_node
from tests.testbed.process import Process
from tests.testbed.programs import built, missing
from tests.testbed.swarm import SwarmHub, outcome

_HONEST, _PACED = 20, 5
_BEAM_BPS = 100_000_000
# A quarter of a minute of the beam's capacity. The attack is repeated until it is used.
_BYTES = 10_000_000
_ORIGIN = f"{addresses.ORIGIN}:80"
# A quarter of each paced terminal's fair share while all download.
_OFFERED_BPS = _PACED * 1_000_000
_PACED_S = 12
# The attacks of a few bundles each, measured together.
_OF_BUNDLES = "bundles"


@dataclass(frozen=True)
class Beside:
    """What honest terminals got beside a neighbour, and what the neighbour took."""

    goodput_bps: float
    # Of the paced streams' chunks, how much longer than in an ideal queue they waited.
    p99_ms: float
    broken: int
    hub_memory_bytes: int
    # Processor time of the neighbour's own process, which is missing to all others.
    neighbour_cpu_percent: float


def run(settings: Settings) -> Result:
    """Measure the twenty terminals' rates beside a bulk user and beside each attack."""
    result = Result("hostile")
    result.told["underpass"] = "nothing; warm: sessions up"
    if result.left_out(missing("underpass", "swarm")):
        return result
    figures: dict[str, list[float]] = {}
    attacks = _attacks()
    notes: list[dict[str, Any]] = []
    for _ in range(settings.runs or 3):
        beside_bulk, _ = _beside(_bulk_user)
        beside: dict[str, Beside] = {}
        answers: dict[str, list[dict[str, Any]]] = {}
        for name, members in attacks.items():
            beside[name], answers[name] = _beside(_attacker(members))
            say(f"hostile  beside {name}: {beside[name]}")
        for figure, value in summary(beside_bulk, beside).items():
            figures.setdefault(figure, []).append(value)
        notes.append(
            {
                "bulk user": asdict(beside_bulk),
                **{name: asdict(beside[name]) | {"answers": answers[name]} for name in attacks},
            }
        )
    result.notes["beside"] = notes
    result.records += [record(figure, "underpass", values) for figure, values in figures.items()]
    return result


def summary(beside_bulk: Beside, beside: Mapping[str, Beside]) -> dict[str, float]:
    """Return the figures of one run: over all attacks, and of the attack that harms most."""
    ratios = [part_of(each.goodput_bps, beside_bulk.goodput_bps) for each in beside.values()]
    delays_ms = [each.p99_ms - beside_bulk.p99_ms for each in beside.values()]
    return {
        "hostile.goodput": statistics.fmean(ratios),
        "hostile.worst-goodput": min(ratios),
        "hostile.delay": statistics.fmean(delays_ms),
        "hostile.worst-delay": max(delays_ms),
        "hostile.broken": float(sum(each.broken for each in beside.values())),
        "hostile.memory": max(each.hub_memory_bytes for each in beside.values()) / (1 << 20),
        "hostile.attacker-cpu": max(each.neighbour_cpu_percent for each in beside.values()),
    }


def _attacks() -> dict[str, list[str]]:
    """Return what is measured at a time: an attack, or those of a few bundles each."""
    argv = [built("swarm"), "hostile", "--list"]
    listed = subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    attacks: dict[str, list[str]] = {}
    for line in listed.splitlines():
        name, expected = line.split("\t")
        attacks.setdefault(name if expected == "Endured" else _OF_BUNDLES, []).append(name)
    return attacks


def _bulk_user(hub: SwarmHub) -> Process:
    node = str(terminal_node(_HONEST))
    arguments = ("--first-node", node, "--settle-s", "0", "--measure-s", "600")
    return hub.terminals(1, *arguments, "--origin", _ORIGIN, "--bytes", "10000000000", name="bulk")


def _attacker(attacks: list[str]) -> Callable[[SwarmHub], Process]:
    nodes = {"node": _HONEST, "victim": 0, "absent": _HONEST + 1}
    named = [
        part for name, index in nodes.items() for part in (f"--{name}", str(terminal_node(index)))
    ]
    arguments = ("--origin", _ORIGIN, "--seconds", "600", *named, *attacks)
    return lambda hub: hub.start("hostile", "hostile", *arguments)


def _beside(start: Callable[[SwarmHub], Process]) -> tuple[Beside, list[dict[str, Any]]]:
    """Measure beside a neighbour; return also what an attacker was answered, the last time."""
    with Loopback() as bed:
        hub = SwarmHub(bed, _HONEST + 2 + _PACED, hub={"beam": {"rate_bps": _BEAM_BPS}})
        began, neighbour = time.monotonic(), start(hub)
        honest = hub.terminals(
            _HONEST, "--origin", _ORIGIN, "--bytes", str(_BYTES), "--measure-s", "300"
        )
        first = str(terminal_node(_HONEST + 2))
        paced = hub.streams(
            _PACED,
            *("--first-node", first, "--offered-bps", str(_OFFERED_BPS)),
            *("--measure-s", str(_PACED_S)),
            beam_bps=_BEAM_BPS,
        )
        told = outcome(honest, timeout_s=600)
        of_paced = outcome(paced, timeout_s=600)
        if not neighbour.running():
            raise AssertionError(f"the neighbour ended first:\n{neighbour.log_tail()}")
        cpu_percent = 100 * neighbour.processor_s() / (time.monotonic() - began)
        lines = neighbour.log_path.read_text().splitlines()
        answers = [json.loads(line) for line in lines if line.startswith('{"attack"')]
        beside = Beside(
            goodput_bps=told["goodput_bps"],
            p99_ms=of_paced["excess"]["p99_ms"],
            broken=told["broken"] + of_paced["broken"],
            hub_memory_bytes=hub.node.process.resident_bytes(),
            neighbour_cpu_percent=cpu_percent,
        )
        return beside, list({answer["attack"]: answer for answer in answers}.values())
